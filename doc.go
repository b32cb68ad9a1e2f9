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
//	all of that for an http.Client                        sluicehttp.New, as its Transport
//	all of that for a long list, and to resume it         batch.Map, batch.ForEach
//	to know what a server says about its limits           ratelimit.Parse, in sluicehttp/ratelimit
//	to try a client on a server with limits and faults    sluicetest.NewServer
//	a gate for each host, and one for all of them         sluice.NewKeyed, Config.Parent
//	to be told at once whether a call is within its limit leaky.New: a bucket that leaks, and refuses what does not fit
//	no more than 100 in any hour, exactly                 window.NewLog
//	5,000 a day, from midnight                            window.NewCalendar
//	one of these three for each of a million keys         leaky.NewKeyed, window.NewKeyedLog, window.NewKeyedCounter
//	to wait, in order, for one of them                    sluice.Block; as one limit of a gate: Config.Quotas
//	to know what a gate does now, and did                 Gate.Stats; observe.Vars, at /debug/vars
//	to be told, in a log or as metrics, when it happens   Config.Observer; observe.NewLog, observe/prometheus, observe/otel
//	these limits on many machines, through a Redis        sluiceredis, a module of its own
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
// What n means is in the table below. An n larger than a limit that must be
// given back in full is [ErrTooLarge]; a pacer knows no such thing, it lets the
// call leave and the next one pay. Durations beyond 292 years are never.
//
// # Bad input
//
// This holds in every package; a test reads the table and tries each cell. "New"
// stands for numbers given by position, as in leaky.New(16, 30, time.Minute),
// and with a call, as to TakeQuota: somebody wrote or checked them, and a mistake
// is one in the program. "Set" stands for those of a Config or Quota and of a Set
// method, which may come from a file: a mistake is an error, and changes nothing.
//
//	mistake              semaphore    pacer      leaky        window       Gate         Block        Keyed
//	n < 0                panic        panic      panic        panic        panic        panic        panic
//	nil context          panic        panic      panic        panic        panic        panic        panic
//	context done         ctx.Err()    ctx.Err()  ctx.Err()    ctx.Err()    ctx.Err()    ctx.Err()    ctx.Err()
//	n = 0                granted      granted    granted      granted      granted      granted      granted
//	n > limit            ErrTooLarge  granted    ErrTooLarge  ErrTooLarge  ErrTooLarge  ErrTooLarge  ErrTooLarge
//	debt > 292 years     -            never      never        -            never        never        never
//	limit < 0, New       panic        -          panic        panic        -            -            panic
//	limit < 0, Set       error        -          error        error        error        -            error
//	limit = 0, New       ErrTooLarge  -          panic        panic        -            -            panic
//	limit = 0, Set       ErrTooLarge  -          error        error        no limit     -            error
//	count, per ≤ 0, New  -            panic      panic        panic        -            -            panic
//	count, per ≤ 0, Set  -            error      error        error        error        -            error
//	too fast, New        -            panic      panic        -            -            -            panic
//	too fast, Set        -            error      error        -            error        -            error
//	too long, New        -            -          panic        -            -            -            panic
//	too long, Set        -            error      error        -            error        -            error
//	NaN, infinite        -            error      -            -            -            -            -
//	10⁹ keys             -            -          -            -            -            -            error
//	one key too many     -            -          -            -            -            -            ErrTooManyKeys
//	nil limit, function  -            -          -            -            error        panic        panic
//	released twice       panic        -          -            -            no effect    -            -
//	closed twice         -            -          -            -            no effect    -            -
//	not made by New      panic        panic      panic        refuses      panic        panic        panic
//
// In words:
//   - The panic for n < 0 comes first, whatever the context. Panics for numbers
//     say which package it was. After any panic nothing is taken or changed.
//   - Of a context that is done the error comes back bare, before anybody is
//     asked. n = 0 takes nothing and does not queue.
//   - n > limit is known at once, but by a quota or behind Block only when the
//     call is first in the queue. TryAcquire says false.
//   - A limit of 0 is legal for a semaphore, as in x/sync: all is too large until it is
//     raised. In a Config of a gate, and for SetConcurrency, 0 means none, and a
//     rate of 0 per 0 as well.
//   - Too fast is more than one per nanosecond, in leaky more than 10⁶ per second.
//     Too long is a bucket or burst of more than 146 years. A debt may be longer.
//   - MaxKeys may be up to 2²⁹; 0 means that. Room is made when a key comes, not
//     before.
//   - A negative Burst, BurstTime, WarmUp, MaxWaiting or MaxKeys is an error, and
//     so is what the doc of the Config excludes. Other durations, and numbers of
//     a [Policy], say there what negative means. A backoff that cannot be panics.
//   - A Permit is released and settled once, later calls do nothing. A semaphore
//     keeps no record of permits: to release more than is out panics.
//
// # Time
//
// The clock is read where a decision is made, under its lock, and only its
// monotonic part counts; times that callers give are converted at the call.
// Everything works in a testing/synctest bubble, with
// exact instants; there is no clock to inject.
package sluice
