module github.com/sluice-go/sluice

go 1.26.0

require (
	github.com/dunglas/httpsfv v1.1.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.24.0
)
