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
