module github.com/sluice-go/sluice/examples

go 1.26.0

require (
	github.com/sluice-go/sluice v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/term v0.47.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/sluice-go/sluice => ../
