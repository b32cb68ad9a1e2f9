package proxy

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// mostGates is the largest number of gates with separate metrics; the others are added up as "other":
// callers can invent names of models.
const mostGates = 100

// counts are the counters of the proxy.
type counts struct {
	mu        sync.Mutex
	responses map[responseKey]uint64
	waits     map[string]*waits // by route
	shown     map[string]bool   // gates with separate metrics
}

// A responseKey is a kind of response: of a route, by the upstream or by the proxy.
type responseKey struct {
	route, by string
	status    int
}

type waits struct {
	calls uint64
	time  time.Duration
}

// response counts a response to a call.
func (n *counts) response(c *call, by string, status int) {
	waited, _ := c.wasHeldBy()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.responses == nil {
		n.responses, n.waits = make(map[responseKey]uint64), make(map[string]*waits)
	}
	n.responses[responseKey{c.route.name, by, status}]++
	w := n.waits[c.route.name]
	if w == nil {
		w = new(waits)
		n.waits[c.route.name] = w
	}
	w.calls++
	w.time += waited
}

// gates yields the Stats of all gates.
func (p *proxy) gates() iter.Seq[sluice.Stats] {
	return func(yield func(sluice.Stats) bool) {
		for _, u := range p.set.Load().table.upstreams {
			for s := range u.transport.Gates() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// label is the label of a gate.
func (n *counts) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shown[name] {
		return name
	}
	if len(n.shown) >= mostGates {
		return "other"
	}
	if n.shown == nil {
		n.shown = make(map[string]bool)
	}
	n.shown[name] = true
	return name
}

// writeMetrics writes metrics in the text format of Prometheus: the state of gates as in
// [observe.Metrics], and those of the proxy.
func (p *proxy) writeMetrics(w io.Writer) {
	totals := observe.Sum(p.gates(), p.counts.label)
	names := slices.Sorted(maps.Keys(totals))
	for _, m := range observe.Metrics() {
		if m.Totals == nil {
			continue
		}
		kind := m.Kind
		if kind == "sum" {
			kind = "gauge"
		}
		begin(w, "sluice_"+m.Prometheus, kind, m.Help)
		for _, name := range names {
			m.Totals(totals[name], func(label string, value float64) {
				labels := []string{"gate", name}
				if m.Label != "" {
					labels = append(labels, m.Label, label)
				}
				sample(w, "sluice_"+m.Prometheus, value, labels...)
			})
		}
	}
	begin(w, "sluice_proxy_calls", "gauge", "Calls under way.")
	sample(w, "sluice_proxy_calls", float64(p.calls.Load()))
	begin(w, "sluice_proxy_calls_waiting", "gauge", "Calls that wait to be sent, but for those that are sent again.")
	sample(w, "sluice_proxy_calls_waiting", float64(p.turns.waiting()))

	n := &p.counts
	n.mu.Lock()
	defer n.mu.Unlock()
	begin(w, "sluice_proxy_responses_total", "counter", "Responses to callers, of the upstream or of the proxy itself.")
	for _, k := range slices.SortedFunc(maps.Keys(n.responses), func(a, b responseKey) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}) {
		sample(w, "sluice_proxy_responses_total", float64(n.responses[k]), "route", k.route, "by", k.by, "code", strconv.Itoa(k.status))
	}
	begin(w, "sluice_proxy_wait_seconds", "summary", "Time that calls waited.")
	for _, route := range slices.Sorted(maps.Keys(n.waits)) {
		sample(w, "sluice_proxy_wait_seconds_sum", n.waits[route].time.Seconds(), "route", route)
		sample(w, "sluice_proxy_wait_seconds_count", float64(n.waits[route].calls), "route", route)
	}
}

func begin(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help), name, kind)
}

// inLabel escapes the value of a label.
var inLabel = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

func sample(w io.Writer, name string, value float64, labels ...string) {
	var text strings.Builder
	for i := 0; i < len(labels); i += 2 {
		fmt.Fprintf(&text, `,%s="%s"`, labels[i], inLabel.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")))
	}
	if text.Len() > 0 {
		name += "{" + text.String()[1:] + "}"
	}
	fmt.Fprintf(w, "%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
}
