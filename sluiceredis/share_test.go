package sluiceredis

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// A grant is n units at a time.
type grant struct {
	at time.Duration
	n  int64
}

// breaks returns by how much admits break the rate law of a bucket, times (m+i)/m:
// no window has more than that times capacity + W ÷ interval. It is exact, in
// integers.
func breaks(grants []grant, capacity int64, interval time.Duration, m, i int64) (worst int64) {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.at, b.at) })
	for from := range grants {
		sum := int64(0)
		for _, g := range grants[from:] {
			sum += g.n
			most := (capacity*int64(interval) + int64(g.at-grants[from].at)) * (m + i) // × m × interval
			worst = max(worst, sum*m*int64(interval)-most)
		}
	}
	return worst
}

// A law that is broken is found.
func TestBreaks(t *testing.T) {
	for _, v := range []struct {
		grants []grant
		i      int64
		want   bool
	}{
		{[]grant{{0, 4}, {sec, 1}, {2 * sec, 1}}, 0, false},
		{[]grant{{0, 4}, {sec - 1, 1}}, 0, true},
		{[]grant{{0, 5}}, 0, true},
		{[]grant{{0, 5}}, 1, false},
		{[]grant{{sec, 1}, {0, 5}}, 1, false},
		{[]grant{{0, 5}, {sec - sec/5, 1}}, 1, false},
		{[]grant{{0, 5}, {sec - sec/5 - 1, 1}}, 1, true},
		{[]grant{{0, 8}, {0, 1}}, 4, true},
	} {
		if got := breaks(v.grants, 4, sec, 4, v.i) > 0; got != v.want {
			t.Errorf("%v, %d cut off: %v", v.grants, v.i, got)
		}
	}
}

// However many of the instances are cut off, whenever and for how long, all of them
// together are admitted no more than (1 + i/M) times the limit, in any window.
func TestSharesObeyTheRateLaw(t *testing.T) {
	const m = 4
	for i := range int64(m + 1) {
		for seed := range uint64(10) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				v, began := newRemote(), time.Now()
				var grants []grant
				stores, lines := make([]*Bucket, m), make([]*line, m)
				for j := range stores {
					var s *Store
					s, lines[j] = v.newStore(t, Config{OnOutage: LocalShare, Instances: m, Timeout: 100 * ms, FailureThreshold: 2})
					stores[j] = newLeaky(t, s, "l", limits.Rate{Burst: 18, Count: 10, Per: sec})
				}
				for range 600 {
					time.Sleep(time.Duration(r.IntN(60)) * ms)
					if r.IntN(20) == 0 { // only the first i are ever cut off
						if j := r.IntN(m); int64(j) < i {
							switch r.IntN(3) {
							case 0:
								lines[j].fail(errRefused)
							case 1:
								lines[j].silent.Store(true)
							default:
								lines[j].fail(nil)
								lines[j].silent.Store(false)
							}
						}
					}
					n := 1 + r.Int64N(3)
					if res, err := stores[r.IntN(m)].Take(bg, "k", n); err != nil {
						t.Fatal(err)
					} else if res.Allowed() {
						grants = append(grants, grant{time.Since(began), n})
					}
				}
				if by := breaks(grants, 18, 100*ms, m, i); by > 0 {
					t.Errorf("%d cut off, seed %d: too much by %d", i, seed, by)
				}
			})
		}
	}
}

// With one instance its share is the limit. Switching over and back it accepts, at
// exactly the same times, what the server alone would have admitted.
func TestSwitchingGrantsNoFreshBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: 1, ProbeInterval: 100 * ms})
		b := newLeaky(t, s, "l", limits.Rate{Burst: 5, Count: 2, Per: sec})
		alone := limits.Must(leaky.New(limits.Rate{Count: 2, Per: sec, Burst: 5}))
		r := rand.New(rand.NewPCG(1, 2))
		modes := map[outage.Mode]int{}
		for i := range 3000 {
			time.Sleep(time.Duration(r.IntN(300)) * ms)
			if r.IntN(10) == 0 {
				l.fail([]error{nil, errRefused}[r.IntN(2)])
			}
			n := r.Int64N(6)
			got, err := b.Take(bg, "k", n)
			if want := alone.Take(n); err != nil || got != want {
				t.Fatalf("call %d for %d: %+v, %v; one bucket says %+v", i, n, got, err, want)
			}
			modes[s.breaker.Mode()]++
		}
		if modes[outage.Away] < 500 || modes[outage.Asking] < 500 || s.Stats().Reported == 0 {
			t.Errorf("%v, %+v", modes, s.Stats())
		}
	})
}

// A share is as full as its own admits make it, and as the limit was found: exactly.
func TestSharesAreKeptWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := limits.Rate{Burst: 16, Count: 1, Per: sec}
		stores := func() (a, b *Bucket, la, lb *line) {
			v := newRemote()
			sa, la := v.newStore(t, Config{OnOutage: LocalShare, Instances: 4})
			sb, lb := v.newStore(t, Config{OnOutage: LocalShare, Instances: 4})
			return newLeaky(t, sa, "l", quota), newLeaky(t, sb, "l", quota), la, lb
		}
		take := func(l *Bucket, n int64) limits.Result {
			t.Helper()
			res, err := l.Take(bg, "k", n)
			if err != nil {
				t.Error(err)
			}
			return res
		}
		// Its own: 3 of its share of 4, which leaks one every 4 s.
		a, _, la, _ := stores()
		take(a, 3)
		la.fail(errRefused)
		if got, want := take(a, 2), (limits.Result{Limit: 4, Remaining: 1, RetryAfter: 4 * sec, ResetAfter: 12 * sec}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(4*sec - 1)
		if take(a, 2).Allowed() {
			t.Error("too early")
		}
		time.Sleep(time.Nanosecond)
		if !take(a, 2).Allowed() {
			t.Error("too late")
		}
		// Others': the bucket is half full, and so is the share.
		a, b, la, _ := stores()
		take(b, 8)
		if _, err := a.Take(bg, "k", 0); err != nil {
			t.Error(err)
		}
		la.fail(errRefused)
		if got, want := take(a, 3), (limits.Result{Limit: 4, Remaining: 2, RetryAfter: 4 * sec, ResetAfter: 8 * sec}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		// A whole bucket, of which the other was rejected: neither has anything left.
		a, b, la, lb := stores()
		take(a, 16)
		take(b, 1)
		la.fail(errRefused)
		lb.fail(errRefused)
		for _, l := range []*Bucket{a, b} {
			if got, want := take(l, 1), (limits.Result{Limit: 4, RetryAfter: 4 * sec, ResetAfter: 16 * sec}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		// What was returned is not in the share any more.
		a, _, la, _ = stores()
		take(a, 3)
		if err := a.on("k").Adjust(bg, -3, 0); err != nil {
			t.Error(err)
		}
		la.fail(errRefused)
		if !take(a, 4).Allowed() {
			t.Error("what was given back is still in the share")
		}
		// What was taken beyond is, but no more than fits.
		a, _, la, _ = stores()
		if err := a.on("k").Adjust(bg, 20, 0); err != nil {
			t.Error(err)
		}
		la.fail(errRefused)
		if got, want := take(a, 1), (limits.Result{Limit: 4, RetryAfter: 4 * sec, ResetAfter: 16 * sec}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Shares are rounded down, so that all of them together are never more than the
// limit: of 6, four instances have 1 each, of whatever kind.
func TestSharesAreRoundedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 4 {
			s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: 4})
			l.fail(errRefused)
			for kind, take := range sixes(t, s, OutagePolicy(0)) {
				if got, err := grants(take, 10); got != 1 || err != nil {
					t.Errorf("%s: %d granted, %v", kind, got, err)
				}
			}
		}
	})
}

// What the server could not be told of is told later: units are not lost when the
// call that tells fails.
func TestTellingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: 1})
		for kind, take := range sixes(t, s, OutagePolicy(0)) {
			l.fail(errRefused)
			if got, err := grants(take, 2); got != 2 || err != nil {
				t.Fatalf("%s: %d, %v", kind, got, err)
			}
			for range 3 {
				time.Sleep(sec)
				if res, err := take(0); err != nil || res.Remaining != 4 {
					t.Errorf("%s: %+v, %v", kind, res, err)
				}
			}
			l.fail(nil)
			time.Sleep(sec)
			if got, err := grants(take, 10); got != 4 || err != nil {
				t.Errorf("%s: %d granted when the server was told, %v", kind, got, err)
			}
		}
	})
}

// A pause that another machine made, and of which the server told, holds for slots
// of a share.
func TestSharesOfAPacerObeyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		s, l := v.newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		p := newPacer(t, s, "p", 10, sec, PacerConfig{})
		v.onPacer(p.at().key, p.at().Rule, func(h *kinds.PaceHeld) { h.Prolong(int64(10 * sec)) })
		if err := s.reserve(bg, p.at(), new(pacing)); err != nil { // as who waits does now and then
			t.Fatal(err)
		}
		l.fail(errRefused)
		for i := range 3 {
			r, err := p.Reserve(bg, 1, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if want := 10*sec + time.Duration(i)*200*ms; err != nil || r.Delay() != want {
				t.Errorf("%v, %v, want %v", err, r.Delay(), want)
			}
		}
	})
}

// Windows as well: what was admitted before the server became unavailable is used here, and what
// was admitted here is used there.
func TestSharesOfWindowsAreKeptWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 20*time.Minute)))
		v := newRemote()
		a, la := v.newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		b, _ := v.newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		mine, others := sixes(t, a, OutagePolicy(0)), sixes(t, b, OutagePolicy(0))
		for kind, take := range mine {
			if kind == "leaky" {
				continue
			}
			want := func(when string, take func(int64) (limits.Result, error), granted int) {
				t.Helper()
				if got, err := grants(take, 20); got != granted || err != nil {
					t.Errorf("%s, %s: %d granted, want %d, %v", kind, when, got, granted, err)
				}
			}
			if res, err := others[kind](4); !res.Allowed() || err != nil {
				t.Fatal(res, err)
			}
			if res, err := take(7); res.Allowed() || err != nil { // finds 4 of 6 used
				t.Fatal(res, err)
			}
			la.fail(errRefused)
			want("found 4 of 6 used", take, 1)
			time.Sleep(30 * time.Minute)
			want("later in the window", take, 0)
			la.fail(nil)
			time.Sleep(sec)
			want("back", take, 1) // 4 and 1 were used
			time.Sleep(time.Hour)
			want("the next window", take, 6)
			la.fail(errRefused)
			want("after all of the limit", take, 0)
			time.Sleep(time.Hour)
			want("away for a window", take, 3)
			la.fail(nil)
			time.Sleep(sec)
			want("back", take, 3)
			time.Sleep(time.Hour - time.Duration(time.Now().Minute()-20)*time.Minute - time.Duration(time.Now().Second())*sec)
			time.Sleep(time.Hour)
		}
	})
}

// A pacer's shares leave one per interval × instances from their last slots on, and
// back on the server no two slots are closer than an interval.
func TestSharesOfAPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		began := time.Now()
		var left []time.Duration
		var mu sync.Mutex
		pacers, lines, stores := make([]*Pacer, 3), make([]*line, 3), make([]*Store, 3)
		for i := range pacers {
			stores[i], lines[i] = v.newStore(t, Config{OnOutage: LocalShare, Instances: 3, ProbeInterval: 10 * ms})
			pacers[i] = newPacer(t, stores[i], "p", 10, sec, PacerConfig{})
		}
		round := func(each int) {
			var wg sync.WaitGroup
			for i, p := range pacers {
				wg.Go(func() {
					time.Sleep(time.Duration(i)) // an order
					for range each {
						if err := p.Acquire(bg, 1); err != nil {
							t.Error(err)
						}
						mu.Lock()
						left = append(left, time.Since(began).Round(ms))
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		}
		round(1)
		for _, l := range lines {
			l.fail(errRefused)
		}
		round(4)
		for _, l := range lines {
			l.fail(nil)
		}
		time.Sleep(50 * ms) // of which the last slots are owed the rest of an interval
		round(2)
		for i, at := range left {
			if i > 0 && at-left[i-1] < 100*ms {
				t.Errorf("call %d left %v after the one before: %v", i, at-left[i-1], left)
				break
			}
		}
		// Back at 1450 ms, each tells the server of a slot, and asks for one.
		if len(left) != 21 || left[14] != 1400*ms || left[15] != 1550*ms {
			t.Errorf("%v", left)
		}
		for _, s := range stores {
			if got := s.Stats(); got.Reported != 1 || got.DecidedLocally != 4 {
				t.Errorf("%+v", got)
			}
		}
		// A slot of a share is returned to it.
		for _, l := range lines {
			l.fail(errRefused)
		}
		time.Sleep(10 * sec)
		first, err1 := pacers[0].Reserve(bg, 1, sec)
		second, err2 := pacers[0].Reserve(bg, 1, sec)
		if err1 != nil || err2 != nil || second.Delay() != 300*ms || !second.Cancel(bg) || first.Cancel(bg) {
			t.Errorf("%v, %v, %v", err1, err2, second.Delay())
		}
		third, err := pacers[0].Reserve(bg, 1, sec)
		if err != nil || third.Delay() != 300*ms {
			t.Errorf("%v, %v", err, third)
		}
		// A pause that the server cannot be told of holds here.
		if err := pacers[0].PauseUntil(bg, time.Now().Add(5*sec)); err == nil {
			t.Error("who was told?")
		}
		if r, err := pacers[0].Reserve(bg, 1, time.Minute); err != nil || r.Delay() != 5*sec {
			t.Errorf("%v, %v", err, r.Delay())
		}
	})
}

// Instances count themselves while they use the store; one that leaves or dies is
// not counted any more, and shares follow.
func TestInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		var stores []*Store
		var lines []*line
		var takes []func(int64) (limits.Result, error)
		for range 3 {
			s, l := v.newStore(t, Config{OnOutage: LocalShare})
			stores, lines, takes = append(stores, s), append(lines, l), append(takes, sixes(t, s, OutagePolicy(0))["leaky"])
		}
		// use has some of them use the store for a while.
		use := func(d time.Duration, which ...int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * ms) {
				for _, i := range which {
					_, _ = takes[i](0)
					synctest.Wait()
				}
			}
		}
		count := func(want ...int64) {
			t.Helper()
			for i, s := range stores {
				if got := s.Stats().Instances; got != want[i] {
					t.Errorf("instance %d counts %d, want %d", i, got, want[i])
				}
			}
		}
		count(0, 0, 0)
		use(500*ms, 0)
		count(1, 0, 0)
		use(3*sec, 0, 1, 2)
		count(3, 2, 3)
		use(3*sec, 0, 1, 2)
		count(3, 3, 3)
		calls := lines[0].calls.Load()
		use(30*sec, 0, 1, 2)
		if got := lines[0].calls.Load() - calls - 60; got != 10 {
			t.Errorf("%d calls in 30 s to count instances", got)
		}
		use(6*sec, 0, 1)
		count(3, 3, 3)
		use(8*sec, 0, 1)
		count(2, 2, 3) // the last has died, or is cut off
		lines[0].fail(errRefused)
		if got, err := grants(takes[0], 10); got != 3 || err != nil {
			t.Errorf("a share of two: %d, %v", got, err)
		}
		use(time.Minute, 1)
		count(2, 1, 3) // while it is cut off the number stays what it was
		// Nobody is counted where nobody has a share, or the number is given.
		for _, cfg := range []Config{{}, {OnOutage: LocalShare, Instances: 9}} {
			s, l := v.newStore(t, cfg)
			take := sixes(t, s, OutagePolicy(0))["leaky"]
			_, _ = take(0)
			synctest.Wait()
			if l.calls.Load() != 1 {
				t.Errorf("%+v: %d calls", cfg, l.calls.Load())
			}
		}
	})
}

// However instances join, and whenever the server becomes unavailable from them, all together are
// admitted no more than (1 + i/M) times the limit; M are those that had counted each
// other before the first was cut off.
func TestSharesWhileInstancesJoin(t *testing.T) {
	const capacity = 1000
	quota := limits.Rate{Burst: capacity, Count: 1, Per: time.Hour}
	// all returns how much l is admitted of all there is.
	all := func(l *Bucket) (n int64) {
		for range 2 * capacity {
			if res, err := l.Take(bg, "k", 1); err == nil && res.Allowed() {
				n++
			}
		}
		return n
	}
	type machine struct {
		store *Store
		line  *line
		limit *Bucket
	}
	start := func(v *remote) machine {
		s, l := v.newStore(t, Config{OnOutage: LocalShare})
		m := machine{s, l, newLeaky(t, s, "l", quota)}
		_, _ = m.limit.Take(bg, "k", 0)
		synctest.Wait()
		return m
	}
	work := func(d time.Duration, all ...machine) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * ms) {
			for _, m := range all {
				_, _ = m.limit.Take(bg, "k", 0)
			}
			synctest.Wait()
		}
	}
	for name, v := range map[string]struct {
		run         func(v *remote) []machine // the first of them are cut off in the end
		cut         int
		least, most int64
	}{
		"ten start at one time": {func(v *remote) (ms []machine) {
			for range 10 {
				ms = append(ms, start(v))
				time.Sleep(20 * time.Millisecond)
			}
			return ms
		}, 10, 0, 0},
		"ten start at one time, 4 s before": {func(v *remote) (ms []machine) {
			for range 10 {
				ms = append(ms, start(v))
				time.Sleep(20 * time.Millisecond)
			}
			work(4*sec, ms...)
			return ms
		}, 10, capacity, capacity},
		"one each second, all are cut off": {func(v *remote) (ms []machine) {
			for range 10 {
				ms = append(ms, start(v))
				work(sec, ms...)
			}
			return ms
		}, 10, capacity / 2, capacity * 5 / 4},
		"one is cut off when it has just started": {func(v *remote) []machine {
			return []machine{start(v)}
		}, 1, 0, 0},
		"one that runs alone is cut off": {func(v *remote) []machine {
			a := start(v)
			work(4*sec, a)
			return []machine{a}
		}, 1, capacity, capacity},
		"three joined while one was idle": {func(v *remote) []machine {
			a := start(v)
			work(4*sec, a)
			ms := []machine{a, start(v), start(v), start(v)}
			work(20*sec, ms[1:]...)
			return ms
		}, 1, capacity, capacity},
		"one was idle and has come back": {func(v *remote) []machine {
			ms := []machine{start(v), start(v)}
			work(4*sec, ms...)
			work(14*sec, ms[1])
			work(500*time.Millisecond, ms[0]) // and counts, but the other does not know
			return ms
		}, 2, capacity, capacity},
		"a share lasts for as long as the server is away": {func(v *remote) []machine {
			ms := []machine{start(v), start(v)}
			work(4*sec, ms...)
			ms[0].line.fail(errRefused)
			work(time.Minute, ms...)
			return ms
		}, 1, capacity * 3 / 2, capacity * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := v.run(newRemote())
				for _, m := range ms[:v.cut] {
					m.line.fail(errRefused)
				}
				sum := int64(0)
				for _, m := range ms {
					sum += all(m.limit)
				}
				if sum < v.least || sum > v.most {
					t.Errorf("%d granted of %d, want %d to %d", sum, capacity, v.least, v.most)
				}
			})
		})
	}
}

// The script that counts them does so on a server, by its clock.
func TestAliveScript(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		at := func(d time.Duration, id string, want int64) {
			t.Helper()
			clock.set(d)
			reply, err := s.run(bg, alive, []string{b.prefix}, []string{id, format(int64(beatLasts / time.Microsecond))})
			if err != nil || len(reply) != 3 || reply[1] != want {
				t.Errorf("at %v: %v, %v; want %d", d, reply, err, want)
			}
		}
		at(0, "a", 1)
		at(sec, "b", 2)
		at(2*sec, "b", 2)
		at(3*sec, "c", 3)
		at(10*sec-time.Microsecond, "b", 3)
		at(10*sec, "b", 2)
		at(15*sec, "a", 2)
		at(-time.Hour, "a", 1) // the clock was put back: the others may be gone
		if ttl := b.redis.PTTL(bg, b.prefix).Val(); ttl < beatLasts-sec || ttl > beatLasts+2*ms {
			t.Errorf("it lives for %v", ttl)
		}
		b.redis.Del(bg, b.prefix)
		b.redis.Set(bg, b.prefix, "x", 0)
		if _, err := s.run(bg, alive, []string{b.prefix}, []string{"a", "1"}); !errors.Is(err, ErrData) {
			t.Error("a string")
		}
	})
}

// What a share of a sliding window admitted is reported in scripts of 10,000 units. If one
// of them fails, the next report is about the rest only.
func TestStore_report_InPartsReportsEachUnitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		s, l := v.newStore(t, Config{OnOutage: LocalShare, Instances: 1})
		w := newLog(t, s, "parts", 50_000, time.Hour)
		l.fail(errRefused)
		for range 3 {
			if res, err := w.Take(bg, "k", 10_000); err != nil || !res.Allowed() {
				t.Fatal(res, err)
			}
		}
		time.Sleep(sec)
		l.failAfter(1)
		if res, err := w.Take(bg, "k", 0); err != nil || res.Remaining != 20_000 { // the share decides
			t.Fatal(res, err)
		}
		time.Sleep(sec)
		l.fail(nil)
		if res, err := w.Take(bg, "k", 0); err != nil || res.Remaining != 20_000 {
			t.Errorf("%+v, %v: units were reported twice, or not at all", res, err)
		}
		if got := s.Stats().Reported; got != 30_000 {
			t.Errorf("%d units were reported, want 30000", got)
		}
	})
}
