package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

const (
	perNano = 1_000_000_000 // per second: the next slot has always come
	slack   = 1_000         // of xtime's, see BenchmarkPacerTry
	huge    = 1_000_000_000_000
)

// BenchmarkPacerTry asks an evenly spacing limiter to let a call through now.
// admitted: one per nanosecond is allowed. rejected: one per hour is, and it has
// gone. For admitted xtime has a burst of 1,000 and uber its usual slack of 10:
// both read the clock before they enter, so that two CPUs overtake each other
// and xtime would reject a tenth of the calls, uber put them to sleep.
func BenchmarkPacerTry(b *testing.B) {
	b.Run("granted", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			p := limits.Must(pacer.New(limits.Rate{Count: perNano, Per: time.Second}))
			each(b, func(n int) { grants(b, try(p, n), n) })
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(perNano, slack)
			each(b, func(n int) { grants(b, allow(l, n), n) })
		})
		b.Run("uber", uber)
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewSmoothBuilder[any](perNano, time.Second).Build()
			each(b, func(n int) { grants(b, permit(l, n), n) })
		})
		b.Run("throttled", func(b *testing.B) {
			// Without a burst, one of two CPUs that had asked the clock before the
			// other is rejected.
			l := newThrottled(b, throttled.PerDuration(perNano, time.Second), 1_000_000)
			each(b, func(n int) { grants(b, gcra(l, n), n) })
		})
	})
	b.Run("refused", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
			p.TryAcquire(1)
			each(b, func(n int) { refuses(b, try(p, n), n) })
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(rate.Every(time.Hour), 1)
			l.Allow()
			each(b, func(n int) { refuses(b, allow(l, n), n) })
		})
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewSmoothBuilder[any](1, time.Hour).Build()
			l.TryAcquirePermit()
			each(b, func(n int) { refuses(b, permit(l, n), n) })
		})
		b.Run("throttled", func(b *testing.B) {
			l := newThrottled(b, throttled.PerHour(1), 0)
			gcra(l, 1)
			each(b, func(n int) { refuses(b, gcra(l, n), n) })
		})
	})
}

// BenchmarkLeakyTake asks a limiter with a capacity. admitted: it is larger
// than what could be asked for. rejected: it is used up and comes back in an
// hour. sluice and throttled also say what remains and when to retry,
// sethvargo nearly so; the others say yes or no.
func BenchmarkLeakyTake(b *testing.B) {
	b.Run("granted", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			l := limits.Must(leaky.New(limits.Rate{Count: 1_000_000, Per: time.Second, Burst: huge}))
			each(b, func(n int) { grants(b, pour(l, n), n) })
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(1_000_000, huge)
			each(b, func(n int) { grants(b, allow(l, n), n) })
		})
		b.Run("uber", uber)
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewBurstyBuilder[any](huge, time.Hour).Build()
			each(b, func(n int) { grants(b, permit(l, n), n) })
		})
		b.Run("throttled", func(b *testing.B) {
			l := newThrottled(b, throttled.PerSec(1_000_000), huge)
			each(b, func(n int) { grants(b, gcra(l, n), n) })
		})
		b.Run("sethvargo", func(b *testing.B) { takeWindow(b, huge, grants) })
	})
	b.Run("refused", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			l := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1}))
			l.Take(1)
			each(b, func(n int) { refuses(b, pour(l, n), n) })
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(rate.Every(time.Hour), 1)
			l.Allow()
			each(b, func(n int) { refuses(b, allow(l, n), n) })
		})
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewBurstyBuilder[any](1, time.Hour).Build()
			l.TryAcquirePermit()
			each(b, func(n int) { refuses(b, permit(l, n), n) })
		})
		b.Run("throttled", func(b *testing.B) {
			l := newThrottled(b, throttled.PerHour(1), 0)
			gcra(l, 1)
			each(b, func(n int) { refuses(b, gcra(l, n), n) })
		})
		b.Run("sethvargo", func(b *testing.B) { takeWindow(b, 1, refuses) })
	})
}

// BenchmarkPacerReserve claims a slot. now: it is free. later: it is not, and
// up to 1,000 claims are ahead; then a new limiter takes over, so that memory
// stays bounded. cancel: it is not, and is returned. Only xtime and sluice
// can do the last; failsafe's reservation is a number, and nothing that could
// be returned.
func BenchmarkPacerReserve(b *testing.B) {
	b.Run("now", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			p := limits.Must(pacer.New(limits.Rate{Count: perNano, Per: time.Second}))
			each(b, func(n int) {
				got := 0
				for range n {
					if p.Reserve(1) != (pacer.Reservation{}) {
						got++
					}
				}
				grants(b, got, n)
			})
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(perNano, slack)
			each(b, func(n int) {
				got := 0
				for range n {
					if l.Reserve().OK() {
						got++
					}
				}
				grants(b, got, n)
			})
		})
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewSmoothBuilder[any](perNano, time.Second).Build()
			each(b, func(n int) {
				got := 0
				for range n {
					if l.ReservePermit() == 0 {
						got++
					}
				}
				grants(b, got, n)
			})
		})
	})
	b.Run("later", func(b *testing.B) {
		b.Run("floor", floor)
		b.Run("sluice", func(b *testing.B) {
			renewed(b, func() *pacer.Pacer {
				return limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
			},
				func(current *atomic.Pointer[pacer.Pacer], n int) {
					got := 0
					for range n {
						if current.Load().Reserve(1) != (pacer.Reservation{}) {
							got++
						}
					}
					grants(b, got, n)
				})
		})
		b.Run("xtime", func(b *testing.B) {
			renewed(b, func() *rate.Limiter { return rate.NewLimiter(rate.Every(time.Hour), 1) },
				func(current *atomic.Pointer[rate.Limiter], n int) {
					got := 0
					for range n {
						if current.Load().Reserve().OK() {
							got++
						}
					}
					grants(b, got, n)
				})
		})
		b.Run("failsafe", func(b *testing.B) {
			l := ratelimiter.NewSmoothBuilder[any](1, time.Second).Build() // 10⁹ s are still a Duration
			l.ReservePermit()
			each(b, func(n int) {
				got := 0
				for range n {
					if l.ReservePermit() > 0 {
						got++
					}
				}
				grants(b, got, n)
			})
		})
	})
	b.Run("cancel", func(b *testing.B) {
		b.Run("sluice", func(b *testing.B) {
			p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
			p.TryAcquire(1)
			each(b, func(n int) {
				got := 0
				for range n {
					if p.Reserve(1).Cancel() {
						got++
					}
				}
				grants(b, got, n)
			})
		})
		b.Run("xtime", func(b *testing.B) {
			l := rate.NewLimiter(rate.Every(time.Hour), 1)
			l.Allow()
			each(b, func(n int) {
				got := 0
				for range n {
					r := l.Reserve()
					r.Cancel()
					if r.OK() {
						got++
					}
				}
				grants(b, got, n)
			})
		})
	})
}

// renewed is each with a limiter that is replaced every 1,000 operations.
func renewed[L any](b *testing.B, make func() *L, loop func(current *atomic.Pointer[L], n int)) {
	var current atomic.Pointer[L]
	each(b, func(n int) {
		for n > 0 {
			k := min(n, 1000)
			current.Store(make())
			loop(&current, k)
			n -= k
		}
	})
}

// The loops. Each limiter is called directly, and its answer is used.

func floor(b *testing.B) {
	f := newFloorRate()
	each(b, func(n int) {
		got := 0
		for range n {
			if f.take() {
				got++
			}
		}
		sink.Store(int64(got))
	})
}

func try(p *pacer.Pacer, n int) (got int) {
	for range n {
		if p.TryAcquire(1) {
			got++
		}
	}
	return got
}

func pour(l *leaky.Bucket, n int) (got int) {
	for range n {
		if l.Take(1).Allowed() {
			got++
		}
	}
	return got
}

func allow(l *rate.Limiter, n int) (got int) {
	for range n {
		if l.Allow() {
			got++
		}
	}
	return got
}

func permit(l ratelimiter.RateLimiter[any], n int) (got int) {
	for range n {
		if l.TryAcquirePermit() {
			got++
		}
	}
	return got
}

func uber(b *testing.B) {
	l := ratelimit.New(perNano)
	each(b, func(n int) {
		got := 0
		for range n {
			if !l.Take().IsZero() {
				got++
			}
		}
		grants(b, got, n)
	})
}

func newThrottled(b *testing.B, most throttled.Rate, burst int) *throttled.GCRARateLimiterCtx {
	store, err := memstore.NewCtx(0)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: most, MaxBurst: burst})
	if err != nil {
		b.Fatal(err)
	}
	l.SetMaxCASAttemptsLimit(1_000_000) // with the usual 10 two CPUs make it fail
	return l
}

func gcra(l *throttled.GCRARateLimiterCtx, n int) (got int) {
	ctx := context.Background()
	for range n {
		if limited, _, err := l.RateLimitCtx(ctx, "key", 1); err == nil && !limited {
			got++
		}
	}
	return got
}

// takeWindow is sethvargo: tokens per hour, in a fixed window.
func takeWindow(b *testing.B, tokens uint64, check func(b *testing.B, got, n int)) {
	ctx := context.Background()
	store, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: time.Hour, DisablePurge: true})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close(ctx)
	if _, _, _, _, err := store.Take(ctx, "key"); err != nil {
		b.Fatal(err)
	}
	each(b, func(n int) {
		got := 0
		for range n {
			if _, _, _, ok, err := store.Take(ctx, "key"); err == nil && ok {
				got++
			}
		}
		check(b, got, n)
	})
}
