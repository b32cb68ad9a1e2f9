package leaky_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/foreseen"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A forecast is what then happens, whatever happened before.
func TestForecast(t *testing.T) {
	for name, before := range map[string]func(b *leaky.Bucket){
		"new":    func(*leaky.Bucket) {},
		"used":   func(b *leaky.Bucket) { b.Take(5); time.Sleep(700 * time.Millisecond); b.Take(1) },
		"debt":   func(b *leaky.Bucket) { b.Adjust(context.Background(), 23, 0) },
		"slower": func(b *leaky.Bucket) { b.Take(6); b.SetRate(limits.Rate{Count: 1, Per: time.Second, Burst: 4}) },
		"faster": func(b *leaky.Bucket) { b.Take(6); b.SetRate(limits.Rate{Count: 7, Per: time.Second, Burst: 9}) },
		"back": func(b *leaky.Bucket) {
			b.Take(6)
			b.SetRate(limits.Rate{Count: 1, Per: time.Second, Burst: 2})
			time.Sleep(time.Second)
			b.SetRate(limits.Rate{Count: 3, Per: time.Second, Burst: 6})
		},
	} {
		for _, cost := range []int64{1, 2, 6, 7} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(1234567)
				b := limits.Must(leaky.New(limits.Rate{Count: 3, Per: time.Second, Burst: 6}))
				before(b)
				foreseen.Check(t, fmt.Sprintf("%s, %d each", name, cost), b, 30, cost)
			})
		}
	}
}

func TestKeyed_Forecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := limits.Must(leaky.NewKeyed[string](limits.Rate{Count: 3, Per: time.Second, Burst: 6}))
		k.On("a").(foreseen.Forecaster).Forecast()
		if k.Len() != 0 {
			t.Error("a key is remembered because it was looked at")
		}
		foreseen.Check(t, "a new key", k.On("a"), 30, 2)
		time.Sleep(500 * time.Millisecond)
		foreseen.Check(t, "a used key", k.On("a"), 30, 1)
		k.TakeRate("b", limits.Rate{Count: 1, Per: time.Second, Burst: 20}, 15)
		foreseen.Check(t, "a key with another rate", k.On("b"), 30, 1)
	})
}
