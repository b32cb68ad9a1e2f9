package sluiceredis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// inThisProcess returns a store without a server.
func inThisProcess(t testing.TB) *Store {
	t.Helper()
	s, err := New(InProcess(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A deed is something done to limits at a time, and what came of it.
type deed struct {
	at   time.Duration
	does func(*limitsOf) string
	was  string
}

// limitsOf are the limits of one store that deeds are done to.
type limitsOf struct {
	store    *Store
	leaky    [4]*Bucket // of one name, at several quotas
	log      *Counter
	anchored *Counter
	aligned  *Counter
	pacer    *Pacer
	slots    []*pacing // reserved
	began    int64     // the server's clock at the beginning, ns
}

func newLimits(t *testing.T, s *Store, began int64) *limitsOf {
	return &limitsOf{
		store: s, began: began,
		leaky: [4]*Bucket{
			newLeaky(t, s, "l", limits.Rate{Burst: 7, Count: 3, Per: sec}),
			newLeaky(t, s, "l", limits.Rate{Burst: 4, Count: 3, Per: sec}),
			newLeaky(t, s, "l", limits.Rate{Burst: 5, Count: 7, Per: sec}),
			newLeaky(t, s, "l", limits.Rate{Burst: 9, Count: 1, Per: sec}),
		},
		log:      newLog(t, s, "g", 6, 2*sec),
		anchored: newFixed(t, s, "f", FixedConfig{Limit: 6, Window: 2 * sec}),
		aligned:  newFixed(t, s, "a", FixedConfig{Limit: 6, Window: 2 * sec, Aligned: true, Offset: 300 * ms}),
		pacer:    newPacer(t, s, "p", 3, sec, PacerConfig{Horizon: 5 * sec}, 2),
	}
}

// deeds returns that many at random.
func deeds(r *rand.Rand, count int) []*deed {
	var all []*deed
	at := time.Duration(0)
	for range count {
		if r.IntN(3) > 0 {
			at += time.Duration(r.IntN(400_000)) * time.Microsecond
		}
		n, which, quota, age, key := int64(r.IntN(9)), r.IntN(2), r.IntN(4), time.Duration(r.IntN(1500))*ms, fmt.Sprint("k", r.IntN(2))
		both := func(res limits.Result, err error) string { return fmt.Sprintf("%+v %v", res, err) }
		s := &deed{at: at}
		switch kind := r.IntN(16); kind {
		case 0, 1, 2, 3, 4:
			s.does = func(l *limitsOf) string { return both(l.leaky[quota].Take(bg, key, n)) }
		case 5, 6:
			s.does = func(l *limitsOf) string { return both(l.log.Take(bg, key, n)) }
		case 7, 8:
			s.does = func(l *limitsOf) string { return both(l.anchored.Take(bg, key, n)) }
		case 9:
			s.does = func(l *limitsOf) string { return both(l.aligned.Take(bg, key, n)) }
		case 10, 11, 12:
			delta := n - 5
			s.does = func(l *limitsOf) string {
				m := []limits.Limiter{l.leaky[quota].on(key), l.anchored.on(key), l.aligned.on(key)}[kind-10]
				return fmt.Sprint(m.Adjust(bg, delta, age))
			}
		case 13:
			s.does = func(l *limitsOf) string {
				if end := len(l.slots) - 1; which == 1 && end >= 0 {
					last := l.slots[end]
					l.slots = l.slots[:end]
					if l.began+int64(s.at) >= last.slot+last.takes {
						return "too late" // what has passed is discarded, sooner or later
					}
					return fmt.Sprint(l.store.cancelSlots(bg, l.pacer.at(), last.span()))
				}
				distance := 1 + n*int64(100*ms) // PauseUntil reads the clock, which may have gone on
				if l.store.alone {
					l.pacer.here(func(h *kinds.PaceHeld) { h.Prolong(distance) })
					return fmt.Sprint(l.pacer.pauses().Pause-l.began, nil)
				}
				reply, err := l.store.askPacer(bg, "pause", l.pacer.at(), distance)
				return fmt.Sprint(pausesIn(reply).Pause-l.began, err)
			}
		default:
			s.does = func(l *limitsOf) string {
				p := &pacing{takes: n * l.pacer.paced.Load().interval, patience: int64(age)}
				err := l.store.reserve(bg, l.pacer.at(), p)
				if p.ok {
					l.slots = append(l.slots, p)
				}
				pause := p.pauses.Pause
				if pause > 0 {
					pause -= l.began
				}
				return fmt.Sprint(p.ok, p.wait, p.slot-l.began, pause, err)
			}
		}
		all = append(all, s)
	}
	return all
}

// What a store without a server answers is what a server would, whatever is asked
// and when, to the nanosecond.
func TestInProcessAnswersAsAServerDoes(t *testing.T) {
	b := onRedis(t)
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			all := deeds(rand.New(rand.NewPCG(seed, 0)), 150)
			synctest.Test(t, func(t *testing.T) {
				l, began := newLimits(t, inThisProcess(t), time.Now().UnixNano()), time.Now()
				l.store.prefix = "both"
				for _, s := range all {
					time.Sleep(time.Until(began.Add(s.at)))
					s.was = s.does(l)
				}
			})
			store, clock := b.freeze(t)
			store.prefix = fmt.Sprint(b.prefix, seed)
			l := newLimits(t, store, int64(epoch))
			for i, s := range all {
				clock.set(s.at)
				if got := s.does(l); got != s.was {
					t.Fatalf("step %d at %v: a server answers\n%s, this process\n%s", i, s.at, got, s.was)
				}
			}
		})
	}
}

// What no longer applies is discarded.
func TestInProcessForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inThisProcess(t)
		l := newLeaky(t, s, "l", limits.Rate{Burst: 3, Count: 1, Per: sec})
		log, fixed := newLog(t, s, "g", 3, sec), newFixed(t, s, "f", FixedConfig{Limit: 3, Window: sec})
		one := func(i int, mayFail bool) {
			key := fmt.Sprint("a key that is long enough ", i)
			_, err1 := l.Take(bg, key, 1)
			_, err2 := log.Take(bg, key, 1)
			_, err3 := fixed.Take(bg, key, 1)
			_, err4 := newPacer(t, s, key, 1, sec, PacerConfig{}).Reserve(bg, 1, 0)
			lease, err5 := newSemaphore(t, s, key, 1, SemaphoreConfig{}).acquire(bg, 1, 0)
			if err := errors.Join(err1, err2, err3, err4, err5); err != nil && !mayFail {
				t.Fatal(err)
			}
			lease.Release()
		}
		for i := range 2000 {
			one(i, false)
		}
		time.Sleep(2 * sec)
		for i := range 10_000 {
			one(i%10, true)
		}
		m := s.local()
		if got := m.Keys(); got > 800 {
			t.Errorf("%d keys are kept, 40 count", got)
		}
		if n := m.Semaphores(); n != 0 {
			t.Errorf("%d semaphores", n)
		}
	})
}

// pauses returns what this process holds of the pauses of p.
func (p *Pacer) pauses() (got kinds.Pauses) {
	p.store.onPacer(p.at(), p.at().Rule, func(h *kinds.PaceHeld) { got = h.Pauses() })
	return got
}

// A lease in this process lasts until it is released, needs nothing that runs, and
// has a token higher than any before.
func TestInProcessLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inThisProcess(t)
		a, b := newSemaphore(t, s, "one", 2, SemaphoreConfig{}), newSemaphore(t, s, "one", 2, SemaphoreConfig{})
		first, err := a.acquire(bg, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		select {
		case <-first.Lost():
			t.Error("lost")
		default:
		}
		if _, err := b.acquire(bg, 1, 0); err != limits.ErrTimeout {
			t.Errorf("%v", err)
		}
		began := time.Now()
		time.AfterFunc(sec, first.Release)
		second, err := b.acquire(bg, 1, time.Minute)
		if waited := time.Since(began); err != nil || waited < sec || waited > sec+75*ms {
			t.Fatalf("%v, after %v", err, waited)
		}
		first.Release() // the second time, which does nothing
		third, err := a.acquire(bg, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if tokens := []int64{first.Token(), second.Token(), third.Token()}; !slices.IsSorted(tokens) || tokens[0] == tokens[1] || tokens[1] == tokens[2] {
			t.Errorf("tokens %v", tokens)
		}
		if _, err := a.acquire(bg, 1, 0); err != limits.ErrTimeout {
			t.Errorf("three of two: %v", err)
		}
		second.Release()
		third.Release()
		if got := s.Stats(); got.DecidedLocally < 5 || got.Scripts != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// What has left its window is too late to be returned, and counted so.
func TestInProcessGivesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inThisProcess(t)
		for kind, m := range map[string]limits.Limiter{
			"leaky": newLeaky(t, s, "l", limits.Rate{Burst: 5, Count: 1, Per: sec}).on("k"),
			"log":   newLog(t, s, "g", 5, 2*sec).on("k"),
			"fixed": newFixed(t, s, "f", FixedConfig{Limit: 5, Window: 2 * sec}).on("k"),
		} {
			before := s.Stats()
			if _, err := m.Admit(bg, 4); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2*sec - time.Microsecond)
			if err := m.Adjust(bg, -1, 0); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			time.Sleep(time.Microsecond)
			if err := m.Adjust(bg, -1, 2*sec); err != errStranded {
				t.Errorf("%s: too late: %v", kind, err)
			}
			if got := s.Stats(); got.Refunded != before.Refunded+1 || got.Unreturned != before.Unreturned+1 {
				t.Errorf("%s: %+v", kind, got)
			}
		}
	})
}

// A pause reaches those who wait, on whichever value of the same pacer.
func TestInProcessPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inThisProcess(t)
		a, b := newPacer(t, s, "p", 10, sec, PacerConfig{}), newPacer(t, s, "p", 10, sec, PacerConfig{})
		began := time.Now()
		var left []time.Duration
		for i := range 6 {
			p := a
			if i == 3 {
				if err := b.PauseUntil(bg, began.Add(sec)); err != nil {
					t.Fatal(err)
				}
				p = b
			}
			if err := p.Acquire(bg, 1); err != nil {
				t.Fatal(err)
			}
			left = append(left, time.Since(began))
		}
		if want := []time.Duration{0, 100 * ms, 200 * ms, sec, 1100 * ms, 1200 * ms}; !slices.Equal(left, want) {
			t.Errorf("%v, want %v", left, want)
		}
	})
}

// New takes a store without a server only if that is asked for.
func TestNewWithoutAServer(t *testing.T) {
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no client is no wish to do without")
	}
	c := InProcess()
	if _, err := c.Run(bg, takes[0], nil, nil); err == nil {
		t.Error("it runs scripts")
	}
	if got := c.RunMany(bg, make([]ScriptCall, 2)); len(got) != 2 || got[0].Err == nil || got[1].Err == nil {
		t.Errorf("it runs scripts: %+v", got)
	}
}
