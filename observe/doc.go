// Package observe shows the work of gates.
//
//	you want                                            use
//	log lines when a gate is paused, rejects, learns    NewLogger, as Config.Observer
//	a web page of all gates, live                       the module observe/live
//	the state of gates at /debug/vars                   expvar.Publish with Vars
//	Prometheus metrics                                  the module observe/prometheus
//	OpenTelemetry metrics                               the module observe/otel
//	several observers                                   Multi
//	another exporter                                    Metrics, Sum, and ByName for metrics by name
//
// For the gates of a sluicehttp.Transport, see the example of Vars.
//
// An observer receives every event of a gate, which costs each call some time.
// [sluice.Gate.Stats], which Vars shows, costs calls nothing, but is lost when a
// [sluice.Keyed] evicts the gate.
package observe

import (
	"iter"

	"github.com/sluice-go/sluice"
)

// Multi returns an observer that passes each event to observers, in order. Nil observers are left
// out; if none remains, Multi returns nil. If one panics, the event does not reach those after it.
func Multi(observers ...func(sluice.Event)) func(sluice.Event) {
	var all []func(sluice.Event)
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

// Gates returns a sequence of the current Stats of gates.
func Gates(gates ...*sluice.Gate) iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		for _, g := range gates {
			if !yield(g.Stats()) {
				return
			}
		}
	}
}

// Keyed returns a sequence of the current Stats of all gates of a [sluice.Keyed], in no
// particular order.
func Keyed[K comparable](gates *sluice.Keyed[K]) iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		gates.Stats(func(_ K, s sluice.Stats) bool { return yield(s) })
	}
}
