package peers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const (
	second = int64(1e6)
	all    = WantsAll
)

// ask is a report of id, which says how much it wants per second.
func ask(id string, want int64) Report {
	if want > 0 {
		want *= 1e6
	}
	return Report{ID: id, Want: want}
}

// told returns r with news of a rate per second, by a gate that has seen a stamp.
func told(r Report, rate, seen int64) Report {
	r.News, r.Seen = []int64{rate * 1e6, 7}, seen
	return r
}

func TestGroup_Exchange_Divides(t *testing.T) {
	for name, test := range map[string]struct {
		rate  int64 // 0: nothing was learned
		wants []int64
		parts []int64 // of the rate
	}{
		"one":                          {60, []int64{all}, []int64{60}},
		"one that wants less":          {60, []int64{10}, []int64{60}},
		"equal":                        {60, []int64{all, all, all}, []int64{20, 20, 20}},
		"one wants less":               {60, []int64{10, all, all}, []int64{10, 25, 25}},
		"all want less":                {60, []int64{10, 20}, []int64{25, 35}},
		"all want just it":             {60, []int64{20, 40}, []int64{20, 40}},
		"all want more":                {60, []int64{40, 50}, []int64{30, 30}},
		"the least want less":          {60, []int64{5, 10, 40, 50}, []int64{5, 10, 22, 22}},
		"one wants nothing":            {60, []int64{0, all}, []int64{0, 60}},
		"none wants anything":          {60, []int64{0, 0}, []int64{30, 30}},
		"nothing was learned":          {0, []int64{10, all, 0, all}, []int64{15, 15, 15, 15}},
		"exactly an equal part":        {60, []int64{20, all, 20}, []int64{20, 20, 20}},
		"more than there is, and less": {60, []int64{100, 1}, []int64{59, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var g group
			if test.rate > 0 {
				r := told(ask("first", all), test.rate, 0)
				g.exchange(0, r)
				r.Want = Leaves
				g.exchange(0, r)
			}
			ids := []string{"a", "b", "c", "d"}
			for range 3 { // until all know all
				for i, want := range test.wants {
					g.exchange(1, ask(ids[i], want))
				}
			}
			whole := max(60, test.rate)
			for i, want := range test.wants {
				r := g.exchange(2, ask(ids[i], want))
				least := test.parts[i] * Whole / whole
				if name == "the least want less" && i > 1 {
					least = Whole * 45 / 2 / whole
				}
				if r.Share != r.Due || r.Share > least || r.Share < least-1 || r.Peers != int64(len(test.wants)) {
					t.Errorf("gate %d: %+v, want a part of %d", i, r, least)
				}
			}
		})
	}
}

// A gate that joins gets nothing that another one still uses.
func TestGroup_Exchange_NobodyTakesWhatOthersHave(t *testing.T) {
	var g group
	g.exchange(0, told(ask("a", all), 60, 0))
	g.exchange(0, ask("b", all))
	a, b := g.exchange(1, ask("a", all)), g.exchange(1, ask("b", all))
	if half := Whole / 2; a.Share != half || b.Share != half {
		t.Fatalf("%+v, %+v", a, b)
	}
	for _, step := range []struct {
		id        string
		part, due int64
	}{
		{"c", 0, 333_333_333},
		{"a", 333_333_333, 333_333_333},
		{"c", 166_666_667, 333_333_333},
		{"b", 333_333_333, 333_333_333},
		{"c", 333_333_333, 333_333_333},
	} {
		if r := g.exchange(2, ask(step.id, all)); r.Share != step.part || r.Due != step.due {
			t.Errorf("%s: %+v, want %+v", step.id, r, step)
		}
	}
}

// Whatever is reported when, the parts of all do not exceed the limit once there are news.
func TestGroup_Exchange_PartsNeverExceedTheLimit(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var g group
		now, stamp := int64(0), int64(0)
		members := map[string]int64{}
		report := func(r Report) {
			got := g.exchange(now, r)
			stamp = got.Stamp
			members[r.ID] = now
			if r.Want == Leaves {
				delete(members, r.ID)
			}
			sum, here := int64(0), 0
			for id, m := range g.members {
				if seen, ok := members[id]; ok && now-seen < lasts.Microseconds() {
					sum += m.part
					here++
				}
			}
			if len(g.members) != here || int64(here) != got.Peers || sum > Whole || got.Share > got.Due {
				t.Fatalf("seed %d at %d: parts of %d in all, %d gates, %+v", seed, now, sum, here, got)
			}
		}
		report(told(ask("a", all), 60, 0))
		for range 300 {
			now += random.Int64N(second)
			if random.IntN(20) == 0 {
				now += 4 * second
			}
			r := ask(string(rune('a'+random.IntN(6))), random.Int64N(60)-2)
			if random.IntN(4) == 0 {
				r = told(r, 1+random.Int64N(100), stamp)
			}
			report(r)
		}
	}
}

func TestGroup_Exchange_WhoIsInIt(t *testing.T) {
	var g group
	g.exchange(0, told(ask("a", all), 60, 0))
	steps := []struct {
		at    int64
		r     Report
		peers int64
		due   int64
	}{
		{second, ask("b", all), 2, Whole / 2},
		{3*second - 1, ask("b", all), 2, Whole / 2},
		{3 * second, ask("b", all), 1, Whole}, // a has not reported for 3 s
		{4 * second, ask("a", all), 2, Whole / 2},
		{5 * second, ask("b", Leaves), 1, 0},
		{5 * second, ask("a", all), 1, Whole},
		{-60 * second, ask("c", all), 1, Whole}, // the clock was put back: they may be gone
	}
	for i, step := range steps {
		if r := g.exchange(step.at, step.r); r.Peers != step.peers || r.Due != step.due {
			t.Errorf("step %d: %+v, want %d gates, %d due", i, r, step.peers, step.due)
		}
	}
}

func TestGroup_Exchange_News(t *testing.T) {
	var g group
	if r := g.exchange(5, ask("a", all)); r.News != nil || r.Stamp != 0 || r.Age != 0 {
		t.Errorf("%+v of nothing", r)
	}
	first := g.exchange(10, told(ask("a", all), 60, 0))
	if first.Stamp != 10 || !slices.Equal(first.News, []int64{60e6, 7}) {
		t.Errorf("%+v", first)
	}
	if r := g.exchange(20, told(ask("b", all), 30, 0)); r.Stamp != 10 || r.News[0] != 60e6 || r.Age != 10*time.Microsecond {
		t.Errorf("news of a gate that had not seen the last ones: %+v", r)
	}
	if r := g.exchange(10, told(ask("b", all), 30, 10)); r.Stamp != 11 || r.News[0] != 30e6 || r.Age != 0 {
		t.Errorf("two news of one microsecond: %+v", r)
	}
	g.exchange(20, ask("a", Leaves))
	g.exchange(20, ask("b", Leaves))
	keeps := keeps.Microseconds()
	if r := g.exchange(20+keeps-1, ask("c", Leaves)); r.Stamp != 11 {
		t.Errorf("news of a group without gates: %+v", r)
	}
	if r := g.exchange(20+2*keeps-1, ask("c", all)); r.Stamp != 0 || r.News != nil || !g.over(20+3*keeps) {
		t.Errorf("10 min after the last report: %+v", r)
	}
}

// What all were admitted includes what the others have probably been admitted since their last
// reports, and does not shrink when a gate leaves.
func TestGroup_Exchange_Granted(t *testing.T) {
	var g group
	report := func(id string, granted, use int64) Report {
		return Report{ID: id, Want: all, Admitted: granted, Use: use * 1e6}
	}
	leaves := report("a", 130, 10)
	leaves.Want = Leaves
	for i, step := range []struct {
		at   int64
		r    Report
		want int64
	}{
		{0, report("a", 100, 10), 0}, // counts from now on
		{0, report("b", 1000, 20), 0},
		{second, report("b", 1020, 20), 20 + 10},
		{second, report("a", 112, 10), 32},
		{2 * second, report("a", 122, 10), 32 + 10 + 20},
		{2 * second, leaves, 32 + 10 + 8 + 20},
		{2 * second, report("b", 1035, 20), 50 + 15},
		{3 * second, report("a", 130, 10), 65 + 20},
	} {
		if r := g.exchange(step.at, step.r); r.Admitted != step.want {
			t.Errorf("step %d: %d, want %d", i, r.Admitted, step.want)
		}
	}
}

func TestGroups_Exchange_ForgetsGroups(t *testing.T) {
	var g Groups
	b := Report{ID: "b", Want: WantsAll}
	g.Exchange(0, "other", b)
	b.Want = Leaves
	g.Exchange(1, "other", b)
	g.Exchange(2, "third", b)
	if len(g.all) != 1 || g.all["third"] == nil {
		t.Errorf("a group without gates and news is kept: %v", g.all)
	}
}
