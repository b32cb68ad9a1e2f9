// Package bench measures Sluice next to the libraries its users would otherwise
// take, and next to the physical floor, in one run, because absolute numbers do
// not travel between machines.
//
//	go test -bench . ./bench           # speed, once
//	go run ./bench/compare             # speed, medians of interleaved runs, against the goals
//	go run ./bench/precision           # how evenly and how true to the rate
//	go run ./bench/redis               # sluiceredis beside other limiters on a Redis
//	go test ./bench/linear             # are recorded histories linearizable?
//	bench/run                          # all of it, with raw output, tables and plots
//
// A benchmark is called Benchmark<Work>/<library>, or
// Benchmark<Work>/<case>/<library> where the work has cases. The libraries:
//
//	sluice     this module
//	floor      what no limiter can be cheaper than: one time.Since and one
//	           CompareAndSwap, for a semaphore two CompareAndSwaps and no clock
//	xtime      golang.org/x/time/rate
//	xsync      golang.org/x/sync/semaphore
//	uber       go.uber.org/ratelimit
//	failsafe   github.com/failsafe-go/failsafe-go
//	throttled  github.com/throttled/throttled/v2
//	sethvargo  github.com/sethvargo/go-limiter
//	chan       a buffered channel as a semaphore
//	plain      an http.RoundTripper in memory; client is an http.Client around it
//	failsafehttp, retryablehttp, heimdall
//	           the same behind transports that retry: failsafe's, go-retryablehttp
//	           of HashiCorp, heimdall of Gojek
//	shardmap   64 mutexes and 64 maps of int64 time points
//
// # What they do not do
//
// The works are the same for all. This is what each library leaves out.
//
// floor decides nothing, and does not retry when its CompareAndSwap fails:
// on two CPUs it does less than any limiter must.
//
// xtime gives a canceled reservation back only if none came after it, and a new
// rate does not reach callers that wait. uber cannot reject or cancel, has no cost,
// and reads the wall clock. failsafe gives nothing back; its smooth
// limiter is aligned to a grid, its bursty one a fixed window. throttled and
// sethvargo are limiters of many keys used here with one (which is what they
// offer), and never wait; sethvargo's is a fixed window.
//
// xsync has no resizing, no timeouts but by context and no introspection. A
// plain channel ignores contexts and has no weights; chan+ctx is one in a
// select with the context. shardmap forgets no key, has one quota and
// returns neither what remains nor when to retry.
package bench
