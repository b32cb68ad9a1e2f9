// Package observe shows what gates do: in a log, in /debug/vars, and to whatever
// else one gives them.
//
//	you want                                            use
//	a line in the log when a gate is paused or refuses  NewLogger; its Observe as Config.Observer
//	what gates do now, at /debug/vars                   expvar.Publish with Vars
//	Prometheus metrics                                  observe/prometheus, a module of its own
//	OpenTelemetry metrics                               observe/otel, a module of its own
//	two of them                                         All
//	something else                                      sluice.Observer, and Table for metrics by name
//
// There are two sources. An observer is told each event of a gate, as it happens,
// at a price for each call. [sluice.Gate.Stats], which Vars shows, costs calls
// nothing, but is forgotten with a gate that a [sluice.Keyed] forgets.
package observe

import (
	"iter"

	"github.com/sluice-go/sluice"
)

// All returns an observer that tells each of observers, in order. Those that are
// nil are left out; if none is left it returns nil, which is no observer. If one
// panics those behind it are not told.
func All(observers ...sluice.Observer) sluice.Observer {
	var all []sluice.Observer
	for _, o := range observers {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(e sluice.Event) {
		for _, observe := range all {
			observe(e)
		}
	}
}

// Gates returns the Stats of gates, as they are when they are asked for.
func Gates(gates ...*sluice.Gate) iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		for _, g := range gates {
			if !yield(g.Stats()) {
				return
			}
		}
	}
}

// Keyed returns the Stats of the gates that gates has when they are asked for, in
// no order.
func Keyed[K comparable](gates *sluice.Keyed[K]) iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		gates.Stats(func(_ K, s sluice.Stats) bool { return yield(s) })
	}
}
