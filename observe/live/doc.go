// Package live shows the gates of a running program on a web page:
//
//	http.Handle("/debug/gates", live.New(live.FromGates(gate)))
//
// or live.New(live.FromTransport(t)), live.FromKeyed(k), or several of them. The page has a row for each gate, the busiest on top, with its rate, the calls that wait, are in
// flight or are rejected, and one sentence about why the gate is as slow as it is
// ([sluice.Stats.Why]) and how to change that. Its details are the remaining quota by its server,
// the gate's estimate of the limit, pauses and their reason, retries, and a chart of the last
// minute. It is updated once a second, works without JavaScript (reload it then), and loads nothing
// from elsewhere.
//
// The page shows the names of gates and the reasons of pauses, but of an address in them only host
// and path, and no token=… or key=…. Whoever can open it sees these: serve it where /debug/pprof
// would be served, not to the public.
//
// It is read-only unless [Handler].Token is set. A change that is made on the page can be undone
// there.
//
// # Cost
//
// Without viewers nothing runs. Each viewer gets at most 100 rows. A viewer that reads too slowly
// skips samples, and no viewer delays another, or a gate. 1,000 gates and 10 viewers take less than
// 1 % of a core. A gate takes about 3 kB until the last viewer leaves; up to 20,000 gates are
// shown.
package live
