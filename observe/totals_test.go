package observe_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe"
)

// Gates of one label are added up, whatever their names are.
func TestSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates := slices.Values([]sluice.Stats{
			{
				Name: "a1", InFlight: 2, Pacing: 1, Waiting: 3, LimitedBy: limits.ByRate, RetryTokens: 4, OldestWait: 2 * time.Second,
				Rate: sluice.Rate{Count: 3, Per: 2 * time.Second}, Concurrency: 8,
				PausedUntil: time.Now().Add(3 * time.Second),
				Learned:     &sluice.Learned{Pace: 19, Rate: 20, AcceptedRate: 18, ThrottledRate: 21, Concurrency: 5, Throttled: 3, Blocked: true, Share: .5, Peers: 2},
			},
			{
				Name: "a2", InFlight: 1, Waiting: 1, LimitedBy: limits.ByRate, Rate: sluice.Rate{Count: 1, Per: time.Second},
				PausedUntil: time.Now().Add(time.Second), Learned: &sluice.Learned{Pace: 1, Throttled: 1},
			},
			{Name: "a3", Waiting: 1, OldestWait: time.Minute, LimitedBy: limits.ByConcurrency},
			{Name: "a4", Learned: &sluice.Learned{Unit: "tokens", Pace: 1000, Blocked: true, Units: []sluice.Learned{
				{Unit: "tokens", Pace: 1000, Throttled: 2, Share: .125}, {Unit: sluice.Calls, Pace: 5, Throttled: 4, Share: .25, Peers: 3},
			}}},
			{Name: "b"},
		})
		got := observe.Sum(gates, func(name string) string { return name[:1] })
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"a", "b"}) {
			t.Fatalf("labels %q", keys)
		}
		want := observe.Totals{
			Gates: 4, InFlight: 3, Waiting: 6, OldestWait: time.Minute, RetryTokens: 4, Rate: 2.5, Concurrency: 8, Paused: 2, PauseLeft: 3 * time.Second,
			LimitedBy: map[limits.Cause]int{limits.ByRate: 2, limits.ByConcurrency: 1},
		}
		want.Learning, want.Blocked = 3, 2
		want.Learned = map[sluice.Unit]*sluice.Learned{
			sluice.Calls: {Pace: 25, Rate: 20, AcceptedRate: 18, ThrottledRate: 21, Concurrency: 5, Throttled: 8, Share: .75, Peers: 5},
			"tokens":     {Pace: 1000, Throttled: 2, Share: .125},
		}
		if !reflect.DeepEqual(*got["a"], want) {
			t.Errorf("got %+v\nwant %+v", *got["a"], want)
		}
		if !reflect.DeepEqual(*got["b"], observe.Totals{Gates: 1, LimitedBy: map[limits.Cause]int{}, Learned: map[sluice.Unit]*sluice.Learned{}}) {
			t.Errorf("%+v", *got["b"])
		}
	})
}
