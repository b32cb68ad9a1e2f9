package live

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
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
		s.Granted += 2
		s.Waits[0] += 2
		s.Waiting++
		flowAt(i)
	}
	f := flowAt(16) // nothing in this second
	if f.over != window || f.leaving != 1.8 || f.arriving != 2.7 || f.lately != 0 || f.refused != 0 {
		t.Errorf("%+v", f)
	}
	for i := 17; i <= 30; i++ {
		s.Granted += 10
		s.Waits[21] += 10
		s.Refused.Busy++
		s.Refused.Deadline += 3
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

// A gate that was forgotten and made again counts from 0: no pace is negative or huge. One
// that is a call behind is not taken for that.
func TestSampler_MadeAgain(t *testing.T) {
	s := sluice.Stats{Name: "g", Granted: 1000, Refused: sluice.Refusals{Busy: 5, Closed: 1}}
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
		s.Granted, s.Refused.Busy = c.granted, c.busy
		sample.take(noon.Add(time.Duration(i) * time.Second))
		if f := sample.rows[0].flow(); f.leaving != c.leaving || f.over != c.over || f.refused != 0 {
			t.Errorf("sample %d: %+v", i, f)
		}
	}
}

// Gates of one name stay apart, and one that is gone is forgotten.
func TestSampler_Identity(t *testing.T) {
	now := []sluice.Stats{{Name: "a", Granted: 100}, {Name: "a", Granted: 200}, {Name: "a", Granted: 300}, {}}
	source := of(func() []sluice.Stats { return now })
	sample := sampler{sources: []iter.Seq[Gate]{source, source}}
	sample.take(noon)
	first := make(map[uint64]string)
	for _, h := range sample.rows {
		first[h.id] = fmt.Sprint(h.name, h.gate.Granted)
	}
	if len(first) != 8 || sample.rows[3].name != "gate 4" {
		t.Fatalf("%v", first)
	}
	sample.take(noon.Add(time.Second))
	for _, h := range sample.rows {
		if got := fmt.Sprint(h.name, h.gate.Granted); first[h.id] != got {
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
	gates[1].Granted, gates[2].Granted = 1000, 1001
	gates[3].Waiting = 50
	gates[4].Refused.Busy = 5
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
	gates[0].Granted = 1_000_000
	sample.take(noon.Add(2 * time.Second))
	if chosen, _ := parseQuery(nil).choose(&sample); chosen[0].name != "Idle" {
		t.Errorf("busiest is %s", chosen[0].name)
	}
}
