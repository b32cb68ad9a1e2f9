module github.com/sluice-go/sluice/bench

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/sethvargo/go-limiter v1.1.0
	github.com/sluice-go/sluice v0.0.0
	github.com/throttled/throttled/v2 v2.15.0
	go.uber.org/ratelimit v0.3.1
	golang.org/x/sync v0.24.0
	golang.org/x/time v0.16.0
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
	golang.org/x/text v0.28.0 // indirect
)

replace github.com/sluice-go/sluice => ../
