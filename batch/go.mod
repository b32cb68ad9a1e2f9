module github.com/sluice-go/sluice/batch

go 1.26.0

require (
	github.com/sluice-go/sluice v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.24.0
)

replace github.com/sluice-go/sluice => ../
