package sluiceredis

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

func newLog(t testing.TB, s *Store, name string, limit int64, window time.Duration, onOutage ...OutagePolicy) *Counter {
	t.Helper()
	l, err := s.Sliding(name, limit, window, onOutage...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newFixed(t testing.TB, s *Store, name string, cfg FixedConfig) *Counter {
	t.Helper()
	f, err := s.Fixed(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A step asks at a time for n and expects an answer.
type step struct {
	at   time.Duration
	n    int64
	want limits.Result
}

const ms = time.Millisecond

// yes, no and never are answers of a limit of 5.
func yes(remaining int64, reset time.Duration) limits.Result {
	return limits.Result{Limit: 5, Remaining: remaining, ResetAfter: reset}
}

func no(remaining int64, retry, reset time.Duration) limits.Result {
	return limits.Result{Limit: 5, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

func never(remaining int64, reset time.Duration) limits.Result {
	return no(remaining, limits.Never, reset)
}

func steps(t *testing.T, clock *frozen, take func(n int64) (limits.Result, error), all []step) {
	t.Helper()
	for _, s := range all {
		clock.set(s.at)
		if got, err := take(s.n); err != nil || got != s.want {
			t.Errorf("%d at %v: %+v, %v; want %+v", s.n, s.at, got, err, s.want)
		}
	}
}

func TestLog(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLog(t, s, "log", 5, sec)
		take := func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) }
		steps(t, clock, take, []step{
			{0, 0, yes(5, 0)},
			{0, 6, never(5, 0)},
			{0, 2, yes(3, sec)}, // two in one microsecond are two
			{300 * ms, 2, yes(1, sec)},
			{400 * ms, 2, no(1, 600*ms, 900*ms)}, // when the first two have left
			{400 * ms, 3, no(1, 600*ms, 900*ms)}, // likewise
			{400 * ms, 4, no(1, 900*ms, 900*ms)}, // when all have left but one
			{999999 * time.Microsecond, 2, no(1, time.Microsecond, 300*ms+time.Microsecond)},
			{sec, 2, yes(1, sec)}, // exactly one window later
			{sec, 0, yes(1, sec)},
			{1300 * ms, 0, yes(3, 700*ms)},
			{3 * sec, 5, yes(0, sec)},
			{3 * sec, 1, no(0, sec, sec)},
		})
		if n := b.redis.ZCount(bg, s.key("log1", "log", "k", ""), "(0", "+inf").Val(); n != 5 {
			t.Errorf("%d are remembered", n)
		}
		// The clock steps back: nothing is admitted twice, nobody is shut out for
		// longer than a window.
		steps(t, clock, take, []step{
			{0, 1, no(0, sec, sec)},
			{999 * ms, 1, no(0, ms, ms)},
			{sec, 5, yes(0, sec)},
		})
		if got := s.Stats().Repaired; got != 5 {
			t.Errorf("clamped %d, want 5", got)
		}
	})
}

func TestLogAdjust(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLog(t, s, "log", 5, sec)
		m := l.on("k")
		take := func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) }
		adjust := func(delta int64, age time.Duration, want error) {
			t.Helper()
			if err := m.Adjust(bg, delta, age); !errors.Is(err, want) {
				t.Errorf("%d: %v", delta, err)
			}
		}
		steps(t, clock, take, []step{{0, 2, yes(3, sec)}, {500 * ms, 3, yes(0, sec)}})
		adjust(-1, 500*ms, nil) // of the first two
		steps(t, clock, take, []step{{sec - 1000, 2, no(1, 1000, 500*ms+1000)}, {sec, 2, yes(0, sec)}})
		adjust(-2, 0, nil)
		adjust(4, 0, nil) // seven in all
		steps(t, clock, take, []step{{sec, 1, no(0, 500*ms, sec)}, {1500 * ms, 1, yes(0, sec)}})
		adjust(-9, 1400*ms, errStranded)
		if err := m.Adjust(bg, kinds.SlidingAtOnce+1, 0); err == nil {
			t.Error("too large a correction")
		}
		if got := s.Stats(); got.Refunded != 3 || got.Unreturned != 5 {
			t.Errorf("%+v", got)
		}
	})
}

func TestFixedAnchored(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		f := newFixed(t, s, "anchored", FixedConfig{Limit: 5, Window: sec})
		take := func(n int64) (limits.Result, error) { return f.Take(bg, "k", n) }
		steps(t, clock, take, []step{
			{300 * ms, 0, yes(5, 0)},
			{300 * ms, 6, never(5, 0)},
			{300 * ms, 2, yes(3, sec)},
			{400 * ms, 3, yes(0, 900*ms)},
			{1299 * ms, 1, no(0, ms, ms)},
			{1300 * ms, 4, yes(1, sec)}, // and a window begins
			{1400 * ms, 2, no(1, 900*ms, 900*ms)},
			// The clock steps back by more than a window: the current one goes
			// on, from now at the latest.
			{0, 2, no(1, sec, sec)},
			{999 * ms, 2, no(1, ms, ms)},
			{sec, 5, yes(0, sec)},
		})
		if got := s.Stats().Repaired; got != 1 {
			t.Errorf("clamped %d, want 1", got)
		}
	})
}

func TestFixedAligned(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		f := newFixed(t, s, "aligned", FixedConfig{Limit: 5, Window: 10 * sec, Aligned: true}) // set counts from a multiple of it
		take := func(n int64) (limits.Result, error) { return f.Take(bg, "k", n) }
		steps(t, clock, take, []step{
			{9 * sec, 5, yes(0, sec)},
			{9 * sec, 1, no(0, sec, sec)},
			{10 * sec, 3, yes(2, 10*sec)},
			{10*sec - 1000, 3, no(2, 10*sec+1000, 10*sec+1000)}, // put back over the edge: what was used is used
			{10 * sec, 2, yes(0, 10*sec)},
			{-5 * sec, 1, no(0, 5*sec, 5*sec)}, // put back further: as if all were used in that window
			{-sec, 1, no(0, sec, sec)},
			{0, 5, yes(0, 10*sec)},
		})
		g := newFixed(t, s, "moved", FixedConfig{Limit: 5, Window: 10 * sec, Aligned: true, Offset: -3 * sec})
		steps(t, clock, func(n int64) (limits.Result, error) { return g.Take(bg, "k", n) }, []step{
			{6 * sec, 5, yes(0, sec)}, {7 * sec, 5, yes(0, 10*sec)},
		})
	})
}

func TestFixedAdjust(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		f := newFixed(t, s, "adjust", FixedConfig{Limit: 5, Window: sec})
		m := f.on("k")
		take := func(n int64) (limits.Result, error) { return f.Take(bg, "k", n) }
		adjust := func(delta int64, age time.Duration, want error) {
			t.Helper()
			if err := m.Adjust(bg, delta, age); !errors.Is(err, want) {
				t.Errorf("%d: %v", delta, err)
			}
		}
		steps(t, clock, take, []step{{0, 5, yes(0, sec)}})
		adjust(-2, 0, nil)
		adjust(4, 0, nil)
		steps(t, clock, take, []step{{0, 1, no(0, sec, sec)}, {sec, 2, yes(3, sec)}})
		adjust(-2, ms, errStranded) // of the window before
		adjust(-1, 0, nil)
		steps(t, clock, take, []step{{sec, 4, yes(0, sec)}})
	})
}

func TestWindowsRefuseWhatCannotBe(t *testing.T) {
	s := (&backend{prefix: "none"}).storeOn(t, unreachable{})
	for _, v := range []struct {
		cfg  FixedConfig
		want string
	}{
		{FixedConfig{0, sec, false, 0, 0}, "limit of 0"},
		{FixedConfig{-1, sec, false, 0, 0}, "limit of -1"},
		{FixedConfig{1 << 62, sec, false, 0, 0}, "at most"},
		{FixedConfig{1, 0, false, 0, 0}, "window of 0s"},
		{FixedConfig{1, -sec, false, 0, 0}, "must be positive"},
		{FixedConfig{1, 105 * 24 * time.Hour, false, 0, 0}, "104 days"},
		{FixedConfig{1, sec, false, sec, 0}, "needs aligned"},
	} {
		if _, err := s.Fixed("n", v.cfg); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v, want %q", v.cfg, err, v.want)
		}
	}
	if _, err := s.Sliding("", 1, sec); err == nil {
		t.Error("no name")
	}
	if _, err := s.Sliding("n", kinds.MostSliding+1, sec); err == nil {
		t.Error("too large a log")
	}
}

// logModel keeps every time; it is the definition. A window of less than a
// microsecond has no place in it.
func logModel(limit, window int64) func([]int64, record[limits.Result]) (limits.Result, []int64) {
	return func(in []int64, r record[limits.Result]) (limits.Result, []int64) {
		in = slices.Clone(in)
		for len(in) > 0 && in[0] <= r.now-window {
			in = in[1:]
		}
		used := int64(len(in))
		res := limits.Result{Limit: limit}
		switch {
		case r.n > limit:
			res.RetryAfter = limits.Never
		case used+r.n > limit:
			res.RetryAfter = time.Duration(in[used+r.n-limit-1]+window-r.now) * time.Microsecond
		default:
			for range r.n {
				in = append(in, r.now)
			}
		}
		res.Remaining = limit - int64(len(in))
		if len(in) > 0 {
			res.ResetAfter = time.Duration(in[len(in)-1]+window-r.now) * time.Microsecond
		}
		return res, in
	}
}

// fixedModel is a window that begins with the first call.
func fixedModel(limit, window int64) func([2]int64, record[limits.Result]) (limits.Result, [2]int64) {
	return func(w [2]int64, r record[limits.Result]) (limits.Result, [2]int64) {
		start, used := w[0], w[1]
		if r.now >= start+window {
			start, used = r.now, 0
		}
		left := time.Duration(start+window-r.now) * time.Microsecond
		res := limits.Result{Limit: limit}
		switch {
		case r.n > limit:
			res.RetryAfter = limits.Never
		case used+r.n > limit:
			res.RetryAfter = left
		default:
			used += r.n
			w = [2]int64{start, used}
		}
		res.Remaining = limit - used
		if used > 0 {
			res.ResetAfter = left
		}
		return res, w
	}
}

func TestReplayOfConcurrentWindows(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		const limit, window = 20, 3 * ms
		ask := func(what string, of func(s *Store) spot) []record[limits.Result] {
			var mu sync.Mutex
			var records []record[limits.Result]
			var wg sync.WaitGroup
			for range 3 {
				s := b.store(t)
				for range 6 {
					wg.Go(func() {
						for range 150 {
							n := 1 + rand.Int64N(4)
							r, err := s.ask(bg, of(s), n)
							if err != nil {
								t.Error(what, err)
								return
							}
							mu.Lock()
							records = append(records, record[limits.Result]{now: r.now, n: n, answer: r.results()[0]})
							mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			granted := 0
			for _, r := range records {
				if r.answer.Allowed() {
					granted++
				}
			}
			if granted < 20 || granted > len(records)-20 {
				t.Errorf("%s: %d of %d granted: nothing is shown", what, granted, len(records))
			}
			return records
		}
		logs := ask("log", func(s *Store) spot {
			return newLog(t, s, "replay", limit, window).at("k")
		})
		if err := replay(logs, logModel(limit, window.Microseconds())); err != nil {
			t.Error(err)
		}
		fixeds := ask("fixed", func(s *Store) spot {
			return newFixed(t, s, "replay", FixedConfig{Limit: limit, Window: window}).at("k")
		})
		if err := replay(fixeds, fixedModel(limit, window.Microseconds())); err != nil {
			t.Error(err)
		}
		for _, broken := range [][]record[limits.Result]{logs, fixeds} {
			broken[len(broken)/3].answer.RetryAfter++
		}
		if replay(logs, logModel(limit, window.Microseconds())) == nil || replay(fixeds, fixedModel(limit, window.Microseconds())) == nil {
			t.Error("a falsified answer was explained")
		}
	})
}

// Windows are forgotten when they have ended, not before.
func TestExpiryOfWindows(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		l, f := newLog(t, s, "ttl", 3, time.Hour), newFixed(t, s, "ttl", FixedConfig{Limit: 3, Window: time.Hour})
		for _, take := range []func() error{
			func() error { _, err := l.Take(bg, "k", 1); return err },
			func() error { _, err := f.Take(bg, "k", 1); return err },
			func() error { return l.on("k2").Adjust(bg, 1, 0) },
			func() error { return f.on("k2").Adjust(bg, 1, 0) },
		} {
			if err := take(); err != nil {
				t.Fatal(err)
			}
		}
		for _, kind := range []string{"log1", "fixed1"} {
			for _, k := range []string{"k", "k2"} {
				ttl := b.redis.PTTL(bg, s.key(kind, "ttl", k, "")).Val()
				if ttl > time.Hour+2*ms || ttl < time.Hour-time.Minute {
					t.Errorf("%s %s: %v", kind, k, ttl)
				}
			}
		}
		if _, err := l.Take(bg, "none", 0); err != nil {
			t.Error(err)
		}
		if _, err := f.Take(bg, "none", 0); err != nil {
			t.Error(err)
		}
		if n := b.redis.Exists(bg, s.key("log1", "ttl", "none", ""), s.key("fixed1", "ttl", "none", "")).Val(); n != 0 {
			t.Error("looking made a key")
		}
	})
}

// Who had gone is returned his own units of a log, not those that others were
// admitted after him: at most 2 in any second.
func TestGoneCallersOfALogGiveBackTheirOwn(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLog(t, s, "own", 2, sec)
		own, err := s.ask(bg, l.at("k"), 1)
		if err != nil {
			t.Fatal(err)
		}
		clock.set(500 * ms) // the reply is late
		if res, err := l.Take(bg, "k", 1); err != nil || !res.Allowed() {
			t.Fatal(res, err)
		}
		s.giveBack(sign{}, []*request{&own.request})
		clock.set(sec)
		// One left at 0.5 s, so that only one more may before 1.5 s.
		if res, err := l.Take(bg, "k", 2); err != nil || res.Allowed() {
			t.Errorf("three in (0.5 s, 1.5 s): %+v, %v", res, err)
		}
	})
}
