package sluice_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func TestKeyed_ForgetsGatesThatShareAKey(t *testing.T) {
	rate := limits.Rate{Count: 1000, Per: time.Second, Burst: 1000}
	quota := window.Quota{Limit: 1000, Window: time.Second}
	for name, on := range map[string]func() func(string) limits.Notifier{
		"leaky": func() func(string) limits.Notifier {
			return limits.Must(leaky.NewKeyed[string](rate, limits.KeyedConfig{})).On
		},
		"window": func() func(string) limits.Notifier {
			return limits.Must(window.NewKeyedSliding[string](quota, limits.KeyedConfig{})).On
		},
		"fixed": func() func(string) limits.Notifier {
			return limits.Must(window.NewKeyedFixed[string](quota, limits.KeyedConfig{})).On
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			on := on()
			k := limits.Must(sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: host, Limits: []sluice.Limit{{Limiter: on("all")}}})
			}, sluice.KeyedConfig{Idle: time.Second}))
			for i := range 100 {
				_ = k.Do(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil })
				time.Sleep(10 * time.Second)
			}
			if k.Len() > 3 {
				t.Errorf("%s: %d gates are kept", name, k.Len())
			}
		})
	}
}

// A key of a limit has its state in that limit, so the gate of one host may be forgotten
// although no other gate has its limiter.
func TestKeyed_KeyOfALimitOutlivesItsGate(t *testing.T) {
	const day = 24 * time.Hour
	for name, on := range map[string]func() func(string) limits.Notifier{
		"leaky": func() func(string) limits.Notifier {
			return limits.Must(leaky.NewKeyed[string](limits.Rate{Count: 1, Per: day}, limits.KeyedConfig{})).On
		},
		"window": func() func(string) limits.Notifier {
			return limits.Must(window.NewKeyedSliding[string](window.Quota{Limit: 1, Window: day}, limits.KeyedConfig{})).On
		},
		"fixed": func() func(string) limits.Notifier {
			return limits.Must(window.NewKeyedFixed[string](window.Quota{Limit: 1, Window: day}, limits.KeyedConfig{})).On
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			on := on()
			k := limits.Must(sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: host, Limits: []sluice.Limit{{Limiter: on(host)}}})
			}, sluice.KeyedConfig{Idle: time.Second}))
			for i := range 100 {
				_ = k.Do(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil })
				time.Sleep(10 * time.Second)
			}
			if k.Len() > 3 {
				t.Errorf("%s: %d gates are kept", name, k.Len())
			}
			_ = k.Use("0", func(gate *sluice.Gate) error {
				if _, ok := gate.TryAcquire(1); ok {
					t.Errorf("%s: a second call on the day of the first", name)
				}
				return nil
			})
		})
	}
}
