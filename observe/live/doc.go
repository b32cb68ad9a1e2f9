// Package live shows the gates of a running program on a web page:
//
//	http.Handle("/debug/gates", live.New(live.FromGates(gate)))
//
// or live.New(live.FromTransport(t)), live.FromKeyed(k), or several of them. The page has a row for
// each gate, the busiest on top, with its rate, its calls, and one sentence about why the gate is as
// slow as it is ([sluice.Stats.Why]) and how to change that. Its details are the remaining quota by
// its server, the gate's estimate of the limit, pauses, retries, and a chart of the last minute. It
// is updated once a second, works without JavaScript, and loads nothing from elsewhere.
//
// The page shows the names of gates and the reasons of pauses, but of a URL in them only host and
// path, and no token=… or key=…. Serve it where /debug/pprof would be served, not to the public.
//
// It is read-only unless [Handler].Token is set. A change can be undone there.
//
// # Cost
//
// Without viewers nothing runs. A viewer that reads too slowly skips samples, and no viewer delays
// another, or a gate. 1,000 gates and 10 viewers take less than 1 % of a core. A gate takes about
// 3 kB until the last viewer leaves. At most 20,000 gates are shown, and 100 to a viewer.
package live
