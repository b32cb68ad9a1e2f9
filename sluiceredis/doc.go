// Package sluiceredis keeps the limits of package sluice in a Redis, so that many
// machines share them: the same meters, windows, pacer and semaphore, with the
// same verbs, as limits of a sluice.Gate or on their own.
//
//	you want                                                use
//	what package leaky does, for all machines               Store.Leaky
//	CL.THROTTLE of redis-cell, without the module           Store.Throttle
//	no more than 100 in any hour, exactly                   Store.Log
//	5,000 a day, or per window from the first call          Store.Fixed
//	one call each 10 ms, whichever machine it is            Store.Pacer
//	at most 8 calls in flight on all machines together      Store.Semaphore
//
// It needs a Redis (5 or later; tested with 7.0) or a Valkey, single, with Sentinel
// or as a Cluster, and a client of go-redis that the program has anyway:
//
//	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	adapter, err := sluiceredis.NewGoRedis(client)
//	…
//	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
//	…
//	orders, err := store.Leaky("orders", leaky.Quota{Capacity: 16, Count: 30, Per: time.Minute})
//	…
//	res, err := orders.Take(ctx, user, 1)
//
// In a gate, the limits of this machine come first and what is asked over the
// network last; what one of them refuses, the others are given back:
//
//	gate, err := sluice.New(sluice.Config{
//		Permits: semaphore,
//		Quotas:  []sluice.Quota{{Name: "shared", Meter: orders.On("acct42")}},
//	})
//
// # What is exact
//
// Each decision is one script, which runs alone and reads the server's clock: the
// clocks of the machines do not matter, and however many ask at once, what is
// granted is what one caller after the other would have got. Callers of one key
// on one machine who come while a call is on its way share the next one, and
// nothing is taken ahead for them. Numbers are integers; times are exact to the
// microsecond of the server's clock.
//
// # What is not
//
// A call that is sent and not answered has an unknown outcome. It is not sent
// again: it counts as refused here, matches [ErrAmbiguous], and what it took, if
// it arrived, is missing until it has leaked. So errors of the network make for
// fewer calls than allowed, never for more.
//
// When the server cannot be asked the error says so, and the caller is not let
// through: every limit fails closed. A server that loses what it was told, because
// it was restarted without a log or because a replica took over that was behind,
// begins anew, and lets a burst through that it has let through before. Run one
// that writes a log (appendonly yes), does not evict (maxmemory-policy
// noeviction), and is nobody's cache.
//
// What a lease can and cannot promise is said at [Semaphore].
//
// # Keys
//
// A key is prefix:kind:{name|key}, where braces and bars in name and key are
// escaped and texts of more than 128 bytes replaced by a hash. It expires when
// what it says does not count any more; only a semaphore's last token stays. A key
// that holds something else is answered by a [*DataError] and left as it is.
package sluiceredis
