package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A pair is one schedule behind a lane, and a reference that has neither a lane nor
// the short way of Admit. They are told the same and must say the same.
type pair struct {
	t       *testing.T
	lane    Lane
	s, ref  *Schedule
	history []string
}

// change tells both, as the queue does: the lane is closed meanwhile.
func (p *pair) change(what string, f func(s *Schedule)) {
	p.history = append(p.history, what)
	if p.lane.Slots().word() != closed {
		if next, used := p.lane.Close(); used {
			p.s.Took(next)
		}
	}
	f(p.s)
	f(p.ref)
	p.ref.plain = false
	if next, interval, ok := p.s.Plain(); ok {
		p.lane.Open(next, interval, 0)
	}
}

func (p *pair) fatal(format string, args ...any) {
	p.t.Helper()
	for _, h := range p.history {
		p.t.Log(h)
	}
	p.t.Fatalf(format, args...)
}

func (s *Slots) word() Word { return Word(s.next.Load()) }

// take lets a call through at now, if it can and nobody else is there. It must be
// called in a bubble, and what the slots hold for a hint must make no difference.
func take(s *Slots, now time.Duration) Verdict {
	epoch := time.Now().Add(-now)
	s.early.Store(true)
	_, _, cautious := s.Look(epoch)
	s.early.Store(false)
	next, at, v := s.Look(epoch)
	switch {
	case v != cautious:
		panic(fmt.Sprintf("%v, and with the hint that calls are early %v", v, cautious))
	case (next == closed) != (v == Ask):
		panic("closed, and not told to ask, or open and told so")
	case v != Ask && at != now:
		panic(fmt.Sprintf("at %v it is %v", now, at))
	case s.early.Load() != (v == Early):
		panic("the hint is wrong")
	case v == Leave && !s.Take(next, now):
		panic("lost to nobody")
	}
	return v
}

// call lets n through at now, past the lock if it can.
func (p *pair) call(now, due time.Duration, n int64) {
	p.history = append(p.history, fmt.Sprintf("call of %d at %d, due %d", n, now, due))
	if n == 1 && due == now {
		v := take(p.lane.Slots(), now)
		if v != Ask {
			if wait := p.ref.Admit(now, now, 1); wait > 0 != (v == Early) {
				p.fatal("the lane says %v, the reference %v", v, wait)
			}
			return
		}
	}
	p.change("  under the lock", func(s *Schedule) {
		if wait := s.Admit(now, due, n); s == p.s {
			ref := *p.ref
			if want := ref.Admit(now, due, n); wait != want {
				p.fatal("wait %v, the reference %v", wait, want)
			}
		}
	})
}

// compare asks both what they would say.
func (p *pair) compare(now time.Duration) {
	p.change("compare", func(*Schedule) {})
	a, b := *p.s, *p.ref
	a.plain, b.plain = false, false
	a.streak, b.streak = streak{}, streak{} // a lane knows only of its last call
	if a != b {
		p.fatal("differ:\n%+v\n%+v", a, b)
	}
	if a, b := p.s.Wait(now, 3), p.ref.Wait(now, 3); a != b {
		p.fatal("forecast %v, the reference %v", a, b)
	}
}

func TestLane_AgreesWithTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := []limits.Rate{
			{Count: 1, Per: 10}, {Count: 2, Per: 10}, {Count: 3, Per: 10}, {Count: 1, Per: 7}, {Count: 1, Per: 1000}, {Count: 1, Per: 1},
			{Count: 7, Per: 7}, {Count: 1, Per: math.MaxInt64}, {Count: 1, Per: furthest}, {Count: 1, Per: furthest + 1}, {},
		}
		passed := 0
		for seed := range uint64(2000) {
			r := rand.New(rand.NewPCG(seed, 7))
			first := rates[r.IntN(len(rates))]
			cfg := Config{Rate: first, MaxCatchUp: []time.Duration{0, -1, 5, 50}[r.IntN(4)]}
			bursts := r.IntN(3) == 0
			if bursts && first.Count > 0 && first.Per <= 1000 {
				cfg.Rate.Burst = 3
			}
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ref := *s
			ref.plain = false
			p := &pair{t: t, s: s, ref: &ref, history: []string{fmt.Sprintf("seed %d: %+v", seed, cfg)}}
			p.lane.Init()
			p.change("begin", func(*Schedule) {})
			now := time.Duration(0)
			for range 60 {
				now += time.Duration(r.Int64N(15)) * time.Duration(r.IntN(2))
				if r.IntN(40) == 0 {
					now += 1000
				}
				switch r.IntN(16) {
				default:
					before := p.lane.Slots().word()
					p.call(now, now, 1)
					if after := p.lane.Slots().word(); after != before && after&1 == 1 && after != closed {
						passed++
					}
				case 0:
					p.call(now, now, []int64{2, 3, 40, math.MaxInt64}[min(3, r.IntN(30))])
				case 1: // woken late
					p.call(now, max(0, now-time.Duration(r.Int64N(30))), 1)
				case 2, 3:
					rate := rates[r.IntN(len(rates))]
					if bursts && rate.Count > 0 {
						rate.Burst = r.Int64N(4)
					}
					p.change(fmt.Sprintf("rate %v at %d", rate, now), func(s *Schedule) {
						if err := s.SetRate(now, rate); err != nil && rate.Burst < 2 {
							p.fatal("%v", err)
						}
					})
				case 4:
					until := now + time.Duration(r.Int64N(40)) - 10
					if r.IntN(20) == 0 {
						until = sat.Max
					}
					p.change(fmt.Sprintf("pause until %d", until), func(s *Schedule) { s.PauseUntil(until) })
				case 5:
					p.change(fmt.Sprintf("resume at %d", now), func(s *Schedule) { s.Resume(now) })
				case 6:
					delta := r.Int64N(7) - 3
					p.change(fmt.Sprintf("adjust %d", delta), func(s *Schedule) { s.Adjust(delta) })
				case 7:
					p.compare(now)
				}
			}
			p.compare(now)
		}
		if passed < 5_000 {
			t.Errorf("only %d calls passed the lock", passed)
		}
	})
}

func TestLane_Close_ReportsWhetherCallsHavePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, interval := range []time.Duration{0, 1, 1000} {
			var l Lane
			l.Init()
			if !l.Open(50, interval, 0) {
				t.Fatal("not opened")
			}
			if v := take(l.Slots(), 49); v != Early {
				t.Errorf("at 49: %v", v)
			}
			if next, used := l.Close(); used || next != 50 {
				t.Errorf("unused: %v, %v", next, used)
			}
			l.Open(50, interval, 0)
			if v := take(l.Slots(), 50); v != Leave {
				t.Errorf("at 50: %v", v)
			}
			if next, used := l.Close(); !used || next != 50+interval {
				t.Errorf("used: %v, %v", next, used)
			}
			if v := take(l.Slots(), 5000); v != Ask {
				t.Errorf("closed: %v", v)
			}
		}
	})
}

// A caller that has read an old interval must not leave by it, whatever has come since.
func TestLane_Open_OldSlotsStayClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lane
		l.Init()
		l.Open(50, 10, 1)
		old := l.Slots()
		next := old.word()
		for _, change := range []struct {
			interval time.Duration
			places   int64
		}{{20, 1}, {10, 2}} {
			l.Close()
			l.Open(50, change.interval, change.places)
			if v := take(old, 60); v != Ask {
				t.Errorf("%+v: %v", change, v)
			}
			if old.Take(next, 60) {
				t.Errorf("%+v: left by what was read before", change)
			}
		}
	})
}

func TestLane_Open_TooFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct{ next, interval time.Duration }{{sat.Max, 1}, {furthest + 1, 1}, {0, furthest + 1}, {-1, 1}} {
			var l Lane
			l.Init()
			if l.Open(x.next, x.interval, 0) {
				t.Errorf("opened for %+v", x)
			}
			if v := take(l.Slots(), 100); v != Ask {
				t.Errorf("%+v: %v", x, v)
			}
		}
	})
}

// A caller that has lost to another must not leave by what it read before.
func TestSlots_Take_Once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lane
		l.Init()
		l.Open(50, 10, 0)
		s := l.Slots()
		next := s.word()
		if !s.Take(next, 60) {
			t.Error("lost to nobody")
		}
		if s.Take(next, 60) {
			t.Error("taken again")
		}
		if v := take(s, 69); v != Early {
			t.Errorf("at 69: %v", v)
		}
		if v := take(s, 70); v != Leave {
			t.Errorf("at 70: %v", v)
		}
	})
}

// Those who look at the same time read their clocks in one order and the word in another.
// Without an interval everybody may start all the same.
func TestSlots_Look_OldClock(t *testing.T) {
	var l Lane
	l.Init()
	l.Open(0, 0, 0)
	epoch := time.Now()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			s := l.Slots()
			for range 500_000 {
				next, now, v := s.Look(epoch)
				if v != Leave {
					t.Errorf("%v at %v, and the slot was at %v", v, now, next.instant())
					return
				}
				s.Take(next, now)
			}
		})
	}
	callers.Wait()
}

// A slot that is returned after others have started.
func TestSchedule_GiveBack(t *testing.T) {
	const ms = time.Millisecond
	type call struct{ now, due time.Duration }
	for _, test := range []struct {
		name    string
		catchUp time.Duration
		calls   []call        // after one at 0, which returns
		slot    time.Duration // that is left behind
	}{
		{"nobody came", 50 * ms, nil, 0},
		{"one waited", 50 * ms, []call{{10 * ms, 10 * ms}}, 14 * ms}, // and not 10: at twice the rate, but for 1 ms
		{"two waited", 50 * ms, []call{{10 * ms, 10 * ms}, {20 * ms, 20 * ms}}, 24 * ms},
		{"one was woken late", 50 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms},
		{"one did not wait", 50 * ms, []call{{11 * ms, 11 * ms}}, 21 * ms},
		{"one waited, and one later did not", 50 * ms, []call{{10 * ms, 10 * ms}, {40 * ms, 40 * ms}}, 50 * ms},
		{"less is made up for", 4 * ms, []call{{10 * ms, 10 * ms}}, 16 * ms},
		{"one had been made up for in part", 12 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms}, // then the TAT is at 15
		{"one had been made up for", 7 * ms, []call{{17 * ms, 10 * ms}}, 21 * ms},          // then it is at 20
		{"nothing is made up for", -1, []call{{10 * ms, 10 * ms}}, 20 * ms},
	} {
		s := mustNew(t, Config{Rate: limits.Rate{Count: 100, Per: time.Second}, MaxCatchUp: test.catchUp})
		for _, c := range append([]call{{0, 0}}, test.calls...) {
			if wait := s.Admit(c.now, c.due, 1); wait > 0 {
				t.Fatalf("%s: the call at %v waits for %v", test.name, c.now, wait)
			}
		}
		s.GiveBack(0, 10*ms)
		if slot := s.Slot(); slot != test.slot {
			t.Errorf("%s: the next slot is at %v, want %v", test.name, slot, test.slot)
		}
	}
}

// Calls always wait, some are woken late, and some give their slots back, soon or after others have
// started. In the end as many have left as if those had never come, and in no window more than the
// bound of the package comment allows.
func TestSchedule_GiveBack_LosesNothing(t *testing.T) {
	const interval, catchUp, n = 10 * time.Millisecond, 300 * time.Millisecond, 400
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := mustNew(t, Config{Rate: limits.Rate{Count: 1, Per: interval}, MaxCatchUp: catchUp})
		var left, owed []time.Duration // when calls left; what is to be returned
		giveBack := func() {
			s.GiveBack(owed[0], interval)
			owed = owed[1:]
		}
		for now := time.Duration(0); len(left) < n; {
			wait := s.Admit(now, now, 1)
			if wait > 0 {
				due := now + wait
				now = due + time.Duration(r.Int64N(2)*r.Int64N(int64(interval)))
				if wait = s.Admit(now, due, 1); wait > 0 {
					t.Fatalf("seed %d: at its slot a call waits for %v", seed, wait)
				}
			}
			if len(owed) < 3 && r.IntN(8) == 0 {
				owed = append(owed, s.last)
			} else {
				left = append(left, now)
			}
			if len(owed) > 0 && r.IntN(4) == 0 {
				giveBack()
			}
		}
		for len(owed) > 0 {
			giveBack()
		}
		if next := n * interval; s.tat != next {
			t.Fatalf("seed %d: after %d calls the next is charged at %v, want %v", seed, n, s.tat, next)
		}
		for i := range left {
			for j := i; j < n; j++ {
				if window := left[j] - left[i]; interval*time.Duration(j-i) > window+catchUp {
					t.Fatalf("seed %d: %d calls in %v", seed, j-i+1, window)
				}
			}
		}
	}
}
