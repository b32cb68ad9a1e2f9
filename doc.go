// Package sluice decides when a call may leave: it lets worker pools, crawlers
// and batch jobs call other people's rate-limited APIs as fast as those allow
// and never faster.
//
// Which package for which need:
//
//	you want                                              use
//	at most 8 calls in flight                             semaphore.NewWeighted(8)
//	one call each 100 ms, callers wait their turn         pacer.New(10, time.Second)
//	both, a shared pause after a 429, one place to ask    sluice.New (a Gate)
//	to call, and to retry what fails, through a gate      sluice.Call, sluice.Do
//	a gate for each host, and one for all of them         sluice.NewKeyed, Config.Parent
//	to be told at once whether a call is within its limit leaky.New: a bucket that leaks, and refuses what does not fit
//	no more than 100 in any hour, exactly                 window.NewLog
//	5,000 a day, from midnight                            window.NewCalendar
//	one of these three for each of a million keys         leaky.NewKeyed, window.NewKeyedLog, window.NewKeyedCounter
//	to wait, in order, for one of them                    sluice.Block; as one limit of a gate: Config.Quotas
//	to read "300/20s" from a flag                         sluice.ParseRate
//
// A semaphore and a pacer are often confused. A semaphore of 2 lets two calls
// go, and two more when those are done, however fast that is. A rate of 2/s
// lets one go each half second, however long they take. An API that says
// "2 requests per second" means the second; one that says "2 concurrent
// requests" the first; most mean both, which is what a [Gate] is for.
//
// # A gate
//
// One gate stands for one limit of one API, usually one per host and account.
// Share it: a limit that two gates keep apart is kept twice.
//
//	gate, err := sluice.New(sluice.Config{
//		Name:        "example.com",
//		Concurrency: 8,
//		Rate:        sluice.Rate{Count: 100, Per: time.Second},
//	})
//	…
//	user, err := sluice.Call(ctx, gate, sluice.Policy{}, func(ctx context.Context) (*User, error) {
//		return fetchUser(ctx, id)
//	})
//
// # Rules that hold everywhere
//
// Blocking verbs take a context first and obey it: a context that is done
// fails before anything is taken, and a wait that is cancelled gives
// everything back. A wait that cannot end before the deadline fails at once
// with a [*WaitError] that says how long it would have been. Waiting is first
// come, first served; nothing overtakes, not even TryAcquire.
//
// A negative n panics; n = 0 takes nothing and is granted at once, also when
// others wait. An n larger than a limit that must be given back in full is
// [ErrTooLarge], at once; a pacer knows no such thing. Numbers given by
// position panic if they are impossible; those in a Config or given to a Set
// method are errors and change nothing. Durations beyond 292 years are never.
//
// The clock is read where a decision is made, under its lock, and only its
// monotonic part counts; times that callers give are converted at the call.
// Everything works in a testing/synctest bubble, with
// exact instants; there is no clock to inject.
package sluice
