package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func newBlocks(t testing.TB, l *Bucket, machines int64, hold time.Duration) *Blocks {
	t.Helper()
	b, err := l.Blocks(machines, hold)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// take takes n, and returns whether it was allowed and how long otherwise.
func take(t *testing.T, b *Blocks, n int64) (bool, time.Duration) {
	t.Helper()
	res, err := b.Take(bg, "k", n)
	if err != nil {
		t.Fatal(err)
	}
	return res.Allowed(), res.RetryAfter
}

// An even load settles at one round trip for half a block, and nobody waits for it.
func TestBlocksFollowTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(ms) // there, and another one back
		s := v.machine()
		b := newBlocks(t, newLeaky(t, s, "even", leaky.Quota{Capacity: 10_000, Count: 10_000, Per: sec}), 1, 0)
		waited, calls := 0, 0
		for i := range 2000 { // 1000 a second, so 50 in a hold
			if i == 1000 {
				waited, calls = 0, v.count()
			}
			began := time.Now()
			if ok, _ := take(t, b, 1); !ok {
				t.Fatal("refused")
			}
			if time.Since(began) > 0 {
				waited++
			}
			time.Sleep(ms - time.Since(began)%ms)
		}
		if calls = v.count() - calls; waited > 0 || calls < 20 || calls > 45 {
			t.Errorf("in a second of 1000 calls %d waited for %d round trips", waited, calls)
		}
		if got := s.Stats(); got.Local+uint64(v.count()) < 2000 {
			t.Errorf("%+v", got)
		}
	})
}

// A key that is seldom asked has nothing taken ahead, and costs what it did.
func TestNothingIsTakenAheadForFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		b := newBlocks(t, newLeaky(t, v.machine(), "few", leaky.Quota{Capacity: 100, Count: 1, Per: sec}), 1, 0)
		for range 20 {
			if ok, _ := take(t, b, 1); !ok {
				t.Fatal("refused")
			}
			time.Sleep(50 * ms)
		}
		if v.count() != 20 || v.level() != 19*sec {
			t.Errorf("%d calls, %v in the bucket", v.count(), v.level())
		}
	})
}

// Near the limit nothing is taken ahead: one machine gets exactly what it got
// without blocks, at the same instants.
func TestBlocksNearTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		b := newBlocks(t, newLeaky(t, v.machine(), "near", leaky.Quota{Capacity: 10, Count: 100, Per: sec}), 1, 0)
		began, got := time.Now(), 0
		for time.Since(began) < sec {
			ok, retry := take(t, b, 1)
			if ok {
				got++
				continue
			}
			if retry <= 0 || retry > 10*ms {
				t.Fatalf("%v: retry after %v", time.Since(began), retry)
			}
			time.Sleep(retry)
		}
		if got != 10+99 {
			t.Errorf("%d in a second, want 109", got)
		}
		if ok, _ := take(t, b, 7); ok {
			t.Error("seven fit beside ten")
		}
	})
}

// A refusal is known here until enough can have leaked, to the nanosecond, and
// for no longer than a hold.
func TestRefusalsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		l := newLeaky(t, v.machine(), "known", leaky.Quota{Capacity: 2, Count: 25, Per: sec})
		b := newBlocks(t, l, 1, 0)
		step := func(wait time.Duration, n int64, ok bool, retry time.Duration, calls int) {
			t.Helper()
			time.Sleep(wait)
			before := v.count()
			if got, r := take(t, b, n); got != ok || r != retry || v.count()-before != calls {
				t.Errorf("%d: %v, %v, %d calls; want %v, %v, %d", n, got, r, v.count()-before, ok, retry, calls)
			}
		}
		step(0, 2, true, 0, 1)
		step(0, 1, false, 40*ms, 0)
		step(0, 2, false, 80*ms, 0)
		step(40*ms-1, 1, false, 1, 0)
		step(1, 1, true, 0, 1)
		step(0, 1, false, 40*ms, 0)
		step(39*ms, 2, false, 41*ms, 0)
		step(1*ms, 2, false, 40*ms, 0)
		step(10*ms, 2, false, 30*ms, 1) // after a hold it is asked
		step(0, 1, true, 0, 1)

		// What another one gives back is noticed after a hold.
		step(0, 2, false, 70*ms, 0)
		if err := l.On("k").Adjust(bg, -1, 0); err != nil {
			t.Fatal(err)
		}
		step(30*ms, 2, false, 40*ms, 0)
		step(20*ms, 2, true, 0, 1)
	})
}

// What has leaked is counted from when the server was asked, not from its answer:
// who is told when to come again is never told too late.
func TestRefusalsKnowTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(ms)
		b := newBlocks(t, newLeaky(t, v.machine(), "way", leaky.Quota{Capacity: 1, Count: 100, Per: sec}), 1, 0)
		take(t, b, 1) // decided after 1 ms, known after 2
		if ok, retry := take(t, b, 1); ok || retry != 8*ms {
			t.Errorf("%v, %v", ok, retry)
		}
		time.Sleep(8 * ms) // and there are 11 when it arrives
		if ok, _ := take(t, b, 1); !ok || v.count() != 2 {
			t.Errorf("%v, %d calls", ok, v.count())
		}
	})
}

// What is left of a block is given back at the end of its hold, if it cannot
// have leaked by then, and lapses if it can.
func TestWhatIsLeftOfABlock(t *testing.T) {
	for _, v := range []struct {
		name               string
		interval           time.Duration
		slow               time.Duration // how much longer a correction takes to arrive
		refunded, stranded uint64
		calls              int // after the hold
	}{
		{"given back", sec, 0, 6, 0, 1},
		{"arrives in time", sec, 6*sec - 50*ms - us, 6, 0, 1}, // the six leak in 6 s
		{"arrives too late", sec, 6*sec - 50*ms, 0, 6, 1},
		{"may have leaked", 8 * ms, 0, 0, 6, 0},
		{"cannot quite", 8*ms + 334*us, 0, 6, 0, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newVirtual(0)
				r.slow[adjust] = v.slow
				s, err := New(r, Config{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				b := newBlocks(t, newLeaky(t, s, "left", leaky.Quota{Capacity: 1000, Count: 1, Per: v.interval}), 1, 0)
				for range 8 { // takes 1, 1, 2, 4 units and, as one of those is left, 6 more
					take(t, b, 1)
					synctest.Wait()
					time.Sleep(us)
				}
				const since = 2 * us // the last of those calls
				if r.level() != 14*v.interval-8*us || r.count() != 5 {
					t.Fatalf("%v taken in %d calls", r.level(), r.count())
				}
				began := time.Now()
				time.Sleep(50*ms - since - 1)
				synctest.Wait()
				if r.count() != 5 || s.Stats().Stranded != 0 {
					t.Error("ended too early")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if r.count() != 5+v.calls {
					t.Errorf("%d calls", r.count())
				}
				time.Sleep(v.slow)
				synctest.Wait()
				want := max(0, time.Duration(14-v.refunded)*v.interval-8*us-time.Since(began))
				if got := s.Stats(); got.Refunded != v.refunded || got.Stranded != v.stranded || r.level() != want {
					t.Errorf("%+v; %v in the bucket, want %v", got, r.level(), want)
				}
			})
		})
	}
}

const us = time.Microsecond

// The script itself knows when it is too late.
func TestGivingBackLotsInTime(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLeaky(t, s, "lots", leaky.Quota{Capacity: 100, Count: 1, Per: sec})
		if _, err := l.Take(bg, "k", 10); err != nil {
			t.Fatal(err)
		}
		c := l.quoted.Load().cell
		c.key = s.key("leaky2", "lots", "k", "")
		in := lot{n: 4, deadline: int64((epoch + 4*sec) / us)}
		clock.set(4*sec - us)
		s.giveBackLot(c, in)
		if got := s.Stats(); got.Refunded != 4 || got.Stranded != 0 {
			t.Errorf("a microsecond before it was too late: %+v", got)
		}
		clock.set(4 * sec)
		s.giveBackLot(c, in)
		if got := s.Stats(); got.Refunded != 4 || got.Stranded != 4 {
			t.Errorf("it was not too late: %+v", got)
		}
		if res, err := l.Peek(bg, "k"); err != nil || res.ResetAfter != 2*sec {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A departure is a unit that was admitted, not before from and not after to.
type departure struct{ from, to time.Duration }

// checkWindows checks all windows of departures against the bound of Blocks, and
// returns how close they come to it: the most that one has above capacity + r·W.
func checkWindows(all []departure, q leaky.Quota, machines int64, hold time.Duration) (most int64, err error) {
	interval := q.Per / time.Duration(q.Count)
	block := (q.Capacity + 2*machines - 1) / (2 * machines)
	ends := slices.Clone(all)
	slices.SortFunc(ends, func(a, b departure) int { return int(a.to - b.to) })
	for _, first := range all {
		in := int64(0)
		for _, last := range ends {
			if last.from < first.from {
				continue
			}
			in++
			w := last.to - first.from
			even := q.Capacity + int64(w/interval)
			most = max(most, in-even)
			if in > even+machines*block || in > q.Capacity+int64((w+hold)/interval) {
				return most, fmt.Errorf("%d in a window of %v, at %v: without blocks there would be at most %d", in, w, first.from, even)
			}
		}
	}
	return most, nil
}

// The test of the bound can fail.
func TestWindowsAreChecked(t *testing.T) {
	q := leaky.Quota{Capacity: 4, Count: 100, Per: sec}
	at := func(n int, d time.Duration) []departure { return slices.Repeat([]departure{{d, d}}, n) }
	for n, ok := range map[int]bool{6: true, 7: false} { // M·b is 2
		if _, err := checkWindows(at(n, 0), q, 2, sec); (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
	for n, ok := range map[int]bool{5: true, 6: false} { // r·hold is 1
		if _, err := checkWindows(at(n, 0), q, 2, 10*ms); (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, err := checkWindows(append(at(5, 0), at(2, 19*ms)...), q, 2, 10*ms); err == nil {
		t.Error("seven within 19 ms")
	}
}

// The bound holds exactly, for machines that are asked unevenly and in bursts, one
// of which dies; and no unit is lost or made.
func TestBoundOfBlocks(t *testing.T) {
	const machines, hold = 4, 50 * ms
	var most int64
	for seed := range uint64(24) {
		q := leaky.Quota{Capacity: 40, Count: 1000, Per: sec} // M·b is 20
		if seed%2 == 0 {
			q.Capacity = 400 // r·hold is 50
		}
		synctest.Test(t, func(t *testing.T) {
			v := newVirtual(300 * us)
			var all []departure
			var wg sync.WaitGroup
			began := time.Now()
			for m := range machines {
				b := newBlocks(t, newLeaky(t, v.machine(), "bound", q), machines, hold)
				random := rand.New(rand.NewPCG(seed, uint64(m)))
				leave := func() bool {
					ok, _ := take(t, b, 1)
					if now := time.Since(began); ok {
						v.set(func() { all = append(all, departure{now, now}) })
					}
					return ok
				}
				// Each round some are used, which have leaked when the next one
				// comes, with a block; and when that has leaked, but is held, all
				// are used that are to be had.
				wg.Go(func() {
					for round := range time.Duration(4) {
						if m == 1 && round == 3 {
							return // it dies, with what it holds
						}
						at := func(d time.Duration) { time.Sleep(round*8*hold + d - time.Since(began)) }
						for range 5 + random.Int64N(8) {
							leave()
						}
						at(60*ms + time.Duration(random.Int64N(int64(2*ms))))
						leave()
						at(105*ms + time.Duration(random.Int64N(int64(6*ms))))
						for leave() {
						}
						at(8 * hold)
					}
				})
			}
			wg.Wait()
			time.Sleep(sec)
			synctest.Wait()
			above, err := checkWindows(all, q, machines, hold)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			most = max(most, above)
		})
	}
	t.Logf("up to %d above capacity + r·W", most)
	if most < 5 {
		t.Error("that is what would be without blocks, too")
	}
}

// What machines were lent is what was used, given back or lapsed.
func TestNoUnitOfABlockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(200 * us)
		q := leaky.Quota{Capacity: 4000, Count: 1, Per: 36 * time.Minute} // so that nothing leaks
		var used atomic.Int64
		var wg sync.WaitGroup
		var stores []*Store
		for m := range 3 {
			s := v.machine()
			stores = append(stores, s)
			b := newBlocks(t, newLeaky(t, s, "lost", q), 3, 0)
			for c := range 8 {
				random := rand.New(rand.NewPCG(uint64(m), uint64(c)))
				wg.Go(func() {
					for range 60 {
						n := 1 + random.Int64N(3)
						ctx, cancel := context.WithTimeout(bg, time.Duration(random.Int64N(int64(sec))))
						if random.IntN(4) == 0 { // who gives up while the call is on its way
							cancel()
							ctx, cancel = context.WithTimeout(bg, 100*us)
						}
						if res, err := b.Take(ctx, "k", n); err == nil && res.Allowed() {
							used.Add(n)
						}
						cancel()
						time.Sleep(time.Duration(random.Int64N(int64(20 * ms))))
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(sec)
		synctest.Wait()
		lent := int64((v.level() + q.Per - 1) / q.Per)
		lapsed, unknown := uint64(0), uint64(0)
		for _, s := range stores {
			lapsed += s.Stats().Stranded
			unknown += s.Stats().Ambiguous
		}
		if lent < used.Load()+int64(lapsed) || unknown == 0 && lent != used.Load()+int64(lapsed) {
			t.Errorf("%d lent, %d used, %d lapsed, %d unknown", lent, used.Load(), lapsed, unknown)
		}
		t.Logf("%d lent, %d used, %d lapsed, %d calls unknown", lent, used.Load(), lapsed, unknown)
	})
}

// Keys that nobody asks are forgotten after two holds.
func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocks(t, newLeaky(t, newVirtual(0).machine(), "idle", leaky.Quota{Capacity: 100, Count: 1, Per: sec}), 1, 0)
		m := b.On("k")
		for range 3 {
			if _, err := m.Admit(bg, 1); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1000 {
			if _, err := b.Take(bg, fmt.Sprint(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100*ms - 1)
		if b.keys.Len() != 1001 {
			t.Errorf("%d keys", b.keys.Len())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if b.keys.Len() != 0 {
			t.Errorf("%d keys are left", b.keys.Len())
		}
		// Who still has the meter begins anew.
		if _, err := m.Admit(bg, 1); err != nil || b.keys.Len() != 1 {
			t.Errorf("%v, %d keys", err, b.keys.Len())
		}
		h := m.held.Load()
		if !h.lock() {
			t.Fatal("it found what was forgotten")
		}
		h.mu.Unlock()
		time.Sleep(time.Minute)
		if b.keys.Len() != 0 {
			t.Errorf("%d keys are left", b.keys.Len())
		}
	})
}

// Keys that come and go all the time, on real processors: what was lent is there.
func TestBlocksUnderStress(t *testing.T) {
	b := onRedis(t)
	s := b.store(t)
	l := newLeaky(t, s, "stress", leaky.Quota{Capacity: 1_000_000, Count: 1, Per: sec})
	ahead := newBlocks(t, l, 1, 500*us)
	const keys = 5
	var used [keys]atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for c := range 16 {
		wg.Go(func() {
			meters := [keys]*BlockMeter{}
			for k := range meters {
				meters[k] = ahead.On(fmt.Sprint(k))
			}
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for time.Since(began) < 300*ms {
				k := random.IntN(keys)
				if wait, err := meters[k].Admit(bg, 1); err != nil || wait > 0 {
					t.Error(wait, err)
				} else if used[k].Add(1); random.IntN(10) == 0 {
					if meters[k].Adjust(bg, -1, 0) == nil {
						used[k].Add(-1)
					}
				}
				if random.IntN(50) == 0 {
					time.Sleep(time.Duration(random.Int64N(int64(2 * ms))))
				}
			}
		})
	}
	wg.Wait()
	for ahead.keys.Len() > 0 {
		time.Sleep(ms)
	}
	time.Sleep(20 * ms) // what was given back is there
	all, lent := int64(0), int64(0)
	for k := range used {
		res, err := l.Peek(bg, fmt.Sprint(k))
		if err != nil {
			t.Fatal(err)
		}
		all += used[k].Load()
		lent += res.Limit - res.Remaining
	}
	leaked := keys * (int64(time.Since(began)/sec) + 1)
	lapsed := int64(s.Stats().Stranded)
	if lent < all || lent > all+lapsed || lent+leaked < all+lapsed-int64(s.Stats().Decisions) {
		t.Errorf("%d used, %d lent, %d lapsed", all, lent, lapsed)
	}
	t.Logf("%d used, %d lent, %d lapsed, %+v", all, lent, lapsed, s.Stats())
}

// While the server is away what is held is spent, and it is not asked in vain by
// everybody who spends.
func TestBlocksWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		b := newBlocks(t, newLeaky(t, v.machine(), "away", leaky.Quota{Capacity: 1000, Count: 1, Per: sec}), 1, 0)
		for range 8 {
			take(t, b, 1)
			synctest.Wait()
		}
		v.set(func() { v.down = true })
		calls := v.count()
		for range 6 {
			if ok, _ := take(t, b, 1); !ok {
				t.Error("what is held was refused")
			}
			synctest.Wait()
		}
		if v.count() != calls+1 { // the next block; its failure is remembered
			t.Errorf("%d calls", v.count()-calls)
		}
		if _, err := b.Take(bg, "k", 1); !errors.Is(err, errAway) {
			t.Errorf("%v", err)
		}
		v.set(func() { v.down = false })
		if ok, _ := take(t, b, 1); !ok {
			t.Error("it is back")
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, err := b.Take(ctx, "k", 1); err != context.Canceled {
			t.Errorf("a context that is done: %v", err)
		}
		// What was held when a call failed is still there.
		v.set(func() { v.down = true })
		if _, err := b.Take(bg, "k", 100); !errors.Is(err, errAway) {
			t.Errorf("%v", err)
		}
		if ok, _ := take(t, b, 1); !ok {
			t.Error("a call that failed took what was held")
		}
	})
}

// A call that the server did not answer is decided by the policy, and not sent
// again. While another one finds out whether the server is back, nobody waits for
// that.
func TestBlocksDoNotAskASilentServerTwice(t *testing.T) {
	for _, p := range []OutagePolicy{FailClosed, FailOpen, LocalShare} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newRemote().newStore(t, Config{Away: p, Instances: 2, Failures: 2})
				b := newBlocks(t, newLeaky(t, s, "silent", leaky.Quota{Capacity: 100, Count: 1, Per: time.Hour}), 2, 0)
				l.lost.Store(true)
				began := time.Now()
				ask := func(takes time.Duration, calls int64) {
					t.Helper()
					res, err := b.Take(bg, "k", 1)
					if (p == FailClosed) != errors.Is(err, ErrAway) || res.Allowed() == (p == FailClosed) {
						t.Errorf("%+v, %v", res, err)
					}
					if time.Since(began) != takes || l.calls.Load() != calls {
						t.Errorf("after %v: %d calls", time.Since(began), l.calls.Load())
					}
				}
				ask(sec, 1)
				ask(2*sec, 2) // the server is away now
				ask(2*sec, 2)
				time.Sleep(sec)
				go func() { _, _ = b.Take(bg, "k", 1) }() // a probe
				synctest.Wait()
				ask(3*sec, 3)
				time.Sleep(sec)
				synctest.Wait()
				got := s.Stats()
				if want := map[OutagePolicy][3]uint64{FailClosed: {5, 0, 0}, FailOpen: {0, 5, 0}, LocalShare: {0, 0, 5}}[p]; [3]uint64{got.Refused, got.Open, got.Local} != want {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// A unit that a gate gives back at once is there for its next call.
func TestBlocksInAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		s := v.machine()
		m := newBlocks(t, newLeaky(t, s, "gate", leaky.Quota{Capacity: 1000, Count: 1, Per: sec}), 1, 0).On("k")
		other := window.NewSliding(20, time.Hour)
		gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "blocks", Limiter: m}, {Name: "other", Limiter: other}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, ok := gate.TryAcquire(1); !ok {
				t.Fatal("twenty fit")
			}
			synctest.Wait()
		}
		calls := v.count()
		for range 30 {
			if _, ok := gate.TryAcquire(1); ok {
				t.Fatal("more do not")
			}
		}
		if v.count() != calls {
			t.Errorf("%d calls for what was given back at once", v.count()-calls)
		}
		time.Sleep(sec)
		synctest.Wait()
		if got := v.level(); got != 19*sec || gate.Stats().Stranded != 0 {
			t.Errorf("%v in the bucket, want 19s; %+v", got, s.Stats())
		}
	})
}

// A request for more than is held takes the rest from the server, and nothing at
// all if that refuses.
func TestBlocksAndLargeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		b := newBlocks(t, newLeaky(t, v.machine(), "large", leaky.Quota{Capacity: 40, Count: 1, Per: time.Minute}), 1, 0)
		for range 8 {
			take(t, b, 1)
			synctest.Wait()
		}
		held := int64(v.level()/time.Minute) - 8
		if held < 4 {
			t.Fatalf("%d held", held)
		}
		if ok, retry := take(t, b, 33); ok || retry != time.Minute { // 8 used, so 32 would fit
			t.Errorf("%v, %v", ok, retry)
		}
		if ok, _ := take(t, b, 32); !ok || v.level() != 40*time.Minute {
			t.Errorf("%v, %v", ok, v.level())
		}
		if res, err := b.Take(bg, "k", 41); err != nil || !errors.Is(res.Err(), limits.ErrTooLarge) {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := b.Take(bg, "k", 0); err != nil || !res.Allowed() || res.Remaining != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// On a real server, with the clocks of real machines.
func TestBoundOfBlocksOnAServer(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const machines, hold = 4, 50 * ms
	const enough = 1000 // with so many it shows something, however slow this machine is
	q := leaky.Quota{Capacity: 800, Count: 2000, Per: sec}
	var mu sync.Mutex
	var all []departure
	var wg sync.WaitGroup
	began := time.Now()
	goOn := func() bool {
		mu.Lock()
		defer mu.Unlock()
		age := time.Since(began)
		return age < 1200*ms || len(all) < enough && age < time.Minute
	}
	var local, calls uint64
	var stores []*Store
	for m := range machines {
		s := r.store(t)
		stores = append(stores, s)
		b := newBlocks(t, newLeaky(t, s, "server", q), machines, hold)
		ctx, die := context.WithCancel(bg)
		defer die()
		if m == 1 {
			time.AfterFunc(600*ms, die) // with what it holds
		}
		for range 1 << (3 - m) {
			wg.Go(func() {
				for ctx.Err() == nil && goOn() {
					from := time.Since(began)
					res, err := b.Take(ctx, "k", 1)
					if to := time.Since(began); err == nil && res.Allowed() {
						mu.Lock()
						all = append(all, departure{from, to})
						mu.Unlock()
					}
					switch {
					case err == nil && !res.Allowed():
						time.Sleep(res.RetryAfter)
					case time.Since(began)/(300*ms)%2 == 0: // not always so fast that nothing is left
						time.Sleep(10 * ms)
					default:
						time.Sleep(2 * ms)
					}
				}
			})
		}
	}
	wg.Wait()
	most, err := checkWindows(all, q, machines, hold)
	if err != nil {
		t.Error(err)
	}
	for _, s := range stores {
		local, calls = local+s.Stats().Local, calls+s.Stats().Calls
	}
	if local == 0 || len(all) < enough {
		t.Errorf("%d admitted, %d of them here", len(all), local)
	}
	t.Logf("%d admitted, %d calls, up to %d above capacity + r·W", len(all), calls, most)
}

func TestBlocksRefuseWhatCannotBe(t *testing.T) {
	l := newLeaky(t, (&backend{prefix: "none"}).storeOn(t, unreachable{}), "n", leaky.Quota{Capacity: 5, Count: 1, Per: sec})
	for _, v := range []struct {
		machines int64
		hold     time.Duration
		want     string
	}{
		{0, 0, "0 machines"}, {-1, 0, "-1 machines"}, {1<<20 + 1, 0, "machines"}, {1, -1, "held for -1ns"}, {1, 53 * 24 * time.Hour, "52 days"},
	} {
		if _, err := l.Blocks(v.machines, v.hold); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v", v, err)
		}
	}
	defer func() {
		if r := recover(); fmt.Sprint(r) != "sluiceredis: n < 0: -1" {
			t.Errorf("n < 0: %v", r)
		}
	}()
	_, _ = newBlocks(t, l, 1, 0).Take(bg, "k", -1)
}

// What is held is spent without an allocation.
func TestSpendingDoesNotAllocate(t *testing.T) {
	v := newVirtual(0)
	b := newBlocks(t, newLeaky(t, v.machine(), "allocs", leaky.Quota{Capacity: 1 << 30, Count: 1, Per: us}), 1, time.Hour)
	m := b.On("k")
	for range 2000 {
		if _, err := m.Admit(bg, 1); err != nil {
			t.Fatal(err)
		}
	}
	block := func() int64 {
		h := m.held.Load()
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.block
	}
	for block() < 1000 {
		_, _ = m.Admit(bg, 1)
	}
	for name, f := range map[string]func(){
		"Admit": func() { _, _ = m.Admit(bg, 1) },
		"Take":  func() { _, _ = b.Take(bg, "k", 1) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	h := m.held.Load()
	h.timer.Stop()
}

// The quota of buckets of which something is held.
func TestSetQuotaOfBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(0)
		s := v.machine()
		l := newLeaky(t, s, "quota", leaky.Quota{Capacity: 100, Count: 1, Per: sec})
		b := newBlocks(t, l, 1, 0)
		for range 8 {
			take(t, b, 1)
			synctest.Wait()
			time.Sleep(us)
		}
		if b.keys.Len() != 1 || v.level() != 14*sec-8*us {
			t.Fatalf("%v taken", v.level())
		}
		if err := l.SetQuota(leaky.Quota{Capacity: 3, Count: 1, Per: time.Minute}); err != nil || l.Quota().Capacity != 3 {
			t.Fatal(err)
		}
		calls := v.count()
		for range 6 { // what is held
			if ok, _ := take(t, b, 1); !ok || v.count() != calls {
				t.Errorf("%v, %d calls", ok, v.count()-calls)
			}
		}
		if ok, _ := take(t, b, 2); !ok || v.count() != calls+1 { // 14 s are less than a unit
			t.Errorf("%v, %d calls", ok, v.count()-calls)
		}
		if ok, retry := take(t, b, 1); ok || retry != 14*sec-8*us {
			t.Errorf("%v, %v", ok, retry)
		}
		if res, err := b.Take(bg, "k", 4); err != nil || !errors.Is(res.Err(), limits.ErrTooLarge) {
			t.Errorf("%+v, %v", res, err)
		}
		if err := l.SetQuota(leaky.Quota{Capacity: 0, Count: 1, Per: sec}); err == nil || l.Quota().Capacity != 3 {
			t.Errorf("%v", err)
		}
	})
}

// What was held under another quota cannot be given back, and lapses.
func TestBlocksOfAnotherQuotaLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newVirtual(0).machine()
		l := newLeaky(t, s, "lapse", leaky.Quota{Capacity: 100, Count: 1, Per: sec})
		b := newBlocks(t, l, 1, 0)
		for range 8 {
			take(t, b, 1)
			synctest.Wait()
			time.Sleep(us)
		}
		if err := l.SetQuota(leaky.Quota{Capacity: 50, Count: 1, Per: sec}); err != nil {
			t.Fatal(err)
		}
		take(t, b, 1)
		time.Sleep(sec)
		if got := s.Stats(); got.Refunded != 0 || got.Stranded != 5 {
			t.Errorf("%+v", got)
		}
	})
}
