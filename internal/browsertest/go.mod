module github.com/sluice-go/sluice/internal/browsertest

go 1.26.0

require go.uber.org/goleak v1.3.0

require (
	github.com/sluice-go/sluice v0.0.0
	github.com/sluice-go/sluice/observe/live v0.0.0
)

require github.com/dunglas/httpsfv v1.1.2 // indirect

replace github.com/sluice-go/sluice => ../../

replace github.com/sluice-go/sluice/observe/live => ../../observe/live
