package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

var _ expvar.Var = observe.Vars(nil)

var bg = context.Background()

func mustGate(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestVars_NoGates(t *testing.T) {
	if s := observe.Vars(observe.Gates()).String(); s != "[]" {
		t.Error(s)
	}
}

func TestVars_BusyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{
			Name: `a "b"`, Concurrency: 2, Rate: sluice.Rate{Count: 10, Per: time.Second}, RetryBudget: 5,
		})
		sluice.Retry(bg, g, func(context.Context) error {
			return errors.New("500") // twice, which is all the budget pays for
		}, sluice.RetryPolicy{Backoff: sluice.Constant(50 * time.Millisecond)})
		g.SetRate(sluice.Rate{Count: 20, Per: time.Second})
		p, _ := g.Acquire(bg, 1)
		g.TryAcquire(1)
		g.AcquireWithin(bg, 1, 0)
		g.PauseUntil(time.Now().Add(time.Hour), "429")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		for range 3 {
			go g.Acquire(ctx, 1)
			synctest.Wait()
		}
		want := `[{"name":"a \"b\"","in_flight":1,"pacing":1,"waiting":2,"limited_by":"pause",` +
			`"why":"3 calls wait for the pause (429), until 01:00:00 (1 h)","concurrency":2,"rate":"20/s","spacing":0.05,"retry_tokens":0,` +
			`"paused_until":"2000-01-01T01:00:00.15Z","paused_why":"429",` +
			`"last_error":"would have to wait 50ms for the rate of 20/s, 0s were allowed","last_error_at":"2000-01-01T00:00:00.15Z",` +
			`"admitted":3,"rejected":{"busy":1,"deadline":1,"canceled":0,"too_large":0,"queue_full":0,"closed":0,"other":0},` +
			`"retried":1,"unreturned":0,"wait":{"p50":0.065536,"p90":0.065536,"p99":0.065536}}]`
		if got := observe.Vars(observe.Gates(g)).String(); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
		cancel()
		synctest.Wait()
		p.Release()
		g.Close()
		g.Acquire(bg, 1)
		g.SetRate(sluice.Rate{})
		var after []struct {
			Rate     string
			Rejected map[string]int
		}
		if err := json.Unmarshal([]byte(observe.Vars(observe.Gates(g)).String()), &after); err != nil {
			t.Fatal(err)
		}
		if r := after[0].Rejected; r["canceled"] != 3 || r["closed"] != 1 || after[0].Rate != "unlimited" {
			t.Errorf("%v", after)
		}
	})
}

func TestVars_Learned(t *testing.T) {
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	gates := func(yield func(sluice.Stats) bool) {
		yield(sluice.Stats{Learned: &sluice.Learned{
			Phase: "windowed", Pace: 19.5, Rate: 20, AcceptedRate: 19, ThrottledRate: 21, Concurrency: 3,
			Window: sluice.Rate{Count: 100, Per: 5 * time.Second}, Blocked: true, ThrottleCost: time.Minute,
			Throttled: 9, Ignored: 1, Updates: 2, UpdatedAt: at, Why: "same number per window",
		}})
	}
	want := `"learned":{"phase":"windowed","pace":19.5,"rate":20,"accepted_rate":19,"throttled_rate":21,"concurrency":3,"window":"100/5s",` +
		`"blocked":true,"pause":60,"throttled":9,"ignored":1,"changes":2,"changed":"2000-01-01T00:00:00Z","why":"same number per window"}`
	if got := observe.Vars(gates).String(); !strings.Contains(got, want) {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestGates(t *testing.T) {
	a, b := mustGate(t, sluice.Config{Name: "a"}), mustGate(t, sluice.Config{Name: "b"})
	keyed, err := sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: key})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		keyed.Do(bg, key, func(context.Context) error { return nil })
	}
	for what, gates := range map[string]iter.Seq[sluice.Stats]{
		"gates": observe.Gates(a, b), "keyed": observe.Keyed(keyed),
	} {
		var names []string
		for s := range gates {
			names = append(names, s.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%s: %v", what, names)
		}
		for range gates { // it may be left
			break
		}
	}
}

func TestAll(t *testing.T) {
	var reported []string
	note := func(name string) func(sluice.Event) {
		return func(e sluice.Event) { reported = append(reported, name+e.Gate) }
	}
	if observe.Multi(nil, nil) != nil {
		t.Error("of none: not nil")
	}
	for _, o := range []func(sluice.Event){
		observe.Multi(note("a")),
		observe.Multi(nil, note("b"), note("c"), nil, observe.Multi(note("d"), note("e"))),
	} {
		o(sluice.Event{Gate: "1"})
	}
	if want := []string{"a1", "b1", "c1", "d1", "e1"}; !slices.Equal(reported, want) {
		t.Errorf("reported %v", reported)
	}
}
