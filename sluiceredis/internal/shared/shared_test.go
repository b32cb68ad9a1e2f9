package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	redistest.Main(m)
}

// The measurement, made short: the limits are kept exactly, and each answer is
// what the model says. How much was delivered is for a quiet machine to show.
func TestSharedLimits(t *testing.T) {
	for _, kind := range []string{"pacer", "leaky"} {
		t.Run(kind, func(t *testing.T) {
			o := options{Redis: redistest.Shared(t).Addr, Processes: 4, Goroutines: 16, Rate: 500, For: time.Second, Tolerance: time.Second}
			if kind == "leaky" {
				// Callers that wait behind another have units taken ahead for them. If they are woken a round trip
				// late, these go back, and are granted once more: on a busy machine, in each run.
				o.Processes, o.Goroutines = 8, 1
			}
			f, err := measure(t.Context(), kind, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + f.text(o))
			if !f.kept() {
				t.Error("the limit was not kept")
			}
			if len(f.departures) != len(f.arrivals) || len(f.departures) < 64 {
				t.Errorf("%d left, %d arrived", len(f.departures), len(f.arrivals))
			}
			if e := early(f.departures, f.granted); e > 0 {
				t.Errorf("a call left %v before it was granted", e)
			}
		})
	}
}

func TestWorst(t *testing.T) {
	for _, v := range []struct {
		at   []int64
		want int64 // with an interval of 10
	}{
		{nil, 0},
		{[]int64{5}, 10},
		{[]int64{0, 10, 20, 30}, 10},
		{[]int64{0, 9, 20, 30}, 11},
		{[]int64{0, 10, 20, 21, 30, 40}, 20}, // the fourth is 9 early, and those after it have to catch up on it
		{[]int64{0, 100, 101, 102, 200}, 28}, // what was not used before does not count
		{[]int64{7, 7, 7, 7}, 40},            // four together
		{[]int64{0, 0, 0, 0, 10, 20, 20}, 50},
	} {
		// The plain way: every window there is.
		plain := int64(0)
		for i := range v.at {
			for j := i; j < len(v.at); j++ {
				plain = max(plain, int64(j-i+1)*10-(v.at[j]-v.at[i]))
			}
		}
		if got := worst(v.at, 10); got != v.want || got != plain {
			t.Errorf("%v: %d, want %d, the plain way says %d", v.at, got, v.want, plain)
		}
	}
}

func TestInAny(t *testing.T) {
	at := []int64{0, 1, 5, 10, 11, 12, 20}
	for window, want := range map[time.Duration]int{1: 1, 2: 2, 3: 3, 10: 4, 11: 4, 12: 5, 13: 6, 21: 7} {
		if got := inAny(at, window); got != want {
			t.Errorf("%v in %d: %d, want %d", at, window, got, want)
		}
	}
}

func TestEarly(t *testing.T) {
	granted := []int64{10, 20, 30}
	for _, v := range []struct {
		left []int64
		want time.Duration
	}{{[]int64{10, 20, 30}, 0}, {[]int64{11, 31}, 0}, {[]int64{10, 17, 30}, 3}, {[]int64{30, 30, 26}, 4}} {
		if got := early(v.left, granted); got != v.want {
			t.Errorf("%v: %v, want %v", v.left, got, v.want)
		}
	}
}

// A model that explains everything explains nothing.
func TestExplain(t *testing.T) {
	good := []script{
		{Now: 1, Before: 0, Granted: 2, Reply: 2, Costs: []int64{1000, 1000}},
		{Now: 2, Before: 1000, Granted: 0},
		{Now: 2, Before: 1000, Granted: 1, Reply: 1, Costs: []int64{500}},
		{Now: 2, Before: 1500, Granted: 1, Reply: 1, Costs: []int64{1000}},
		{Now: 10, Before: -40, Granted: 1, Reply: 1, Costs: []int64{1000}}, // in a pacer that may catch up
		{Now: 11, Before: 0},
	}
	if err := explain(good[:4]); err != nil {
		t.Error(err)
	}
	mixed := slices.Clone(good)
	mixed[4].Before = 0
	slices.Reverse(mixed)
	if err := explain(mixed); err != nil {
		t.Error(err)
	}
	for i, spoil := range []func(s []script){
		func(s []script) { s[0].Before = 5 },
		func(s []script) { s[2].Before = 999 },
		func(s []script) { s[2].Reply = 2 },
		func(s []script) { s[3].Costs = []int64{9000} },
		func(s []script) { s[1].Now = 3 },
	} {
		broken := slices.Clone(mixed)
		slices.Reverse(broken)
		spoil(broken)
		if explain(broken) == nil {
			t.Errorf("%d: a falsified answer was explained", i)
		}
	}
}

func TestReadsWhatScriptsSay(t *testing.T) {
	s, err := readReserve([]string{"reserve", "0", "9000", "1000", "500", "2000", "1500", "1000", "1500"}, []int64{0, 2, 0, 400, 0, 0, 7})
	if err != nil || s.Now != 7 || s.Before != 400 || s.Granted != 2 || !slices.Equal(s.Costs, []int64{1000, 2000}) {
		t.Errorf("%+v, %v", s, err)
	}
	if at := grants("pacer", []script{s}); !slices.Equal(at, []int64{7400, 8400}) {
		t.Errorf("%v", at)
	}
	s, err = readTake([]string{"bucket", "5000", " 5@1000", "1", "9", "1000"}, []int64{0, 3, 4, 0, 1600, 7})
	if err != nil || s.Before != 1600 || s.Granted != 3 || !slices.Equal(s.Costs, []int64{1000, 1000, 1000}) {
		t.Errorf("%+v, %v", s, err)
	}
	if at := grants("leaky", []script{s}); !slices.Equal(at, []int64{7000, 7000, 7000}) {
		t.Errorf("%v", at)
	}
	for _, reply := range [][]int64{{0, -1 - 2*3600 - 1, 7}, {0, 3, 1, 0, 3600, 7}} {
		s, err = readTake([]string{"1000", "5000", " 5@1000"}, reply)
		if err != nil || s.Before != 3600 || s.Granted != 1 || s.Reply != 1 || !slices.Equal(s.Costs, []int64{1000}) {
			t.Errorf("a short set: %+v, %v", s, err)
		}
	}
	for _, reply := range [][]int64{nil, {0}, {-1, 7, 0}, {0, 1, 2, 3, 4, 5, 6, 7}} {
		if _, err := readTake([]string{"1", "1", "1", "1"}, reply); err == nil {
			t.Errorf("%v was read", reply)
		}
	}
	if _, err := readReserve([]string{"reserve", "x", "1"}, make([]int64, 7)); err == nil {
		t.Error("x was read as a number")
	}
}
