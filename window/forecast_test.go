package window_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/foreseen"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// A taker is a window with its direct methods.
type taker interface {
	limits.Limiter
	Take(n int64) limits.Result
	SetQuota(window.Quota) error
}

// A forecast is what then happens, whatever happened before.
func TestForecast(t *testing.T) {
	bg := context.Background()
	berlin := limits.Must(time.LoadLocation("Europe/Berlin"))
	makers := map[string]func() (taker, window.Quota){
		"fixed": func() (taker, window.Quota) {
			q := window.Quota{Limit: 6, Window: 5 * time.Second}
			return limits.Must(window.NewFixed(q)), q
		},
		"sliding": func() (taker, window.Quota) {
			q := window.Quota{Limit: 6, Window: 5 * time.Second}
			return limits.Must(window.NewSliding(q)), q
		},
	}
	for _, per := range []window.Calendar{window.Minute, window.Hour, window.Day, window.Week, window.Month} {
		makers["each "+string(per)] = func() (taker, window.Quota) {
			q := window.Quota{Limit: 6, Per: per, Location: berlin} // two changes of the clock a year
			return limits.Must(window.NewFixed(q)), q
		}
	}
	for name, before := range map[string]func(l taker, q window.Quota){
		"new":  func(taker, window.Quota) {},
		"used": func(l taker, _ window.Quota) { l.Take(3); time.Sleep(700 * time.Millisecond); l.Take(2) },
		"over": func(l taker, _ window.Quota) { l.Take(6); time.Sleep(5 * time.Second) },
		"debt": func(l taker, _ window.Quota) { l.Take(1); time.Sleep(time.Second); l.Adjust(bg, 23, 0) },
		"back": func(l taker, _ window.Quota) { l.Take(6); l.Adjust(bg, -6, 0); time.Sleep(time.Second) },
		"lower": func(l taker, q window.Quota) {
			l.Take(6)
			q.Limit = 2
			l.SetQuota(q)
		},
		"higher": func(l taker, q window.Quota) {
			l.Take(6)
			q.Limit = 20
			l.SetQuota(q)
		},
	} {
		for kind, make := range makers {
			for _, cost := range []int64{1, 2, 5, 7} {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(1234567)
					l, q := make()
					before(l, q)
					foreseen.Check(t, fmt.Sprintf("%s, %s, %d each", kind, name, cost), l, 50, cost)
				})
			}
		}
	}
}

// Many calls at different times stand for each other, nearly.
func TestSliding_Forecast_OfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Must(window.NewSliding(window.Quota{Limit: 10_000, Window: time.Hour}))
		for range 10_000 {
			l.Take(1)
			time.Sleep(100 * time.Millisecond)
		}
		f := l.Forecast()
		for n, want := range map[int64]time.Duration{1: time.Hour - 1000*time.Second, 5001: time.Hour - 500*time.Second} {
			if _, first, _ := f.Next(0, 1, n); max(first-want, want-first) > time.Second {
				t.Errorf("%d after %v, want about %v", n, first, want)
			}
		}
	})
}

func TestKeyed_Forecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := window.Quota{Limit: 6, Window: 5 * time.Second}
		for name, k := range map[string]*window.Keyed[string]{
			"sliding": limits.Must(window.NewKeyedSliding[string](q)),
			"fixed":   limits.Must(window.NewKeyedFixed[string](q)),
			"day":     limits.Must(window.NewKeyedFixed[string](window.Quota{Limit: 6, Per: window.Day})),
		} {
			k.On("a").(foreseen.Forecaster).Forecast()
			if k.Len() != 0 {
				t.Error("a key is remembered because it was looked at")
			}
			foreseen.Check(t, name+", a new key", k.On("a"), 30, 2)
			time.Sleep(500 * time.Millisecond)
			foreseen.Check(t, name+", a used key", k.On("a"), 30, 1)
		}
	})
}
