// Package sluiceredis keeps the limits of package sluice in a Redis, so that many
// machines share them: the same meters, windows, pacer and semaphore, with the
// same verbs, as limits of a sluice.Gate or on their own.
//
//	you want                                                use
//	what package leaky does, for all machines               Store.Leaky
//	the same, most of it without a round trip               Leaky.Blocks
//	CL.THROTTLE of redis-cell, without the module           Store.Throttle
//	no more than 100 in any hour, exactly                   Store.Log
//	5,000 a day, or per window from the first call          Store.Fixed
//	one call each 10 ms, whichever machine it is            Store.Pacer
//	at most 8 calls in flight on all machines together      Store.Semaphore
//	several of them for one call, all or none               a gate, or Store.Together
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
// Package rueidisclient has the same for a client of rueidis, and is a module of its
// own.
//
// In a gate, the limits of this machine come first and what is asked over the
// network last. Limits that are called alike up to a slash, and have the same key,
// are decided in one script, all or none; what any other one refuses, they are
// given back:
//
//	gate, err := sluice.New(sluice.Config{
//		Permits: semaphore,
//		Quotas: []sluice.Quota{
//			{Name: "second", Meter: second.On("acct42")}, // of orders/second
//			{Name: "day", Meter: day.On("acct42")},       // of orders/day
//		},
//	})
//
// # What is exact
//
// Each decision is made by one script, which runs alone and reads the server's
// clock: the clocks of the machines do not matter, and however many ask at once,
// what is granted is what one caller after the other would have got. Callers of
// one key on one machine who come while a call is on its way share the next one,
// and nothing is taken ahead for them, unless they ask for it by [Bucket.Blocks]
// or [PacerConfig].Ahead: what that costs is said there. Calls for many keys share
// pipelines, and scripts if they are for leaky buckets. Numbers are integers;
// times are exact to the microsecond of the server's clock.
//
// Machines may have different quotas for one [Bucket], as in a deploy that replaces
// them one by one. Together they let through no more than the laxest of two quotas
// allows; [Bucket.SetQuota] has the bound for more of them.
//
// # What is not
//
// A call that is sent and not answered has an unknown outcome. It is not sent
// again: it counts as refused here, matches [ErrAmbiguous], and what it took, if
// it arrived, is missing until it has leaked. So errors of the network make for
// fewer calls than allowed, never for more.
//
// A server that loses what it was told, because it was restarted without a log or
// because a replica took over that was behind, begins anew, and lets a burst
// through that it has let through before, unless the mode is strict. Run one that
// writes a log (appendonly yes), does not evict (maxmemory-policy noeviction), and
// is nobody's cache.
//
// # When the server is away
//
// If a server cannot be reached, or refuses the credentials, three times in a row, it
// counts as away. No call asks it for a while, which grows to 1 s, and then one call
// does. Meanwhile [Config.Away] or the limit's own [OutagePolicy] decides at once:
//
//	FailClosed  refused, with an AwayError; this is the default
//	FailOpen    let through, and not counted
//	LocalShare  by the limit ÷ live instances, in this process
//
// The same policy decides a call that the server did not answer in time. Semaphores
// are always closed. With LocalShare and i of M instances cut off, all instances
// together are granted at most (1 + i/M) times what the limit allows, in any window,
// and none has a fresh burst when its server goes away or comes back. M does not
// count instances that started less than 3 s before the first was cut off, or later;
// they have no share at first, see [Config.Instances]. [Config.OnEvent] reports each
// change, and [Store.Stats] shows it.
//
// Without a Redis at all the limits are those of this process: see [InProcess].
//
// What a lease can and cannot promise is said at [Semaphore].
//
// # Strict mode
//
// With [Config.Strict] a server that may have lost something grants nothing that
// it may have granted before. Its data has a history, with an id that is another
// one after each restart and each promotion of a replica. The first script that
// finds another id than the one last noted, even if it only looks, begins an
// epoch, by the server's clock, and from then on
//
//   - a leaky bucket is no emptier than if it had been full at the epoch: it lets
//     go what leaks, at its rate;
//   - a sliding window is full until one window after the epoch; a fixed one until
//     the aligned window ends in which that was, or one anchored then would;
//   - a pacer has its next free slot two horizons after the epoch, as slots may
//     have been given so far ahead;
//   - a semaphore lends nothing for a lease after the epoch, while holders renew
//     and thereby keep what they hold, with its weight and token.
//
// This holds whether a key survived or not, as one that did may be older than what
// was granted last. It costs at most that wait, once for each epoch, and not only
// when something was lost: a failover in good order cannot be told from a bad one,
// nor can the first use of a server from one that lost all. [Store.Vouch] is for
// who knows better. On a cluster each slot has an epoch, which begins when one of
// its keys is asked for first.
//
// What it cannot do: two servers that both believe to be the primary each grant
// their rate, so set min-replicas-to-write; a server that evicts keys loses them
// without a trace; of what was taken beyond a capacity by a correction, and of a
// pause that only clients knew who have ended, nothing is left; and tokens rise
// over those that nobody renewed only if the clocks of the servers differ by less
// than a lease. The mode needs INFO, which users with few rights may have to be
// granted, and costs each script about 5 µs more. miniredis cannot be asked
// strictly: the error is [ErrNoHistory].
//
// # Keys
//
// A key is prefix:kind:{name|key}, where braces and bars in name and key are
// escaped. A text of more than 128 bytes is replaced by %h and a hash; no shorter text
// is stored in that form. A limit may be
// called family/limit: its key is then prefix:kind:{family|key}:limit, and so the
// limits of one family and key are on one server and can be decided together, see
// [Store.Together]. It expires when what it says does not count any more; only a
// semaphore's last token stays, and in strict mode the epoch: prefix:epoch1 or, on a
// cluster, prefix:epoch1:{tag}. A key that holds something else is answered by a
// [*DataError] and left as it is.
package sluiceredis
