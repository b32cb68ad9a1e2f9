package window_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/queued"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// A keyedLimit is a Keyed, of either kind.
type keyedLimit interface {
	Take(key string, n int64) limits.Result
	Len() int
	SetQuota(quota window.Quota) error
	On(key string) limits.Limiter
}

var quotas = map[string]window.Quota{
	"sliding": {Window: 24 * time.Hour}, "fixed": {Window: 24 * time.Hour}, "calendar": {Per: window.Day},
}

// keyedLimits returns one of each kind, all of n per 24 h. In a bubble it is
// midnight.
func keyedLimits(t testing.TB, n, most int64) map[string]keyedLimit {
	t.Helper()
	cfg := limits.KeyedConfig{MaxKeys: most}
	perDay := window.Quota{Limit: n, Window: 24 * time.Hour}
	sliding, err1 := window.NewKeyedSliding[string](perDay, cfg)
	fixed, err2 := window.NewKeyedFixed[string](perDay, cfg)
	calendar, err3 := window.NewKeyedFixed[string](window.Quota{Limit: n, Per: window.Day}, cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return map[string]keyedLimit{"sliding": sliding, "fixed": fixed, "calendar": calendar}
}

// Each key answers as its own limit would, through whatever happens to it.
func TestKeyed_KeysAreLimitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, k := range keyedLimits(t, 5, 0) {
			time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour))) // midnight
			own := map[string]limit{"a": kinds(5)[name], "b": kinds(5)[name], "": kinds(5)[name]}
			for i, pause := range []time.Duration{0, 0, 1, time.Hour, 0, 11 * time.Hour, 0, 12 * time.Hour, time.Hour, 0, 100 * time.Hour, time.Hour} {
				time.Sleep(pause)
				for key, l := range own {
					n := int64(i+len(key)) % 7
					want(t, fmt.Sprintf("%s, %q, step %d: take %d", name, key, i, n), k.Take(key, n), l.Take(n))
					want(t, name, k.Take(key, 0), l.Take(0))
					if i%5 == 4 {
						delta := int64(i/5*4 - 2)
						k.On(key).Adjust(bg, delta, 0)
						l.Adjust(bg, delta, 0)
					}
					want(t, name, k.Take(key, 0), l.Take(0))
				}
			}
		}
	})
}

func TestKeyed_ForgetsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, k := range keyedLimits(t, 3, 0) {
			time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + time.Hour)))
			for i := range 1000 {
				k.Take(fmt.Sprint(i), 1)
				k.Take(fmt.Sprint("unused ", i), 0)
				k.Take(fmt.Sprint("too large ", i), 4)
			}
			k.Take("debt", 1)
			k.On("debt").Adjust(bg, 10, 0)
			if k.Len() != 1001 {
				t.Errorf("%s: %d keys, want 1001", name, k.Len())
			}
			time.Sleep(23 * time.Hour) // midnight: a calendar keeps its keys for as long as a day is
			for i := range 3000 {
				k.Take(fmt.Sprint(i), 0)
			}
			if k.Len() != 1001 {
				t.Errorf("%s: %d keys before their windows have been in force for a day", name, k.Len())
			}
			time.Sleep(time.Hour)
			k.Take("new", 1)
			for i := range 3000 {
				k.Take(fmt.Sprint(i), 0)
			}
			if k.Len() != 1 {
				t.Errorf("%s: %d keys left, want the new one", name, k.Len())
			}
		}
	})
}

func TestKeyedConfig_MaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, k := range keyedLimits(t, 3, 2) {
			k.Take("a", 1)
			k.Take("b", 1)
			got := k.Take("c", 1)
			want(t, name, got, limits.Result{RetryAfter: limits.Never})
			if got.Err() != limits.ErrTooManyKeys {
				t.Errorf("%s: %v", name, got.Err())
			}
			if wait, err := k.On("c").Admit(bg, 1); wait != 0 || err != limits.ErrTooManyKeys {
				t.Errorf("%s: Admit: %v, %v", name, wait, err)
			}
			if err := k.On("c").Adjust(bg, 1, 0); err != limits.ErrTooManyKeys {
				t.Errorf("%s: Adjust: %v", name, err)
			}
			if !k.Take("a", 2).Allowed() || k.Take("a", 1).Allowed() || !k.Take("c", 0).Allowed() || k.Len() != 2 {
				t.Errorf("%s: the keys that are there do not work on", name)
			}
		}
		for _, most := range []int64{-1, 1<<29 + 1} {
			_, err1 := window.NewKeyedSliding[string](window.Quota{Limit: 1, Window: 1}, limits.KeyedConfig{MaxKeys: most})
			_, err2 := window.NewKeyedFixed[string](window.Quota{Limit: 1, Window: 1}, limits.KeyedConfig{MaxKeys: most})
			if err1 == nil || err2 == nil {
				t.Errorf("MaxKeys %d: %v, %v", most, err1, err2)
			}
		}
	})
}

func TestKeyed_SetQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, k := range keyedLimits(t, 3, 0) {
			k.Take("a", 3)
			set := func(limit int64) error {
				q := quotas[name]
				q.Limit = limit
				return k.SetQuota(q)
			}
			if err := set(5); err != nil {
				t.Error(err)
			}
			if got := k.Take("a", 1); !got.Allowed() || got.Limit != 5 || got.Remaining != 1 {
				t.Errorf("%s: by a limit of 5: %+v", name, got)
			}
			if err := set(2); err != nil {
				t.Error(err)
			}
			if got := k.Take("a", 1); got.Allowed() || got.Limit != 2 || got.RetryAfter != 24*time.Hour {
				t.Errorf("%s: by a limit of 2: %+v", name, got)
			}
			for _, q := range []window.Quota{{Limit: 9, Window: time.Hour}, {Limit: 9, Per: window.Week}, {Limit: 9, Per: window.Day, Location: time.Local}} {
				if k.SetQuota(q) == nil {
					t.Errorf("%s: other windows: %v", name, q)
				}
			}
			if set(0) == nil || k.Take("a", 0).Limit != 2 {
				t.Errorf("%s: %+v", name, k.Take("a", 0))
			}
			if err := set(6); err != nil || k.Take("a", 0).Limit != 6 || k.Take("a", 0).Remaining != 2 {
				t.Errorf("%s: %v, %+v", name, err, k.Take("a", 0))
			}
			done, cancel := context.WithCancel(bg)
			cancel()
			if _, err := k.On("a").Admit(done, 1); err != context.Canceled || k.Take("a", 0).Remaining != 2 {
				t.Errorf("%s: Admit with a done context: %v", name, err)
			}
			if _, err := k.On("a").Admit(bg, 7); err != limits.ErrTooLarge {
				t.Errorf("%s: 7 of 6: %v", name, err)
			}
			for what, f := range map[string]func(){
				"Take":  func() { k.Take("a", -1) },
				"Admit": func() { k.On("a").Admit(done, -1) },
			} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%s: %s does not panic", name, what)
						}
					}()
					f()
				}()
			}
		}
	})
}

func TestQueue_OfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, k := range keyedLimits(t, 1, 0) {
			l := synclog.New()
			a, b := queued.For(k.On("a "+name)), queued.For(k.On("b "+name))
			l.Call(0, func() error { return a.Acquire(bg, 1) })
			l.Call(1, func() error { return a.Acquire(bg, 1) })
			l.Call(2, func() error { return b.Acquire(bg, 1) })
			time.Sleep(48 * time.Hour)
			l.Want(t, synclog.At(0, 0), synclog.At(2, 0), synclog.At(1, 24*time.Hour))
		}
	})
}
