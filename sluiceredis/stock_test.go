package sluiceredis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// calling has so many callers call one time after the other for so long, and returns how many calls
// began.
func calling(callers int, d time.Duration, call func(ctx context.Context, i int) error) int64 {
	ctx, cancel := context.WithTimeout(bg, d)
	defer cancel()
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for call(ctx, i) == nil {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Second) // in a bubble: what is under way arrives, and what is left is returned
	synctest.Wait()
	return n.Load()
}

// far runs f in a bubble with a server 5 ms away.
func far(t *testing.T, f func(t *testing.T, v *virtual, s *Store)) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(2500 * time.Microsecond)
		f(t, v, v.machine())
	})
}

func gateOf(cfg sluice.Config, all ...limits.Limiter) *sluice.Gate {
	for _, l := range all {
		cfg.Limits = append(cfg.Limits, sluice.Limit{Limiter: l})
	}
	return limits.Must(sluice.New(cfg))
}

// A far server does not slow a gate, whatever else the gate has: it lets as many calls through
// as it allows, in few scripts, and what was taken ahead and not used is returned.
func TestStock_Gates(t *testing.T) {
	rate := limits.Rate{Count: 5000, Per: time.Second, Burst: 500}
	own := limits.Rate{Count: 1000, Per: time.Second}
	for _, v := range []struct {
		name    string
		gate    sluice.Config
		callers int
		hold    time.Duration // of a call
		least   int64         // calls in 3 s
		most    int64
		scripts int
	}{
		{"one caller", sluice.Config{}, 1, 0, 590, 601, 603},
		{"two callers", sluice.Config{}, 2, 0, 1100, 1202, 603},
		{"many callers", sluice.Config{}, 256, 0, 15_200, 15_500, 620},
		{"with a rate", sluice.Config{Rate: own}, 256, 0, 2_900, 3_001, 1200},
		{"with a cap", sluice.Config{Concurrency: 40}, 256, 20 * time.Millisecond, 4_000, 6_040, 1200},
	} {
		t.Run(v.name, func(t *testing.T) {
			far(t, func(t *testing.T, server *virtual, s *Store) {
				b := limits.Must(s.Bucket("b", rate))
				g := gateOf(v.gate, b.On("k"))
				n := calling(v.callers, 3*time.Second, func(ctx context.Context, _ int) error {
					return g.Do(ctx, func(ctx context.Context) error { time.Sleep(v.hold); return nil })
				})
				left, err := b.Take(bg, "k", 0)
				t.Logf("%d calls in %d scripts", n, server.calls)
				if n < v.least || n > v.most || server.calls > v.scripts || left.Remaining != 500 || err != nil {
					t.Errorf("%d calls (%d to %d) in %d scripts (%d), then %d remain of 500, %v",
						n, v.least, v.most, server.calls, v.scripts, left.Remaining, err)
				}
				if got := s.Stats(); got.Unreturned > uint64(n/100) {
					t.Errorf("%d of %d units are stranded", got.Unreturned, n)
				}
			})
		})
	}
}

// Callers who leave, and gates that stop, take nothing with them.
func TestStock_NothingIsLost(t *testing.T) {
	for after := range 40 { // in units of half a millisecond
		far(t, func(t *testing.T, _ *virtual, s *Store) {
			b := limits.Must(s.Bucket("b", limits.Rate{Count: 1, Per: time.Hour, Burst: 1000}))
			g := gateOf(sluice.Config{Concurrency: 30}, b.On("k"))
			ctx, cancel := context.WithCancel(bg)
			var n atomic.Int64
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					own := ctx
					if i%3 == 0 {
						own = bg
					}
					if g.Wait(own) == nil {
						n.Add(1)
					}
				})
			}
			time.Sleep(time.Duration(after) * time.Millisecond / 2)
			switch after % 3 {
			case 0:
				g.PauseUntil(time.Now().Add(time.Minute), "")
			case 1:
				g.Close()
			}
			cancel()
			wg.Wait()
			time.Sleep(time.Second)
			left, err := b.Take(bg, "k", 0)
			// The first call may have been under way alone.
			if lost := 1000 - n.Load() - left.Remaining; err != nil || lost < 0 || lost > int64(s.Stats().Ambiguous) {
				t.Errorf("after %v: %d calls began and %d remain of 1000, %v", time.Duration(after)*time.Millisecond/2, n.Load(), left.Remaining, err)
			}
		})
	}
}

// Calls of different costs take from one stock.
func TestStock_Costs(t *testing.T) {
	far(t, func(t *testing.T, v *virtual, s *Store) {
		b := limits.Must(s.Bucket("b", limits.Rate{Count: 100_000, Per: time.Second, Burst: 10_000}))
		g := gateOf(sluice.Config{RateUnit: sluice.Cost}, b.On("k"))
		var cost atomic.Int64
		n := calling(100, 10*time.Second, func(ctx context.Context, i int) error {
			n := int64(1 + i%10*7)
			p, err := g.Acquire(ctx, n)
			if err == nil {
				p.Release()
				cost.Add(n)
			}
			return err
		})
		t.Logf("%d calls of %d in %d scripts, %+v", n, cost.Load(), v.calls, s.Stats())
		if cost.Load() < 950_000 || cost.Load() > 1_010_000 || v.calls > 6000 {
			t.Errorf("%d calls of cost %d in %d scripts", n, cost.Load(), v.calls)
		}
	})
}

// The children of one parent share its stock, and take turns.
func TestStock_Children(t *testing.T) {
	far(t, func(t *testing.T, v *virtual, s *Store) {
		b := limits.Must(s.Bucket("b", limits.Rate{Count: 5000, Per: time.Second, Burst: 500}))
		parent := gateOf(sluice.Config{}, b.On("k"))
		var gates []*sluice.Gate
		for range 50 {
			gates = append(gates, limits.Must(sluice.New(sluice.Config{Parent: parent})))
		}
		counts := make([]int, len(gates))
		var mu sync.Mutex
		n := calling(200, 2*time.Second, func(ctx context.Context, i int) error {
			err := gates[i%50].Wait(ctx)
			mu.Lock()
			counts[i%50]++
			mu.Unlock()
			return err
		})
		t.Logf("%d calls in %d scripts, %v", n, v.calls, counts)
		if n < 10_000 || n > 10_500 || v.calls > 440 {
			t.Errorf("%d calls in %d scripts", n, v.calls)
		}
		for _, c := range counts {
			if c < 180 || c > 230 {
				t.Errorf("%d calls of one of 50 children: %v", c, counts)
				break
			}
		}
	})
}

// Two machines share a limit as they do without a gate: neither keeps units that the other could use.
func TestStock_TwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(2500 * time.Microsecond)
		var gates []*sluice.Gate
		for i := range 2 {
			b := limits.Must(v.machine().Bucket("b", limits.Rate{Count: 1000, Per: time.Second, Burst: 100}))
			gates = append(gates, gateOf(sluice.Config{Rate: limits.Rate{Count: int64(300 + 700*i), Per: time.Second}}, b.On("k")))
		}
		var by [2]atomic.Int64
		n := calling(200, 10*time.Second, func(ctx context.Context, i int) error {
			err := gates[i%2].Wait(ctx)
			if err == nil {
				by[i%2].Add(1)
			}
			return err
		})
		t.Logf("%d calls, %d and %d, in %d scripts", n, by[0].Load(), by[1].Load(), v.calls)
		if n < 9_900 || n > 10_100 || by[0].Load() < 2_000 {
			t.Errorf("%d calls, %d and %d", n, by[0].Load(), by[1].Load())
		}
	})
}

// The windows of a real server, one that is a step with the bucket: what is taken ahead counts, and what is
// not used is returned.
func TestStock_Windows(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.storeOn(t, slow{b.client, 2 * time.Millisecond})
		bucket := limits.Must(s.Bucket("x/b", limits.Rate{Count: 1, Per: time.Hour, Burst: 300}))
		sliding := limits.Must(s.Sliding("x/s", 250, time.Hour))
		fixed := limits.Must(s.Fixed("x/f", FixedConfig{Limit: 200, Window: 24 * time.Hour}))
		g := gateOf(sluice.Config{Concurrency: 30}, bucket.On("k"), sliding.On("k"), fixed.On("k"))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var n atomic.Int64
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if g.Do(ctx, func(context.Context) error {
					if n.Add(1) == 150 {
						cancel()
					}
					return nil
				}) != nil {
					return
				}
			})
		}
		wg.Wait()
		text := func() string {
			s := ""
			for _, take := range []func(context.Context, string, int64) (limits.Result, error){bucket.Take, sliding.Take, fixed.Take} {
				r, err := take(bg, "k", 0)
				s += fmt.Sprint(r.Remaining, " ", err, " ")
			}
			return s
		}
		want := fmt.Sprintf("%d <nil> %d <nil> %d <nil> ", 300-n.Load(), 250-n.Load(), 200-n.Load())
		for end := time.Now().Add(10 * time.Second); text() != want && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if got := text(); got != want {
			t.Errorf("%d calls began, and remain %s, want %s, %+v", n.Load(), got, want, s.Stats())
		}
	})
}

// Calls of a gate leave at the slots of a pacer, however far its server is: all but those that pass
// during one round trip of nine. Machines that are slower use what they reserve.
func TestStock_Pacer(t *testing.T) {
	for _, v := range []struct {
		name        string
		ahead       time.Duration
		gates       []sluice.Config
		least, most int64
	}{
		{"one gate", 0, make([]sluice.Config, 1), 8_700, 10_002},
		{"Prefetch", 100 * time.Millisecond, make([]sluice.Config, 1), 9_300, 10_002},
		{"two machines", 0, make([]sluice.Config, 2), 9_700, 10_002},
		{"with a rate", 0, []sluice.Config{{Rate: limits.Rate{Count: 500, Per: time.Second}}, {}}, 8_000, 10_002},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newVirtual(2500 * time.Microsecond)
				var gates []*sluice.Gate
				for _, cfg := range v.gates {
					p := limits.Must(server.machine().Pacer("p", limits.Rate{Count: 5000, Per: time.Second}, PacerConfig{Prefetch: v.ahead}))
					gates = append(gates, gateOf(cfg, p))
				}
				by := make([]atomic.Int64, len(gates))
				n := calling(256, 2*time.Second, func(ctx context.Context, i int) error {
					err := gates[i%len(gates)].Wait(ctx)
					if err == nil {
						by[i%len(gates)].Add(1)
					}
					return err
				})
				t.Logf("%d calls in %d scripts, %d of the first", n, server.calls, by[0].Load())
				if n < v.least || n > v.most || server.calls > 420 {
					t.Errorf("%d calls (%d to %d) in %d scripts", n, v.least, v.most, server.calls)
				}
			})
		})
	}
}

// A call that is settled to more than its estimate, at the instant at which it began, takes that from the
// server and not from the stock, which may have less.
func TestStock_SettledToMore(t *testing.T) {
	far(t, func(t *testing.T, _ *virtual, s *Store) {
		b := limits.Must(s.Bucket("b", limits.Rate{Count: 1, Per: time.Hour, Burst: 1000}))
		g := gateOf(sluice.Config{}, b.On("k"))
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				p, err := g.Acquire(bg)
				if err != nil {
					t.Error(err)
					return
				}
				p.Settle(3)
				p.Release()
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if left, err := b.Take(bg, "k", 0); left.Remaining != 1000-60*3 || err != nil {
			t.Errorf("%d remain of 1000 after 60 calls of 3, %v", left.Remaining, err)
		}
	})
}

// A Joint of a Pacer may be asked without knowing what waits, and panics like that of other limits.
func TestStock_PacerAlone(t *testing.T) {
	p := limits.Must(limits.Must(New(InProcess(), Config{})).Pacer("p", limits.Rate{Count: 10, Per: time.Second}, PacerConfig{}))
	j := p.Join()
	if wait, which, err := j.AdmitAll(bg, []int64{1}, nil); wait != 0 || which != 0 || err != nil {
		t.Errorf("%v, %d, %v", wait, which, err)
	}
	for _, n := range [][]int64{nil, {-1}, {1, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: no panic", n)
				}
			}()
			_, _, _ = j.AdmitAll(bg, n, nil)
		}()
	}
}
