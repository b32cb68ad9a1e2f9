// Package sluice decides when an outbound call may leave. Worker pools, crawlers and
// batch jobs use it to call rate-limited APIs as fast as those allow, and no faster.
//
// Make one [Gate] for each API and account, and share it:
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
// A function whose call the server throttles returns [RetryAfter]: that pauses the gate for
// all its callers. If you do not know the limit, leave out the rate: the gate then finds it,
// see [Adaptive]. [Gate.Do] makes a call without retries, and [Gate.Wait] only waits.
//
// Which package for which need:
//
//	you want                                              use
//	at most 8 calls in flight                             semaphore.NewWeighted
//	one call each 100 ms; callers wait their turn         pacer.New
//	both, and a shared pause after a 429                  sluice.New
//	to retry failures through a gate                      sluice.Retry, sluice.RetryValue
//	the same for an http.Client                           sluicehttp.New, as its Transport
//	the same for a gRPC client                            sluicegrpc, a module of its own
//	the same for a long list, resumable                   package batch, a module of its own
//	a gate for each host, and one for all of them         sluice.NewKeyed, Config.Parent
//	a yes or no at once                                   leaky.New
//	no more than 100 in any hour, exactly                 window.NewSliding
//	5,000 a day, from midnight                            window.NewFixed
//	one of these three for each of a million keys         leaky.Keyed and those of window
//	to wait, in order, for one of them                    sluice.NewQueue, or Config.Limits of a gate
//	these limits on many machines, through a Redis        sluiceredis, a module of its own
//	to see what a gate does                               Gate.String, Gate.Stats, package observe
//	to test a client against limits and faults            sluicetest.NewServer
//
// Blocking methods take a context first and wait in the order of their callers; no call
// overtakes, not even TryAcquire. A cancelled wait gives everything back. A wait for a
// slot or a pause that cannot end before the deadline fails at once, with a
// [*limits.WaitError] that has the time it would take. Package limits has the errors that
// limits and gates return; this one has those of retries. A negative n panics; an
// impossible value in a Config or a Set method is an error and changes nothing. Everything
// works in a testing/synctest bubble, with exact instants, so there is no clock to inject.
//
// Read on: docs/concepts.md defines the words and draws each kind of limit; docs/recipes.md
// has the settings for common clients; docs/adaptive.md says how a gate finds a limit; docs/bad-input.md has what each package does with
// each mistake. docs/guarantees.md lists what is guaranteed.
package sluice
