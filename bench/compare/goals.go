package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// A goal is something that should be true of sluice in one benchmark.
type goal struct {
	works string // Work or Work/case, separated by spaces
	cpus  []int
	check
}

// A check says what is so and whether that is enough. ok is false if it was
// not measured.
type check interface {
	of(s *results.Speed, k results.Key) (v verdict, ok bool)
}

type verdict struct {
	wanted, got string
	reached     bool
}

// times is: at most most × as long as the other library, or less than that.
type times struct {
	other string
	most  float64
	less  bool
}

func (t times) of(s *results.Speed, k results.Key) (verdict, bool) {
	low, mid, high, ok := s.Ratio(k, t.other)
	v := verdict{
		wanted:  fmt.Sprintf("≤ %.4g × %s", t.most, t.other),
		got:     fmt.Sprintf("%.2f × (%.2f–%.2f)", mid, low, high),
		reached: mid <= t.most,
	}
	if t.less {
		v.wanted, v.reached = fmt.Sprintf("< %.4g × %s", t.most, t.other), mid < t.most
		if t.most == 1 {
			v.wanted = "faster than " + t.other
		}
	}
	return v, ok
}

// allocates is: at most so many allocations per operation, on average and
// beyond those of the harness.
type allocates struct {
	most    float64
	harness string
}

// few is what an allocation or two at the beginning add to the average.
const few = 0.02

func (a allocates) of(s *results.Speed, k results.Key) (verdict, bool) {
	n, ok := s.Allocs(k)
	if a.harness != "" {
		k.Library = a.harness
		own, known := s.Allocs(k)
		n, ok = n-own, ok && known
	}
	return verdict{
		wanted:  fmt.Sprintf("≤ %.4g allocations", a.most),
		got:     fmt.Sprintf("%.2f", n),
		reached: n <= a.most+few,
	}, ok
}

// atMost is: a metric of the benchmark's own is not above most.
type atMost struct {
	unit string
	most float64
}

func (m atMost) of(s *results.Speed, k results.Key) (verdict, bool) {
	n, ok := s.Median(k, m.unit)
	return verdict{
		wanted:  fmt.Sprintf("≤ %.4g %s", m.most, m.unit),
		got:     fmt.Sprintf("%.4g", n),
		reached: n <= m.most,
	}, ok
}

// beyond is: a metric of the benchmark's own is at most that much above the
// other library's.
type beyond struct {
	other string
	unit  string
	most  float64
}

func (d beyond) of(s *results.Speed, k results.Key) (verdict, bool) {
	n, ok := s.Median(k, d.unit)
	k.Library = d.other
	other, known := s.Median(k, d.unit)
	return verdict{
		wanted:  fmt.Sprintf("≤ %.4g %s beyond %s", d.most, d.unit, d.other),
		got:     fmt.Sprintf("%.4g", n-other),
		reached: n-other <= d.most,
	}, ok && known
}

// grows is: at most most × what the first case of the work takes, for a library of ours.
type grows struct {
	library, first string
	most           float64
}

func (g grows) of(s *results.Speed, k results.Key) (verdict, bool) {
	k.Library = g.library
	n, ok := s.Median(k, "ns/op")
	k.Case = g.first
	first, known := s.Median(k, "ns/op")
	return verdict{
		wanted:  fmt.Sprintf("%s ≤ %.4g × its cost with %s", g.library, g.most, g.first),
		got:     fmt.Sprintf("%.2f ×", n/first),
		reached: n <= g.most*first,
	}, ok && known
}

var (
	one  = []int{1}
	both = []int{1, 2}
)

const (
	asks    = "PacerTry/granted PacerTry/refused LeakyTake/granted LeakyTake/refused"
	crowds  = "SemaphoreGrow/4096 SemaphoreGrow/16384"
	changes = "SetRateGrow/100000 SetConcurrencyGrow/100000 PauseUntilGrow/100000 SettleGrow/100000"
)

// goals are those set before anything was measured. A semaphore pair on two
// CPUs is not uncontended, and so shown but not judged.
var goals = []goal{
	{asks, both, times{other: "floor", most: 1.35}},
	{asks, both, times{other: "xtime", most: 0.5}},
	{asks, both, times{other: "uber", most: 1, less: true}},
	{asks, both, times{other: "failsafe", most: 1, less: true}},
	{asks, both, allocates{most: 0}},
	{"PacerReserve/now", both, times{other: "floor", most: 1.6}},
	{"PacerReserve/now", both, allocates{most: 0}},
	{"PacerReserve/later", both, times{other: "xtime", most: 1, less: true}},
	{"PacerReserve/later", both, allocates{most: 1}},
	{"SemaphorePair", one, times{other: "floor", most: 1.35}},
	{"SemaphorePair", one, times{other: "xsync", most: 1, less: true}},
	{"SemaphorePair", one, times{other: "chan", most: 1, less: true}},
	{"SemaphorePair", both, allocates{most: 0}},
	{"SemaphoreContended", both, times{other: "chan", most: 1.3}},
	{"SemaphoreContended", both, times{other: "xsync", most: 0.6, less: true}},
	{"SemaphoreContended", both, allocates{most: 0}},
	{crowds, both, times{other: "chan", most: 2}},
	{"SemaphoreGrowCancel/4096 SemaphoreGrowCancel/16384", both, times{other: "chan+ctx", most: 1, less: true}},
	{"SemaphoreMixed", both, times{other: "xsync", most: 1, less: true}},
	{"SemaphoreMixed", both, allocates{most: 1, harness: "harness"}},
	{"GateDo", both, times{other: "parts", most: 1.3}},
	{"GateDo", both, allocates{most: 1}},
	{"GateParent", both, times{other: "plain", most: 2}},
	{"GateParent", both, allocates{most: 0}},
	{"KeyedTake", both, times{other: "shardmap", most: 1.2}},
	{"KeyedTake", both, times{other: "syncmap+xtime", most: 0.4}},
	{"KeyedTake", both, atMost{"B/key", 64}},
	{changes, both, grows{"sluice", "1", 2}},
	{changes, both, grows{"deadlines", "1", 2}},
	{"TransportBare", both, beyond{other: "client", unit: "ns/op", most: 500}},
	{"TransportBare", both, times{other: "failsafehttp", most: 1, less: true}},
	{"Parse/family", one, atMost{"ns/op", 600}},
	{"Parse/family", both, allocates{most: 1}},
	{"Herd", both, atMost{"timers", 1}},
	{"Herd", both, beyond{other: "parked", unit: "B/waiter", most: 300}},
}

// judge calls found with each goal that was measured, by work.
func judge(s *results.Speed, found func(k results.Key, v verdict)) {
	for _, k := range s.Keys() {
		if k.Library != "sluice" {
			continue
		}
		for _, g := range goals {
			for _, work := range strings.Fields(g.works) {
				if work != k.Name() || !slices.Contains(g.cpus, k.CPUs) {
					continue
				}
				if v, ok := g.of(s, k); ok {
					found(k, v)
				}
			}
		}
	}
}
