package sluiceredis

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// The largest of each number that the documentation allows is accepted and works; the
// next one is rejected.
func TestDocumentedMaxima(t *testing.T) {
	const tenTo15, day = 1_000_000_000_000_000, 24 * time.Hour // 10^15
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		for name, v := range map[string]func(more int64) error{
			"FixedConfig.Limit": func(more int64) error {
				f, err := s.Fixed("limit", FixedConfig{Limit: tenTo15 + more, Window: time.Hour})
				if err == nil {
					var res limits.Result
					if res, err = f.Take(bg, "k", tenTo15); !res.Allowed() || err != nil {
						t.Errorf("%+v, %v", res, err)
					}
					if res, err = f.Take(bg, "k", 1); res.Allowed() || err != nil || res.Remaining != 0 {
						t.Errorf("%+v, %v", res, err)
					}
					err = f.on("k").Adjust(bg, tenTo15, 0) // beyond what is counted with
				}
				if err == nil {
					_, err = f.Take(bg, "k", 0)
				}
				return err
			},
			"FixedConfig.Window": func(more int64) error {
				f, err := s.Fixed("window", FixedConfig{Limit: 1, Window: 104*day + time.Duration(more)*day})
				if err == nil {
					_, err = f.Take(bg, "k", 1)
				}
				return err
			},
			"limit of Semaphore": func(more int64) error {
				sem, err := s.Semaphore("limit", tenTo15+more, SemaphoreConfig{})
				if err == nil {
					l, lendErr := sem.acquire(bg, tenTo15, 0)
					if err = lendErr; err == nil {
						l.Release()
					}
				}
				return err
			},
			"SemaphoreConfig.Lease": func(more int64) error {
				sem, err := s.Semaphore("lease", 1, SemaphoreConfig{Lease: 52*day + time.Duration(more)*day})
				if err == nil {
					l, lendErr := sem.acquire(bg, 1, 0)
					if err = lendErr; err == nil {
						l.Release()
					}
				}
				return err
			},
			"limit of Log": func(more int64) error {
				l, err := s.Sliding("limit", 100_000+more, time.Hour)
				if err == nil {
					_, err = l.Take(bg, "k", 1)
				}
				return err
			},
			"Adjust of Log": func(more int64) error { return newLog(t, s, "adjust", 1, time.Hour).on("k").Adjust(bg, 10_000+more, 0) },
			"Take of Log": func(more int64) error {
				res, err := newLog(t, s, "take", 100_000, time.Hour).Take(bg, "k", 10_000+more)
				if err != nil {
					t.Error(err)
				}
				return res.Err()
			},
			"Config.Instances": func(more int64) error {
				_, err := New(b.client, Config{Instances: int(1000 + more)})
				return err
			},
			"depth of Leaky": func(more int64) error {
				l, err := s.Bucket("depth", limits.Rate{Burst: 1, Count: 1, Per: 104*day + time.Duration(more)*day})
				if err == nil {
					_, err = l.Take(bg, "k", 1)
				}
				return err
			},
		} {
			if err := v(0); err != nil {
				t.Errorf("%s: the documented maximum: %v", name, err)
			}
			if err := v(1); err == nil {
				t.Errorf("%s: more than the documented maximum is accepted", name)
			}
		}
	})
}

// A call for more than a log lets through together is rejected here as it is by a
// server, and callers who come together write no more than that in one script.
func TestLogTakesNoMoreAtOnce(t *testing.T) {
	onClocks(t, func(t *testing.T, open func() *Store, set func(at time.Duration)) {
		set(0)
		l := newLog(t, open(), "once", 50_000, time.Hour)
		want := limits.Result{Limit: 50_000, Remaining: 50_000, RetryAfter: limits.Never}
		if res, err := l.Take(bg, "k", 10_001); err != nil || res != want || res.Err() != limits.ErrTooLarge {
			t.Errorf("%+v, %v", res, err)
		}
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				if res, err := l.Take(bg, "k", 4_000); err != nil || !res.Allowed() {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		wg.Wait()
		if res, err := l.Take(bg, "k", 0); err != nil || res.Remaining != 2_000 {
			t.Errorf("%+v, %v", res, err)
		}
		if s := l.store.Stats(); !l.store.alone && s.Scripts < 6 { // two callers fit into one script
			t.Errorf("%d scripts for 48,000 units", s.Scripts)
		}
	})
}
