package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubbles returns what Play needs.
func bubbles(t *testing.T) func(func()) {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// story returns the story with a key.
func story(t *testing.T, key string) *Story {
	t.Helper()
	for _, s := range Stories() {
		if s.Key == key {
			return &s
		}
	}
	t.Fatalf("no story %q", key)
	return nil
}

func play(t *testing.T, key string, values map[string]float64) *Picture {
	t.Helper()
	p, err := story(t, key).Play(values, bubbles(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The pictures before a slider is moved. The page has the same numbers in a browser: see
// internal/browsertest/playground.
func TestStory_Play(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere floating point may round another way")
	}
	for _, want := range []struct {
		key   string
		lanes []Summary
	}{
		{"semaphore", []Summary{
			{Left: 407, Served: 207, Refused: 196, Waiting: 16, InFlight: 4, Busiest: 31, Longest: 3.6},
			{Left: 240, Served: 231, Waiting: 16, InFlight: 10, Busiest: 8, Longest: 1.875},
			{Left: 172, Served: 168, Waiting: 16, InFlight: 4, Busiest: 8, Longest: 3.9},
		}},
		{"cancel", []Summary{ // those that wait hold slots until 9.8 s, 5.8 s after the last has gone
			{Left: 21, Served: 21, GaveUp: 29, InFlight: 2, Busiest: 5, Longest: 7.149, Patient: 7.149},
			{Left: 21, Served: 21, GaveUp: 29, InFlight: 2, Busiest: 5, Longest: 2, Patient: 1.549},
			{Left: 21, Served: 21, GaveUp: 29, InFlight: 2, Busiest: 5, Longest: 2, Patient: 1.549},
		}},
		{"pause", []Summary{
			{Left: 288, Served: 255, Refused: 30, Waiting: 30, InFlight: 13, Busiest: 19, After: 19, Longest: 2.7},
			{Left: 241, Served: 237, Refused: 1, Waiting: 30, InFlight: 4, Busiest: 10, After: 10, Longest: 8.74},
		}},
		{"adaptive", []Summary{ // these change with the rule of adaptive gates
			{Left: 1149, Served: 839, Refused: 306, Waiting: 20, InFlight: 5, Busiest: 21, Longest: 0.95},
			{Left: 827, Served: 793, Refused: 30, Waiting: 20, InFlight: 18, Busiest: 30, Longest: 2.459015},
		}},
		{"league", []Summary{
			{Left: 440, Served: 440, Waiting: 8, InFlight: 1, Busiest: 1, Longest: 16.101927},
			{Left: 452, Served: 421, Refused: 31, Waiting: 8, InFlight: 8, Busiest: 12, Longest: 21.62326},
		}},
		{"free", []Summary{
			{Left: 301, Served: 243, Refused: 53, Waiting: 20, InFlight: 6, Busiest: 11, Longest: 1.9},
			{Left: 245, Served: 236, Refused: 4, Waiting: 20, InFlight: 6, Busiest: 10, Longest: 2.88678},
		}},
	} {
		p := play(t, want.key, nil)
		for i, l := range p.Lanes {
			got := l.Summary
			got.Evenness = 0 // TestEvenness
			got.Longest = math.Round(got.Longest*1e6) / 1e6
			got.Patient = math.Round(got.Patient*1e6) / 1e6
			if got != want.lanes[i] {
				t.Errorf("%s: %s: %+v, want %+v", want.key, l.Name, got, want.lanes[i])
			}
		}
	}
}

// A picture is the same each time, whatever the scheduler does.
func TestStory_Play_Repeats(t *testing.T) {
	for _, key := range []string{"semaphore", "cancel", "pause", "free"} {
		first := play(t, key, nil)
		for range 2 {
			if again := play(t, key, nil); !reflect.DeepEqual(first, again) {
				t.Errorf("%s: two pictures differ", key)
			}
		}
	}
}

// Wherever the sliders are, a gate keeps its limits, and what is drawn adds up.
func TestStory_Play_KeepsLimits(t *testing.T) {
	for _, moved := range []struct {
		key    string
		values map[string]float64
	}{
		{"semaphore", map[string]float64{"concurrency": 12, "time": 0.1, "later": 0.1, "callers": 30}},
		{"semaphore", map[string]float64{"rate": 30, "burst": 5, "limit": 0, "later": 3}},
		{"cancel", map[string]float64{"rate": 2, "concurrency": 3, "giveup": 6}},
		{"cancel", map[string]float64{"burst": 20, "callers": 60}},
		{"pause", map[string]float64{"retry": 12, "concurrency": 1}},
		{"pause", map[string]float64{"rate": 50, "burst": 20, "limit": 5, "retry": 1}},
		{"free", map[string]float64{"rate": 50, "limit": 50, "callers": 60, "concurrency": 0, "time": 0.1}},
		{"free", map[string]float64{"retry": 5, "limit": 0, "callers": 1}},
	} {
		s := story(t, moved.key)
		w, err := s.Scenario(moved.values)
		if err != nil {
			t.Fatal(err)
		}
		p := play(t, moved.key, moved.values)
		for _, l := range p.Lanes {
			addsUp(t, p, &l)
			if l.Name != gate.name {
				continue
			}
			if most := int(w.Rate) + w.Burst; l.Summary.Busiest > most {
				t.Errorf("%s %v: %d calls left within a second, want at most %d", moved.key, moved.values, l.Summary.Busiest, most)
			}
			if w.Concurrency > 0 && l.Summary.InFlight > w.Concurrency {
				t.Errorf("%s %v: %d in flight, want at most %d", moved.key, moved.values, l.Summary.InFlight, w.Concurrency)
			}
		}
	}
}

// Wherever all the sliders are, there is a picture and it adds up.
func TestStory_Play_Anywhere(t *testing.T) {
	rounds := 2
	if os.Getenv("SLUICE_FULL") != "" {
		rounds = 200
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		for _, s := range Stories() {
			values := map[string]float64{}
			for _, slider := range s.Sliders {
				steps := 0
				if slider.Step > 0 { // the league stays as it is: TestLeague
					steps = int((slider.Max - slider.Min) / slider.Step)
				}
				values[slider.Key] = slider.Min + slider.Step*float64(random.IntN(steps+1))
			}
			p, err := s.Play(values, bubbles(t))
			if err != nil {
				t.Fatalf("%s %v: %v", s.Key, values, err)
			}
			for _, l := range p.Lanes {
				if addsUp(t, p, &l); l.Summary.Left == 0 {
					t.Errorf("%s: no call left", l.Name)
				}
			}
			if t.Failed() {
				t.Fatalf("%s %v", s.Key, values)
			}
		}
	}
}

// addsUp checks that the bars and the ticks of a lane are its calls.
func addsUp(t *testing.T, p *Picture, l *Lane) {
	t.Helper()
	servedOrOut, refusals := 0, 0
	for i, n := range l.Served {
		servedOrOut += n
		refusals += l.Refused[i]
	}
	if servedOrOut+refusals != l.Summary.Left || refusals != l.Summary.Refused || servedOrOut < l.Summary.Served {
		t.Errorf("%s: the bars have %d and %d calls, the summary %+v", l.Name, servedOrOut, refusals, l.Summary)
	}
	if l.Summary.Left <= mostTicks && (len(l.Left) != l.Summary.Left || len(l.Outcome) != l.Summary.Left ||
		strings.Count(l.Outcome, "2") != refusals || !slices.IsSorted(l.Left)) {
		t.Errorf("%s: %d ticks, %d outcomes, for %d calls", l.Name, len(l.Left), len(l.Outcome), l.Summary.Left)
	}
	if bars := int(math.Ceil(p.Seconds / p.Bin)); len(l.Served) != bars || len(l.InFlight) != bars || len(l.Waiting) != bars {
		t.Errorf("%s: %d, %d and %d bars, want %d", l.Name, len(l.Served), len(l.InFlight), len(l.Waiting), bars)
	}
}

// What the text of a story says is so.
func TestStory_Text(t *testing.T) {
	cancel := play(t, "cancel", nil)
	if x, g := cancel.Lanes[0].Summary.Patient, cancel.Lanes[2].Summary.Patient; g > 2 || x < g+5 {
		t.Errorf("patient callers wait %g s and %g s", x, g)
	}
	pause := play(t, "pause", nil)
	if x, g := pause.Lanes[0].Summary, pause.Lanes[1].Summary; g.Refused != 1 || x.Refused != 30 || g.Evenness < .99 {
		t.Errorf("pause: %+v and %+v", x, g)
	}
	for _, s := range Stories() {
		for _, sentence := range s.Text {
			if !strings.HasSuffix(sentence, ".") || strings.Count(sentence, ". ") > 0 {
				t.Errorf("%s: %q is not a sentence", s.Key, sentence)
			}
		}
	}
}

func TestStory_Scenario_Refuses(t *testing.T) {
	s := story(t, "pause")
	for _, values := range []map[string]float64{
		{"rate": 0}, {"rate": 51}, {"burst": math.NaN()}, {"callers": math.Inf(1)}, {"retry": -1},
	} {
		if w, err := s.Scenario(values); err == nil || !strings.Contains(err.Error(), ": want ") {
			t.Errorf("%v: %+v, %v", values, w, err)
		}
		if p, err := s.Play(values, bubbles(t)); err == nil {
			t.Errorf("%v: %+v", values, p)
		}
	}
	if _, err := s.Scenario(map[string]float64{"unknown": 7}); err != nil {
		t.Error(err)
	}
}

// The worlds of the league have the numbers of the league, and its results.
func TestLeague(t *testing.T) {
	results := leagueResults(t)
	worlds, strategies := map[string]bool{}, map[string]bool{}
	for _, r := range results {
		worlds[r.World], strategies[r.Strategy] = true, true
	}
	size := fmt.Sprintf("%d worlds with %d strategies", len(worlds), len(strategies))
	if text := story(t, "league").Text[0]; !strings.Contains(text, size) {
		t.Errorf("%q does not say %q", text, size)
	}
	for i, w := range []Scenario{slowWorld(), stepsWorld()} {
		name := story(t, "league").Sliders[0].Choices[i]
		want := leagueWorld(t, name)
		b := want.Limiters[0]
		limit := []Step{{0, b.Rate}}
		for _, s := range b.Steps {
			limit = append(limit, Step{s.At, s.Rate})
		}
		theirs := Scenario{
			Seconds: want.Seconds, Rate: want.Told, Burst: 1, Demand: Demand{Workers: want.Demand.Workers},
			Server: Server{
				Limit: limit, Burst: b.Burst, RTT: want.Network.RTT, Jitter: want.Network.Jitter,
				Takes: []Step{{0, want.Service.Mean}}, Spread: want.Service.Spread,
			},
		}
		if !reflect.DeepEqual(w, theirs) {
			t.Errorf("%s: %+v, the league has %+v", name, w, theirs)
		}
		if name == "steps" && os.Getenv("SLUICE_FULL") == "" {
			continue // 41,000 calls; set SLUICE_FULL to play it
		}
		for told, strategy := range []string{"xtime-half", "xtime-told", "xtime-double"} {
			p := play(t, "league", map[string]float64{"world": float64(i), "told": float64(told)})
			agrees(t, results, name, strategy, want.Best, p.Lanes[0].Summary)
			agrees(t, results, name, "sluice-zero", want.Best, p.Lanes[1].Summary)
		}
	}
}

// agrees checks that a lane got what the strategy got in the league with one of its
// five seeds, or 2 points more or less.
func agrees(t *testing.T, results []leagueResult, world, strategy string, best float64, s Summary) {
	t.Helper()
	goodput, refused := float64(s.Served)/best, float64(s.Refused)/float64(s.Left)
	var goods, refusals []float64
	for _, r := range results {
		if r.World == world && r.Strategy == strategy {
			goods, refusals = append(goods, r.Goodput), append(refusals, r.Refused)
		}
	}
	if len(goods) != 5 {
		t.Fatalf("%d results of %s in %s", len(goods), strategy, world)
	}
	const slack = .02
	if goodput < slices.Min(goods)-slack || goodput > slices.Max(goods)+slack ||
		refused < slices.Min(refusals)-slack || refused > slices.Max(refusals)+slack {
		t.Errorf("%s: %s: goodput %.3f, refused %.3f; the league has %.3f and %.3f", world, strategy, goodput, refused, goods, refusals)
	}
}

// aWorld is what the league's worlds.json has of the worlds shown here.
type aWorld struct {
	Name                string
	Seconds, Best, Told float64
	Network             struct{ RTT, Jitter float64 }
	Service             struct{ Mean, Spread float64 }
	Limiters            []struct {
		Rate, Burst float64
		Steps       []struct{ At, Rate float64 }
	}
	Demand struct{ Workers int }
}

func leagueWorld(t *testing.T, name string) aWorld {
	t.Helper()
	var all []aWorld
	readJSON(t, filepath.Join("league", "worlds.json"), &all)
	i := slices.IndexFunc(all, func(w aWorld) bool { return w.Name == name })
	if i < 0 {
		t.Fatalf("the league has no world %s", name)
	}
	return all[i]
}

type leagueResult struct {
	World, Strategy  string
	Goodput, Refused float64
}

func leagueResults(t *testing.T) (all []leagueResult) {
	t.Helper()
	readJSON(t, filepath.Join("results", "league.json"), &all)
	return all
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "bench", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// No other rate serves more in the worlds of the league, by 1 % or more: x/time/rate gets its
// best.
func TestBestFixed(t *testing.T) {
	for i, world := range []func() Scenario{slowWorld, stepsWorld} {
		if i == 1 && os.Getenv("SLUICE_FULL") == "" {
			continue // 30,000 calls each
		}
		served := func(rate float64) (n int) {
			s := world()
			s.Rate = rate
			synctest.Test(t, func(*testing.T) { n = s.lane(usualRate).Summary.Served })
			return n
		}
		best := served(bestFixed[i])
		for _, f := range []float64{.3, .5, .8, .9, .95, .98, .99, .995, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5} {
			if n := served(f * bestFixed[i]); float64(n) > 1.01*float64(best) {
				t.Errorf("world %d: %g/s serves %d, more than the %d of %g/s", i, f*bestFixed[i], n, best, bestFixed[i])
			}
		}
	}
}

// A verdict names the calls served, and says of a gate that serves fewer how many.
func TestPicture_SaysFewer(t *testing.T) {
	for _, test := range []struct {
		key    string
		values map[string]float64
		fewer  string // "": the gate serves no fewer
	}{
		{"cancel", nil, ""},
		{"adaptive", nil, "5.5 % fewer served than by x/time/rate."},
		{"adaptive", map[string]float64{"rate": 12}, ""},
		{"pause", nil, "237 served, 1 refused, 10 in the busiest second after the pause, 7.1 % fewer served than by x/time/rate + x/sync/semaphore."},
		{"league", nil, "4.3 % fewer served than by x/time/rate."},
		{"league", map[string]float64{"told": 1}, ""},
		{"semaphore", nil, "27.3 % fewer served than by pacer alone."},
	} {
		p := play(t, test.key, test.values)
		for i, v := range p.Verdicts {
			if !strings.Contains(v, " served") {
				t.Errorf("%s: %q does not say how many were served", test.key, v)
			}
			if says := strings.Contains(v, "fewer"); says != (isGate(p.Lanes[i].Name) && test.fewer != "") || says && !strings.HasSuffix(v, test.fewer) {
				t.Errorf("%s: %s: %q, want %q in it", test.key, p.Lanes[i].Name, v, test.fewer)
			}
		}
	}
}

// x/time/rate with deadlines that it knows is as quick as a gate, wherever the sliders are.
func TestCancel_WithTimeout(t *testing.T) {
	for _, values := range []map[string]float64{nil, {"giveup": 4}, {"rate": 10}, {"rate": 2, "callers": 60}, {"burst": 5, "time": 1}} {
		p := play(t, "cancel", values)
		cancelled, told, gate := p.Lanes[0].Summary, p.Lanes[1].Summary, p.Lanes[2].Summary
		if told.Patient > gate.Patient+.01 || cancelled.Patient < gate.Patient+1 || told.GaveUp != gate.GaveUp {
			t.Errorf("%v: patient callers wait %g, %g and %g s; %d and %d give up", values,
				cancelled.Patient, told.Patient, gate.Patient, told.GaveUp, gate.GaveUp)
		}
	}
}
