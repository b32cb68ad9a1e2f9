// Package sluiceredis keeps the limits of package sluice in a Redis, so that many machines share
// them, as limits of a sluice.Gate or on their own.
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
// It needs a Redis (5 or later) or a Valkey, as a single server, with Sentinel or as a Cluster, and a
// client of go-redis or, with package rueidisclient, its own module, of rueidis:
//
//	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	adapter, err := sluiceredis.NewGoRedis(client)
//	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
//	orders, err := store.Bucket("orders", limits.Rate{Count: 30, Per: time.Minute, Burst: 16})
//	res, err := orders.Take(ctx, user, 1)
//
// In a gate, limits of a store whose names are the same up to the last slash, such as orders/second
// and orders/day, and whose keys are the same, are decided in one script, all or none.
//
// # Guarantees
//
// Each decision is made by one script and the server's clock, exact to a microsecond. Nothing is
// taken in advance, except for calls that wait in a gate and by PacerConfig.Prefetch.
//
// A script that got no reply is not sent again: the call is rejected, see [ErrAmbiguous], and its
// units are treated as used. Network errors never let more calls start than the limit.
//
// A server that loses its data, at a restart or a failover, allows a burst once more, unless
// [Config].Strict is set. Run it with appendonly yes and maxmemory-policy noeviction.
//
// # Outages
//
// A server that fails three times in a row is unavailable: only a probe is sent to it now and then.
// Until one succeeds, [Config].OnOutage or the limit's own [OutagePolicy] applies.
package sluiceredis
