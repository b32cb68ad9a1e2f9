package live

import (
	"cmp"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// of returns a sequence of the Stats that next returns.
func of(next func() []sluice.Stats) iter.Seq[Gate] {
	return func(yield func(Gate) bool) {
		for _, s := range next() {
			if !yield(Gate{Stats: s}) {
				return
			}
		}
	}
}

// A gate is sampled for 30 s, at 2 calls per second and then at 10.
func TestSampler_Flow(t *testing.T) {
	var s sluice.Stats
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return []sluice.Stats{s} })}}
	flowAt := func(second int) flow {
		sample.take(noon.Add(time.Duration(second) * time.Second))
		return sample.rows[0].flow()
	}
	if f := flowAt(0); f != (flow{}) {
		t.Errorf("after one sample: %+v", f)
	}
	for i := 1; i <= 15; i++ {
		s.Admitted += 2
		s.Waits[0] += 2
		s.Waiting++
		flowAt(i)
	}
	f := flowAt(16) // nothing in this second
	if f.over != window || f.leaving != 1.8 || f.arriving != 2.7 || f.lately != 0 || f.refused != 0 {
		t.Errorf("%+v", f)
	}
	for i := 17; i <= 30; i++ {
		s.Admitted += 10
		s.Waits[21] += 10
		s.Rejected.Busy++
		s.Rejected.Deadline += 3
		s.Retried++
		f = flowAt(i)
	}
	if f.leaving != 10 || f.refused != 4 || f.retried != 1 || f.arriving != 14 || f.lately != 10 {
		t.Errorf("%+v", f)
	}
	if reason, n := f.refusedFor(); reason != "deadline" || n != 30 {
		t.Errorf("%d for %s", n, reason)
	}
	if f.waits != 170 || f.p50 != 1<<21*time.Microsecond || f.p99 != 1<<21*time.Microsecond {
		t.Errorf("%d waits: %v, %v", f.waits, f.p50, f.p99)
	}
	// Waits are forgotten after one to two windows.
	for i := 31; i <= 100; i++ {
		f = flowAt(i)
	}
	if f.waits != 0 || f.leaving != 0 {
		t.Errorf("later: %+v", f)
	}
}

// A gate that was discarded and made again counts from 0: no pace is negative or huge. One
// that is a call behind is not taken for that.
func TestSampler_MadeAgain(t *testing.T) {
	s := sluice.Stats{Name: "g", Admitted: 1000, Rejected: sluice.Rejections{Busy: 5, Closed: 1}}
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return []sluice.Stats{s} })}}
	for i, c := range []struct {
		granted, busy uint64
		leaving       float64
		over          time.Duration
	}{
		{1000, 5, 0, 0},
		{1010, 5, 10, time.Second},
		{1009, 5, 5, 2 * time.Second}, // a call that had counted waits after all
		{3, 0, 0, 0},                  // another gate
		{5, 0, 2, time.Second},
	} {
		s.Admitted, s.Rejected.Busy = c.granted, c.busy
		sample.take(noon.Add(time.Duration(i) * time.Second))
		if f := sample.rows[0].flow(); f.leaving != c.leaving || f.over != c.over || f.refused != 0 {
			t.Errorf("sample %d: %+v", i, f)
		}
	}
}

// Gates of one name stay apart, and one that is gone is discarded.
func TestSampler_Identity(t *testing.T) {
	now := []sluice.Stats{{Name: "a", Admitted: 100}, {Name: "a", Admitted: 200}, {Name: "a", Admitted: 300}, {}}
	source := of(func() []sluice.Stats { return now })
	sample := sampler{sources: []iter.Seq[Gate]{source, source}}
	sample.take(noon)
	first := make(map[uint64]string)
	for _, h := range sample.rows {
		first[h.id] = fmt.Sprint(h.name, h.gate.Admitted)
	}
	if len(first) != 8 || sample.rows[3].name != "gate 4" {
		t.Fatalf("%v", first)
	}
	sample.take(noon.Add(time.Second))
	for _, h := range sample.rows {
		if got := fmt.Sprint(h.name, h.gate.Admitted); first[h.id] != got {
			t.Errorf("%d is %s, was %s", h.id, got, first[h.id])
		}
	}
	now = now[:1]
	sample.take(noon.Add(2 * time.Second))
	if len(sample.rows) != 2 || len(sample.known) != 2 {
		t.Errorf("%d rows, %d known", len(sample.rows), len(sample.known))
	}
}

func TestSampler_TooMany(t *testing.T) {
	many := make([]sluice.Stats, mostGates+5)
	for i := range many {
		many[i].Name = fmt.Sprint(i)
	}
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return many })}}
	sample.take(noon)
	if want := "20,005 gates: 0/s leave, 0 wait, 0 in flight, 0/s refused; 5 gates are too many to be shown"; sample.total != want {
		t.Errorf("got %s", sample.total)
	}
}

// The first are those that the order asks for, and ties go by name.
func TestQuery(t *testing.T) {
	gates := []sluice.Stats{{Name: "Idle"}, {Name: "b"}, {Name: "a"}, {Name: "queue"}, {Name: "refuses"}, {Name: "slow"}}
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return gates })}}
	sample.take(noon)
	gates[1].Admitted, gates[2].Admitted = 1000, 1001
	gates[3].Waiting = 50
	gates[4].Rejected.Busy = 5
	gates[5].Waits[30] = 1
	sample.take(noon.Add(time.Second))
	for key, want := range map[string]string{
		"busy":    "[a b queue refuses Idle slow]",
		"waiting": "[queue Idle a b refuses slow]",
		"refused": "[refuses Idle a b queue slow]",
		"slow":    "[slow Idle a b queue refuses]",
		"name":    "[Idle a b queue refuses slow]",
		"unknown": "[a b queue refuses Idle slow]",
	} {
		chosen, n := parseQuery(map[string][]string{"sort": {key}}).choose(&sample)
		var names []string
		for _, h := range chosen {
			names = append(names, h.name)
		}
		if got := fmt.Sprint(names); got != want || n != 6 {
			t.Errorf("%s: %d: %s, want %s", key, n, got, want)
		}
	}
	chosen, n := parseQuery(map[string][]string{"q": {"IDLE"}}).choose(&sample)
	if n != 1 || chosen[0].name != "Idle" {
		t.Errorf("search: %d", n)
	}
	// A sample later the order is another.
	gates[0].Admitted = 1_000_000
	sample.take(noon.Add(2 * time.Second))
	if chosen, _ := parseQuery(nil).choose(&sample); chosen[0].name != "Idle" {
		t.Errorf("busiest is %s", chosen[0].name)
	}
}

// A call of a gate below another one counts once in what all do together: so does the call that
// waits first in the gate below, and for that in the queue of its parent.
func TestSampler_Parents(t *testing.T) {
	child := func(name string) sluice.Stats {
		return sluice.Stats{Name: name, Parent: "all", Waiting: 20, LimitedBy: limits.ByParent}
	}
	gates := []sluice.Stats{
		{Name: "all", Waiting: 3, LimitedBy: limits.ByRate}, child("a"), child("b"),
		{Name: "c", Parent: "all", Waiting: 5, LimitedBy: limits.ByRate}, // none of which is in the queue of all
		{Name: "d", Parent: "not shown", Waiting: 1, LimitedBy: limits.ByParent}, {},
	}
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return gates })}}
	sample.take(noon)
	for i, left := range []uint64{10, 3, 4, 2, 7, 0} { // one of the parent itself
		gates[i].Admitted, gates[i].InFlight, gates[i].Rejected.Deadline = left, int64(left), left
	}
	sample.take(noon.Add(time.Second))
	if want := "6 gates: 17/s leave, 47 wait, 17 in flight, 17/s refused"; sample.total != want {
		t.Errorf("%s, want %s", sample.total, want)
	}
	for i, want := range []string{"; with those behind them in the gates below, 41 calls wait.", "", "", "", "", ""} {
		if got := sample.rows[i].withBelow("."); got != cmp.Or(want, ".") {
			t.Errorf("%d: %s", i, got)
		}
	}
}

// A pace keeps its unit where it changes about 1/s, and has that of the rate next to it.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		perSecond float64
		want, as  string
		asRate    sluice.Rate
	}{
		{0, "0/s", "0/s", sluice.Rate{Count: 1, Per: time.Minute}},
		{0.955, "0.955/s", "0.955/s", sluice.Rate{Count: 1, Per: time.Second}},
		{0.955, "0.955/s", "57.3/m", sluice.Rate{Count: 60, Per: time.Minute}},
		{1.0 / 30, "2/m", "2/m", sluice.Rate{Count: 2, Per: time.Minute}},
		{1.0 / 30, "2/m", "2/m", sluice.Rate{Count: 2, Per: time.Second}}, // 0.0333/s says less
		{1.0 / 3600, "1/h", "1/h", sluice.Rate{}},
		{1500, "1,500/s", "1,500/s", sluice.Rate{Count: 1, Per: time.Second}},
	} {
		if got, as := pace(c.perSecond), paceAs(c.perSecond, c.asRate); got != c.want || as != c.as {
			t.Errorf("%v: %s, %s, want %s, %s", c.perSecond, got, as, c.want, c.as)
		}
	}
}

// The table says of an upper bound that it is one.
func TestView_Waits(t *testing.T) {
	s := sluice.Stats{Name: "g"}
	sample := sampler{sources: []iter.Seq[Gate]{of(func() []sluice.Stats { return []sluice.Stats{s} })}}
	sample.take(noon)
	s.Waits[0], s.Waits[19] = 5, 2 // less than 524 ms
	s.Admitted = 7
	sample.take(noon.Add(time.Second))
	if v := viewOf(sample.rows[0], sample.at, false); v.Wait != "0 s / < 524 ms" {
		t.Errorf("%s", v.Wait)
	}
}
