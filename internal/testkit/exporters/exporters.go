// Package exporters has the cases that every exporter of metrics is tested with. Each exporter
// compares its output after a case with its own file, testdata/NAME.txt.
package exporters

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

var update = flag.Bool("update", false, "write what is shown into testdata, instead of comparing it")

// A Config is the common part of the configurations of exporters.
type Config struct {
	MaxGates, MaxHistograms int
	Gates                   iter.Seq[sluice.Stats]
	Limits                  iter.Seq2[string, []ratelimit.Limit]
}

// An Exporter is the common part of exporters. Lines returns its output, in any order.
type Exporter struct {
	Observe        func(sluice.Event)
	ObserveAttempt func(key string, a sluicehttp.Attempt)
	Lines          func() []string
}

// Test runs all cases, each in a bubble of testing/synctest.
func Test(t *testing.T, newExporter func(t *testing.T, cfg Config) Exporter) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gates []*sluice.Gate
				if c.cfg.Gates == nil && c.gates {
					c.cfg.Gates = func(yield func(sluice.Stats) bool) { observe.Gates(gates...)(yield) }
				}
				e := newExporter(t, c.cfg)
				if c.run != nil {
					defer c.run(e, func(cfg sluice.Config) *sluice.Gate {
						cfg.Observer = e.Observe
						g := limits.Must(sluice.New(cfg))
						gates = append(gates, g)
						return g
					})()
				}
				lines := e.Lines()
				slices.Sort(lines)
				compare(t, filepath.Join("testdata", c.name+".txt"), strings.Join(lines, "\n")+"\n")
			})
		})
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("shown:\n%s\nwant %s:\n%s", got, file, want)
	}
}

// A testCase is a story. Its run makes gates with newGate, and returns a function that ends it.
type testCase struct {
	name  string
	cfg   Config
	gates bool // Config.Gates are those that run makes
	run   func(e Exporter, newGate func(sluice.Config) *sluice.Gate) (end func())
}

var bg = context.Background()

func nothing() {}

var cases = []testCase{
	{name: "story", gates: true, run: story},
	{name: "learned", cfg: Config{Gates: slices.Values(learned)}},
	{name: "waiting", gates: true, run: waiting},
	{name: "gates", gates: true, cfg: Config{MaxGates: 2}, run: manyGates},
	{name: "histograms", cfg: Config{MaxHistograms: 1}, run: manyHistograms},
	{name: "reasons", run: manyReasons},
	{name: "published", cfg: Config{MaxGates: 2, Limits: published}, run: responses},
	{name: "bad_input", gates: true, run: badInput},
	{name: "nothing"},
}

// story is the work of a gate in a few seconds, with all kinds of events but one.
func story(_ Exporter, newGate func(sluice.Config) *sluice.Gate) func() {
	g := newGate(sluice.Config{Name: "api", Concurrency: 2, Rate: sluice.Rate{Count: 4, Per: time.Second}, MaxWaiting: 2})
	attempts := 0
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}
	sluice.Retry(bg, g, func(context.Context) error { // starts at 0, 0.25 and 0.5
		if attempts++; attempts < 3 {
			return errors.New("500")
		}
		return nil
	}, policy)
	g.TryAcquire(1) // its turn is at 0.75
	g.Do(bg, func(context.Context) error { time.Sleep(time.Second); return nil })
	g.Acquire(bg, 1) // at 1.75, and stays
	g.PauseUntil(time.Now().Add(time.Hour), "429")
	ctx, cancel := context.WithCancel(bg)
	for range 3 { // the third is one too many
		go g.Acquire(ctx, 1)
		synctest.Wait()
	}
	time.Sleep(time.Minute) // of the pause
	return cancel
}

// learned are two gates of one name, of which one shares its limit, one that cannot reach those
// with which it shares, one with no pace but a bound of the calls in flight, one of two units, and
// one that has learned nothing.
var learned = []sluice.Stats{
	{Name: "api", Learned: &sluice.Learned{Pace: 19, Rate: 20, AcceptedRate: 19, ThrottledRate: 20.5, Blocked: true, Throttled: 3, Share: .25, Peers: 3}},
	{Name: "api", Learned: &sluice.Learned{Pace: 0.5, Throttled: 2}},
	{Name: "cut", Learned: &sluice.Learned{Share: .5}},
	{Name: "slow", Learned: &sluice.Learned{Concurrency: 7, Throttled: 9}},
	{Name: "units", Learned: &sluice.Learned{Units: []sluice.Learned{{Unit: "calls", Pace: 1}, {Unit: "a\xff", Rate: 2}}}},
	{Name: "idle"},
}

// waiting are callers that wait for the rate, and a gate without limits, which has no rate of 0.
func waiting(_ Exporter, newGate func(sluice.Config) *sluice.Gate) func() {
	api := newGate(sluice.Config{Name: "api", Concurrency: 3, Rate: sluice.Rate{Count: 1, Per: 2 * time.Second}})
	newGate(sluice.Config{Name: "free"})
	ctx, cancel := context.WithCancel(bg)
	for range 3 {
		go api.Acquire(ctx, 1)
	}
	synctest.Wait()
	return cancel
}

// manyGates has more gates than have their own series.
func manyGates(_ Exporter, newGate func(sluice.Config) *sluice.Gate) func() {
	for i := range 5 {
		g := newGate(sluice.Config{Name: fmt.Sprint(i), RetryBudget: 10 + i})
		if p, _ := g.TryAcquire(1); i == 0 {
			p.Release()
		}
		g.PauseUntil(time.Now().Add(time.Hour), "")
	}
	return nothing
}

func manyHistograms(e Exporter, _ func(sluice.Config) *sluice.Gate) func() {
	for i, name := range []string{"a", "b", "b", "c"} {
		e.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: name, N: 1, Wait: time.Duration(i) * time.Second})
		e.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: name, N: 1, Held: time.Duration(i) * time.Minute})
	}
	return nothing
}

// manyReasons has more reasons to learn, and more status codes, than a gate has series for.
func manyReasons(e Exporter, _ func(sluice.Config) *sluice.Gate) func() {
	for i := range 33 {
		e.Observe(sluice.Event{Kind: sluice.EventLearned, Gate: "g", Reason: fmt.Sprint("r", i, "\xff")})
		e.ObserveAttempt("g", sluicehttp.Attempt{Status: 400 + i})
	}
	return nothing
}

// published are the limits of two servers, one of which says one twice, and of one that has no series.
func published(yield func(string, []ratelimit.Limit) bool) {
	read := func(policy, limit string) []ratelimit.Limit {
		h := http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limit}}
		info, _ := ratelimit.Parse(200, h, time.Now())
		return info.Limits
	}
	twice := read(`"default";q=10;w=60, "day";q=1000;qu="content-bytes";w=86400`, `"default";r=8, "day";r=7`)
	_ = yield("http://a.test", append(twice, twice...)) &&
		yield("http://b.test", read(`"burst";q=5`, `"burst";r=0`)) &&
		yield("http://c.test", twice)
}

func responses(e Exporter, _ func(sluice.Config) *sluice.Gate) func() {
	for _, a := range []struct {
		key    string
		status int
	}{{"a", 503}, {"a", 200}, {"a", 200}, {"b", 200}, {"c", 200}, {"d", 0}, {"a", 0}} {
		e.ObserveAttempt("http://"+a.key+".test", sluicehttp.Attempt{Status: a.status})
	}
	return nothing
}

// badInput has names that are no UTF-8, such as those of hosts that a client sent, and events of
// later versions.
func badInput(e Exporter, newGate func(sluice.Config) *sluice.Gate) func() {
	for _, name := range []string{"a\xff", "a\xfe"} {
		newGate(sluice.Config{Name: name})
		e.Observe(sluice.Event{Kind: sluice.EventQueued, Gate: name})
	}
	e.Observe(sluice.Event{Kind: sluice.EventRejected, Gate: "g"})
	e.Observe(sluice.Event{Kind: sluice.EventRejected, Gate: "g", Reason: "new"})
	e.Observe(sluice.Event{Kind: "unknown", Gate: "g"})
	e.Observe(sluice.Event{})
	return nothing
}
