// Package sluice decides when an outbound call may start. Worker pools, crawlers and batch jobs use
// it to call rate-limited APIs as fast as those allow, and no faster.
//
// Make one [Gate] for each API and account, and share it:
//
//	gate, err := sluice.New(sluice.Config{
//		Name:        "example.com",
//		Concurrency: 8,
//		Rate:        sluice.PerSecond(100),
//	})
//	…
//	user, err := sluice.RetryValue(ctx, gate, func(ctx context.Context) (*User, error) {
//		return fetchUser(ctx, id)
//	})
//
// A function whose call the server throttles returns [ThrottledFor], which pauses the gate for all
// callers. Leave out a rate that you do not know: the gate finds it, see [Adaptive]. [Gate.Do] makes
// a call without retries, and [Gate.Wait] only waits.
//
// Which package for which need:
//
//	an http.Client, any SDK; gRPC                         sluicehttp; sluicegrpc
//	at most 8 calls in flight                             semaphore
//	one call every 100 ms; callers wait their turn        pacer
//	both, and a shared pause after a 429                  sluice.New
//	a long list, resumable                                batch
//	a gate for each host, and one for all of them         sluice.NewKeyed, Config.Parent
//	yes or no immediately; also for a million keys        leaky
//	100 in any hour, 5,000 a day from midnight            window
//	these limits on many machines, through a Redis        sluiceredis
//	metrics, logs, a page; to test a client               observe; sluicetest
//
// Calls start in the order in which they came; none overtakes, not even TryAcquire. A canceled wait
// takes nothing. One that cannot end before the deadline fails immediately, with a
// [*limits.WaitError]. Package limits has the errors of limits and gates. A negative n panics; an
// impossible value in a Config or a Set method is an error and changes nothing. Everything works in
// a testing/synctest bubble, with exact times, and belongs to the bubble in which it was made.
//
// docs/429.md starts from the line in your log, docs/recipes.md from your client, docs/concepts.md
// with the words. docs/guarantees.md has the guarantees, docs/defaults.md the defaults.
package sluice
