module github.com/sluice-go/sluice/observe/live

go 1.26.0

require (
	github.com/sluice-go/sluice v0.0.0
	go.uber.org/goleak v1.3.0
)

require github.com/dunglas/httpsfv v1.1.2 // indirect

replace github.com/sluice-go/sluice => ../../
