// Package sluice decides when an outbound call may leave. Worker pools, crawlers
// and batch jobs use it to call rate-limited APIs as fast as those allow, and no
// faster.
//
// Which package for which need:
//
//	you want                                              use
//	at most 8 calls in flight                             semaphore.NewWeighted(8)
//	one call each 100 ms, callers wait their turn         pacer.New(limits.Rate{Count: 10, Per: time.Second}, …)
//	both, and a shared pause after a 429                  sluice.New (a Gate)
//	to call through a gate and retry failures             sluice.RetryValue, sluice.Retry
//	the same for an http.Client                           sluicehttp.New, as its Transport
//	the same for a long list, resumable                   batch.Map, batch.ForEach
//	to read the rate-limit headers of a response          ratelimit.Parse, in sluicehttp/ratelimit
//	to test a client against limits and faults            sluicetest.NewServer
//	a gate for each host, and one for all of them         sluice.NewKeyed, Config.Parent
//	a yes or no at once: is this call within its limit?   leaky.New
//	no more than 100 in any hour, exactly                 window.NewSliding
//	5,000 a day, from midnight                            window.NewCalendar
//	one of these three for each of a million keys         leaky.NewKeyed, window.NewKeyedSliding, window.NewKeyedFixed
//	to wait, in order, for one of them                    sluice.NewQueue; as one limit of a gate: Config.Limits
//	statistics of a gate                                  Gate.Stats; observe.Vars, at /debug/vars
//	its events in a log or as metrics                     Config.Observer; observe.NewLogger, observe/prometheus, observe/otel
//	these limits on many machines, through a Redis        sluiceredis, a module of its own
//	to read "300/20s" from a flag                         limits.ParseRate
//
// A semaphore and a pacer are often confused. A semaphore of 2 lets two calls
// go, and two more when those are done, however fast that is: "2 concurrent
// requests". A rate of 2/s lets one go each half second, however long they take:
// "2 requests per second". Most APIs limit both, and so does a [Gate].
//
// # A gate
//
// Use one gate for each API and account, and share it: two gates for one limit
// let through twice as much.
//
//	gate, err := sluice.New(sluice.Config{
//		Name:        "example.com",
//		Concurrency: 8,
//		Rate:        sluice.Rate{Count: 100, Per: time.Second},
//	})
//	…
//	user, err := sluice.RetryValue(ctx, gate, sluice.RetryPolicy{}, func(ctx context.Context) (*User, error) {
//		return fetchUser(ctx, id)
//	})
//
// # Rules that hold everywhere
//
// Blocking methods take a context first. If the context is already done they fail
// before they take anything, and a wait that is cancelled gives everything back. If
// the wait for a slot or a pause cannot end before the deadline they fail at once
// with a [*WaitError] that says how long it would have been. A wait that may end at
// any time, such as for room in flight, is not refused: it fails when its time is
// up. Waiting is first come, first served; nothing overtakes, not even TryAcquire.
//
// README.md lists what is guaranteed; "go test -run TestPromise work" checks each
// guarantee with each feature. An n larger than a limit whose permits must be given
// back is [ErrTooLarge]. A pacer has no such limit: it lets the call leave, and the
// next one waits longer. Durations beyond 292 years count as never.
//
// # Bad input
//
// A negative n panics, and the message names the package. An impossible value in a
// Config, or passed to a Set method, is an error and changes nothing. docs/bad-input.md
// has a table of what each package does with each mistake; a test checks its cells.
//
// # Time
//
// Only the monotonic part of the clock counts; times that callers pass are converted
// at the call. Everything works in a testing/synctest bubble, with exact instants, so
// there is no clock to inject.
package sluice
