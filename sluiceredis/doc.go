// Package sluiceredis keeps the limits of package sluice in a Redis, so that many
// machines share them, as limits of a sluice.Gate or on their own.
//
//	you want                                                use
//	a burst of calls, and then a rate                       Store.Bucket
//	at most 100 in any hour, exactly                        Store.Sliding
//	5,000 a day, or per window from the first call          Store.Fixed
//	one call every 10 ms, from whichever machine            Store.Pacer
//	at most 8 calls in flight on all machines               Store.Semaphore
//	several of them for one call, all or none               a gate, or Join
//	a limit that is not known, found by all processes       sluice.Adaptive.Peers, see Store.Exchange
//
// It needs a Redis (5 or later; tested with 7.0) or a Valkey, as a single server, with
// Sentinel or as a Cluster, and a client of go-redis:
//
//	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	adapter, err := sluiceredis.NewGoRedis(client)
//	…
//	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
//	…
//	orders, err := store.Bucket("orders", limits.Rate{Count: 30, Per: time.Minute, Burst: 16})
//	…
//	res, err := orders.Take(ctx, user, 1)
//
// Package rueidisclient, its own module, is the same for rueidis.
//
// In a gate, limits of this machine are asked first and those of a Redis last. Limits
// whose names are the same up to the last slash, and whose keys are the same, are
// decided in one script, all or none:
//
//	gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{
//		{Name: "second", Limiter: second.On("acct42")}, // of orders/second
//		{Name: "day", Limiter: day.On("acct42")},       // of orders/day
//	}})
//
// # Exact guarantees
//
// Each decision is made by one script, which runs alone and reads the server's clock:
// the clocks of the machines do not matter. Callers of one key on one machine that come
// while a script is under way share the next one. It decides them in order, as if each had
// come alone. Nothing is taken in advance, except by [PacerConfig].Prefetch. Numbers are
// integers; times are exact to the microsecond of the server's clock.
//
// Machines may have different rates and windows for one name, as in a rolling deploy:
// see [Bucket.SetRate], [Sliding] and [Store.Fixed].
//
// # Approximate behavior
//
// If a script was sent and no reply came, it is unknown whether it ran. It is not sent again: the
// call is rejected with an error that matches [ErrAmbiguous], and the units the script took, if it
// ran, are treated as used. So network errors let fewer calls start than the limit, never more.
//
// A server that loses its data, because it was restarted without a log or because a
// replica that was behind took over, allows a burst once more, unless the mode is strict.
// Run it with appendonly yes and maxmemory-policy noeviction.
//
// # Outages
//
// If a server cannot be reached, or rejects the credentials, three times in a row, it is
// unavailable: no script is sent to it for a while, which grows to 1 s, and then one script probes
// it. Until then [Config].OnOutage, or the limit's own [OutagePolicy], decides:
//
//	FailClosed  refused, with ErrOutage; this is the default
//	FailOpen    allowed, and not counted
//	LocalShare  in this process, by the limit divided by the number of instances
//
// The same policy decides a call for which the server did not reply in time. A semaphore
// always rejects. With LocalShare and i of M instances cut off, all instances together
// allow at most (1 + i/M) times as much as the limit, in any window; none has a fresh
// burst when its server becomes unavailable or comes back. M does not count instances that
// started less than 3 s before the first was cut off, or later: they have no share at
// first, see [Config].Instances. [Store.Stats] shows the state.
//
// Without a Redis, [InProcess] keeps the limits in this process.
//
// # Strict mode
//
// With [Config].Strict a server that may have lost data allows nothing that it may have
// allowed before. The data of a server has a history, with an id that changes with each
// restart and each promotion of a replica. The first script that finds another id than
// the one last noted begins an epoch, by the server's clock. Afterwards
//
//   - a bucket is no emptier than if it had been full at the epoch;
//   - a sliding window is full until one window after the epoch; a fixed one until the
//     aligned window of the epoch ends, or one anchored at the epoch would;
//   - the next free slot of a pacer is two horizons after the epoch;
//   - a semaphore leases nothing for a lease after the epoch, while holders renew and so keep their permits.
//
// This holds whether a key survived or not. The wait comes once for each epoch, also if
// nothing was lost, and at the first use of a server. [Store.ConfirmIntact] ends it, if an operator
// is certain that nothing was lost. On a cluster each hash slot has an epoch.
//
// Strict mode cannot help if two servers both act as the primary (set
// min-replicas-to-write), or if a server evicts keys. It needs the command INFO
// replication, and costs each script about 5 µs.
//
// # Keys
//
// A key is prefix:kind:{name|key}, where braces and bars in name and key are escaped. A string of
// more than 128 bytes is replaced by %h and a hash. A limit called family/limit has the key
// prefix:kind:{family|key}:limit, so all limits of one family and key are on one server. A key
// expires when it no longer applies, except a semaphore's last token and, in strict mode, the
// epoch: prefix:epoch1 or, on a cluster, prefix:epoch1:{tag}.
package sluiceredis
