package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// strictOn returns a store in strict mode.
func strictOn(t testing.TB, client Client, prefix string) *Store {
	t.Helper()
	s, err := New(client, Config{Prefix: prefix, Timeout: 10 * time.Second, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// freezeStrictly returns a store in strict mode whose server's clock stands still,
// and what makes the server another one, with the data it has.
func (b *backend) freezeStrictly(t testing.TB) (s *Store, clock *frozen, replace func()) {
	s, clock = b.freeze(t)
	s.strict = true
	if err := s.ConfirmIntact(bg); err != nil {
		t.Fatal(err)
	}
	return s, clock, func() {
		t.Helper()
		was := s.Stats().Epochs
		old := strings.Repeat("0", 40) + " " + format(epoch.Microseconds())
		if err := b.redis.Set(bg, s.epochKey(""), old, 0).Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if now := s.Stats().Epochs; now <= was {
				t.Errorf("%d epochs, before it were %d", now, was)
			}
		})
	}
}

func TestBucketAfterLoss(t *testing.T) {
	for _, survives := range []bool{false, true} {
		t.Run(fmt.Sprint("survives ", survives), func(t *testing.T) {
			b := onRedis(t)
			s, clock, replace := b.freezeStrictly(t)
			l := newLeaky(t, s, "loss", limits.Rate{Burst: 5, Count: 1, Per: sec})
			take := func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) }
			remaining := func(n int64, reset time.Duration) limits.Result {
				return limits.Result{Limit: 5, Remaining: n, ResetAfter: reset}
			}
			refused := func(n int64, retry, reset time.Duration) limits.Result {
				return limits.Result{Limit: 5, Remaining: n, RetryAfter: retry, ResetAfter: reset}
			}
			steps(t, clock, take, []step{
				{0, 2, remaining(3, 2*sec)},
			})
			if !survives {
				b.redis.Del(bg, s.key("b1", "loss", "k", ""))
			}
			replace()
			// The epoch is 0.5 s: the bucket was full then, at worst.
			steps(t, clock, take, []step{
				{500 * ms, 0, remaining(0, 5*sec)},
				{500 * ms, 1, refused(0, sec, 5*sec)},
				{1500*ms - 1000, 1, refused(0, 1000, 4*sec+1000)},
				{1500 * ms, 1, remaining(0, 5*sec)},
				{3500 * ms, 0, remaining(2, 3*sec)},
				{3500 * ms, 3, refused(2, sec, 3*sec)},
				{3500 * ms, 6, refused(2, limits.Never, 3*sec)},
			})
			// What is taken without asking, or returned, is so next to what was lost.
			adjust := func(delta int64) {
				t.Helper()
				if err := l.on("k").Adjust(bg, delta, 0); err != nil {
					t.Error(err)
				}
			}
			adjust(+4)
			steps(t, clock, take, []step{{3500 * ms, 0, remaining(0, 7*sec)}})
			adjust(-4)
			adjust(-1)
			steps(t, clock, take, []step{
				{3500 * ms, 0, remaining(3, 2*sec)}, // 2 s is what is left of the epoch
				{5500 * ms, 5, remaining(0, 5*sec)},
			})
		})
	}
}

// What is added to a bucket that was lost is added to a full one.
func TestDebtAfterLoss(t *testing.T) {
	b := onRedis(t)
	s, clock, replace := b.freezeStrictly(t)
	l := newLeaky(t, s, "debt", limits.Rate{Burst: 5, Count: 1, Per: sec})
	replace()
	if err := l.on("k").Adjust(bg, 2, 0); err != nil {
		t.Fatal(err)
	}
	res, err := l.Take(bg, "k", 1)
	if want := (limits.Result{Limit: 5, RetryAfter: 3 * sec, ResetAfter: 7 * sec}); err != nil || res != want {
		t.Errorf("%+v, %v; want %+v", res, err, want)
	}
	clock.set(3 * sec)
	if res, err := l.Take(bg, "k", 1); err != nil || !res.Allowed() {
		t.Errorf("%+v, %v", res, err)
	}
	// A bucket that owes more than it could hold, and was not lost, still does.
	if err := l.on("k").Adjust(bg, 20, 0); err != nil {
		t.Fatal(err)
	}
	replace()
	res, err = l.Take(bg, "k", 0)
	if err != nil || res.ResetAfter != 25*sec {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestLogAfterLoss(t *testing.T) {
	b := onRedis(t)
	s, clock, replace := b.freezeStrictly(t)
	l := newLog(t, s, "loss", 5, 10*sec)
	take := func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) }
	yes := func(remaining int64, reset time.Duration) limits.Result {
		return limits.Result{Limit: 5, Remaining: remaining, ResetAfter: reset}
	}
	no := func(remaining int64, retry, reset time.Duration) limits.Result {
		return limits.Result{Limit: 5, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
	}
	steps(t, clock, take, []step{{0, 2, yes(3, 10*sec)}})
	replace()
	steps(t, clock, take, []step{
		{4 * sec, 1, no(0, 10*sec, 10*sec)},
		{4 * sec, 6, no(0, limits.Never, 10*sec)},
		{9 * sec, 0, yes(0, 5*sec)},
	})
	if err := l.on("k").Adjust(bg, 3, 0); err != nil { // at 9 s, so until 19 s
		t.Fatal(err)
	}
	steps(t, clock, take, []step{
		{10 * sec, 3, no(0, 9*sec, 9*sec)}, // two have left, the epoch counts on
		{14*sec - 1000, 1, no(0, 1000, 5*sec+1000)},
		{14 * sec, 3, no(2, 5*sec, 5*sec)},
		{14 * sec, 2, yes(0, 10*sec)},
	})
}

func TestFixedAfterLoss(t *testing.T) {
	yes := func(remaining int64, reset time.Duration) limits.Result {
		return limits.Result{Limit: 5, Remaining: remaining, ResetAfter: reset}
	}
	no := func(remaining int64, retry, reset time.Duration) limits.Result {
		return limits.Result{Limit: 5, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
	}
	for _, v := range []struct {
		name          string
		cfg           FixedConfig
		before, after []step
	}{
		{"anchored", FixedConfig{Limit: 5, Window: 10 * sec},
			[]step{{0, 2, yes(3, 10*sec)}},
			[]step{ // it may have been over, and the next one begun
				{4 * sec, 1, no(0, 10*sec, 10*sec)},
				{4 * sec, 6, no(0, limits.Never, 10*sec)},
				{11 * sec, 0, yes(0, 3*sec)},
				{14*sec - 1000, 1, no(0, 1000, 1000)},
				{14 * sec, 5, yes(0, 10*sec)},
			}},
		// 1,790,000,000 is a multiple of 10.
		{"aligned", FixedConfig{Limit: 5, Window: 10 * sec, Aligned: true},
			[]step{{0, 2, yes(3, 10*sec)}},
			[]step{
				{4 * sec, 1, no(0, 6*sec, 6*sec)},
				{4 * sec, 6, no(0, limits.Never, 6*sec)},
				{10*sec - 1000, 1, no(0, 1000, 1000)},
				{10 * sec, 4, yes(1, 10*sec)},
				{10 * sec, 2, no(1, 10*sec, 10*sec)},
			}},
		{"aligned, lost when it began", FixedConfig{Limit: 5, Window: 10 * sec, Aligned: true},
			nil,
			[]step{{10 * sec, 1, no(0, 10*sec, 10*sec)}, {20 * sec, 5, yes(0, 10*sec)}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := onRedis(t)
			s, clock, replace := b.freezeStrictly(t)
			f := newFixed(t, s, "loss", v.cfg)
			take := func(n int64) (limits.Result, error) { return f.Take(bg, "k", n) }
			steps(t, clock, take, v.before)
			replace()
			steps(t, clock, take, v.after)
		})
	}
}

func TestSlotsAfterLoss(t *testing.T) {
	b := onRedis(t)
	s, clock, replace := b.freezeStrictly(t)
	p := newPacer(t, s, "loss", 1, sec, PacerConfig{Horizon: 10 * sec}, 3)
	reserve := func(n int64, longest, want time.Duration) {
		t.Helper()
		r := pacing{takes: n * p.paced.Load().interval, patience: int64(longest)}
		if err := s.reserve(bg, p.at(), &r); err != nil || !r.ok || r.wait != want {
			t.Errorf("%+v, %v; want a wait of %v", r, err, want)
		}
	}
	refused := func(want time.Duration) {
		t.Helper()
		r := pacing{takes: p.paced.Load().interval, patience: p.horizon}
		if err := s.reserve(bg, p.at(), &r); err != nil || r.ok || r.wait != want {
			t.Errorf("%+v, %v; want a wait of %v", r, err, want)
		}
	}
	for range 3 { // two missed slots and the current one
		reserve(1, 0, 0)
	}
	// The furthest slot that may have been lost is 10 s ahead, and lasts 10 s.
	reserve(9, 10*sec, sec)
	reserve(10, 10*sec, 10*sec)
	b.redis.Del(bg, p.key)
	replace()
	refused(20 * sec)
	clock.set(10*sec - 1000)
	refused(10*sec + 1000)
	clock.set(10 * sec)
	reserve(1, 10*sec, 10*sec)
	clock.set(25 * sec) // 21 s was the next one, and two more were missed
	for range 3 {
		reserve(1, 0, 0)
	}
	reserve(1, sec, sec)
}

// Who was told of a pause tells the server, if that has lost it.
func TestPauseIsToldAgain(t *testing.T) {
	b := onRedis(t)
	s := b.store(t)
	p := newPacer(t, s, "again", 1000, sec, PacerConfig{})
	if err := p.PauseUntil(bg, time.Now().Add(300*ms)); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(290 * ms)
	other := newPacer(t, s, "again", 1000, sec, PacerConfig{})
	b.redis.Del(bg, p.key)
	r, err := p.Reserve(bg, 1, time.Minute)
	if err != nil || r.at.Before(end) {
		t.Errorf("%v, %v before the end of the pause", err, end.Sub(r.at))
	}
	r, err = other.Reserve(bg, 1, time.Minute) // which never heard of it
	if err != nil || r.at.Before(end) {
		t.Errorf("%v, %v before the end of the pause", err, end.Sub(r.at))
	}
	if calls := s.Stats().Scripts; calls != 5 { // pause, reserve, pause, reserve; reserve
		t.Errorf("%d calls", calls)
	}
	// One that has ended is not told again, even if a slot from before its end may be
	// caught up.
	s, clock := b.freeze(t)
	p = newPacer(t, s, "over", 1, sec, PacerConfig{}, 6)
	if err := p.PauseUntil(bg, time.Now().Add(sec)); err != nil {
		t.Fatal(err)
	}
	b.redis.Del(bg, p.key)
	clock.set(2 * sec)
	if r, err := p.Reserve(bg, 1, time.Minute); err != nil || r.slot != int64(epoch-3*sec) {
		t.Errorf("%+v, %v", r, err)
	}
	if calls := s.Stats().Scripts; calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// An epoch begins when there is none, when it is of another history, and when its
// beginning lies in the future: the clock stepped back. No other does.
func TestEpochBegins(t *testing.T) {
	b := onRedis(t)
	s, clock := b.freeze(t)
	s.strict = true
	l := newLeaky(t, s, "begins", limits.Rate{Burst: 5, Count: 1, Per: sec})
	peek := func(what string, at, level time.Duration, epochs uint64) {
		t.Helper()
		clock.set(at)
		res, err := l.Take(bg, "k", 0)
		if err != nil || res.ResetAfter != level || s.Stats().Epochs != epochs {
			t.Errorf("%s: %+v, %v, %d epochs; want %v and %d", what, res, err, s.Stats().Epochs, level, epochs)
		}
	}
	peek("none", 0, 5*sec, 1)
	peek("later", sec, 4*sec, 1)
	peek("put back", -time.Hour, 5*sec, 2)
	peek("later", 2*sec-time.Hour, 3*sec, 2)
	b.redis.Del(bg, s.epochKey(""))
	peek("flushed", 3*sec-time.Hour, 5*sec, 3)
	if err := s.ConfirmIntact(bg); err != nil {
		t.Fatal(err)
	}
	peek("vouched for", 3*sec-time.Hour, 0, 3)
	if ttl := b.redis.TTL(bg, s.epochKey("")).Val(); ttl != -1 {
		t.Errorf("it expires in %v", ttl)
	}
	if got := s.Stats().Scripts; got != 3+5+1+1 {
		t.Errorf("%d calls", got)
	}
}

// A store that is not strict asks for no epoch, and pays for none.
func TestNotStrict(t *testing.T) {
	server := redistest.Start(t)
	b := newBackend(t, server.Addr)
	s := b.store(t)
	l := newLeaky(t, s, "lax", limits.Rate{Burst: 5, Count: 1, Per: sec})
	if res, err := l.Take(bg, "k", 5); err != nil || !res.Allowed() {
		t.Errorf("%+v, %v", res, err)
	}
	if info := b.redis.Info(bg, "commandstats").Val(); strings.Contains(info, "cmdstat_info:") {
		t.Error("the server was asked for its history")
	}
	if err := s.ConfirmIntact(bg); err == nil || s.Stats().Epochs != 0 {
		t.Errorf("%v, %+v", err, s.Stats())
	}
}

// asks are ways to ask each limit of a store.
func asks(t *testing.T, s *Store) map[string]func() error {
	l := newLeaky(t, s, "asks", limits.Rate{Burst: 5, Count: 1, Per: time.Hour})
	g, f := newLog(t, s, "asks", 5, time.Hour), newFixed(t, s, "asks", FixedConfig{Limit: 5, Window: time.Hour})
	p := newPacer(t, s, "asks", 1, time.Minute, PacerConfig{})
	sem := newSemaphore(t, s, "asks", 5, SemaphoreConfig{})
	return map[string]func() error{
		"Leaky":        func() error { _, err := l.Take(bg, "k", 1); return err },
		"Leaky.Adjust": func() error { return l.on("k").Adjust(bg, 1, 0) },
		"Log":          func() error { _, err := g.Take(bg, "k", 1); return err },
		"Fixed":        func() error { _, err := f.Take(bg, "k", 1); return err },
		"Pacer":        func() error { _, err := p.Reserve(bg, 1, 0); return err },
		"Semaphore":    func() error { _, err := sem.acquire(bg, 1, 0); return err },
		"renewal":      func() error { _, err := sem.run(bg, 3, "renew", "id", "1", "1"); return err },
	}
}

// Without an id of its history a server cannot be asked strictly, and says so.
func TestStrictNeedsAHistory(t *testing.T) {
	refuses := func(t *testing.T, b *backend) {
		s := strictOn(t, b.client, b.prefix)
		for name, ask := range asks(t, s) {
			if err := ask(); !errors.Is(err, ErrNoHistory) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.ConfirmIntact(bg); !errors.Is(err, ErrNoHistory) {
			t.Errorf("vouched for: %v", err)
		}
		if got := s.Stats(); got.Failed != got.Scripts-1 || got.InvalidKeys != 0 || got.Decisions != 0 {
			t.Errorf("%+v", got)
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		refuses(t, newBackend(t, m.Addr()))
		if keys := m.Keys(); len(keys) > 0 {
			t.Errorf("it has %q", keys)
		}
	})
	t.Run("not allowed to ask", func(t *testing.T) {
		server := redistest.Start(t)
		admin := dial(t, server.Addr)
		if err := admin.Do(bg, "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-info").Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "app", Password: "secret", ContextTimeoutEnabled: true})
		defer c.Close()
		g, err := NewGoRedis(c)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, &backend{c, g, "acl"})
		if n := admin.DBSize(bg).Val(); n != 0 {
			t.Errorf("%d keys", n)
		}
	})
}

// An epoch that is none is left as it is, and named.
func TestHostileEpoch(t *testing.T) {
	b := onRedis(t)
	s := strictOn(t, b.client, b.prefix)
	is := func(what string) {
		t.Helper()
		before := b.redis.Dump(bg, s.epochKey("")).Val()
		all := asks(t, s)
		all["Vouch"] = func() error { return s.ConfirmIntact(bg) }
		for name, ask := range all {
			var bad *keyError
			if err := ask(); !errors.As(err, &bad) || bad.key != s.epochKey("") {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
		if after := b.redis.Dump(bg, s.epochKey("")).Val(); after != before {
			t.Errorf("%s: it was changed", what)
		}
	}
	for _, text := range append(texts, "abc 12345678901234567", "abc 1 2") {
		b.redis.Set(bg, s.epochKey(""), text, 0)
		is(fmt.Sprintf("%q", text))
	}
	for name, make := range others {
		b.redis.Del(bg, s.epochKey(""))
		if err := make(b.redis, s.epochKey("")); err != nil {
			t.Fatal(err)
		}
		is(name)
	}
	b.redis.Del(bg, s.epochKey(""))
}

// A server that is another one at each call is not believed.
func TestRestlessServer(t *testing.T) {
	r := &replying{all: []int64{newEpoch, 1, 0}}
	s := strictOn(t, r, "restless")
	l := newLeaky(t, s, "restless", limits.Rate{Burst: 5, Count: 1, Per: sec})
	if _, err := l.Take(bg, "k", 1); err != errRestless {
		t.Errorf("%v", err)
	}
	if got := s.Stats(); r.calls != 3 || got.Scripts != 3 || got.Epochs != 3 || got.Failed != 1 {
		t.Errorf("%d calls, %+v", r.calls, got)
	}
}

// A replying is a client that gets the same reply to everything.
type replying struct {
	unreachable
	all   []int64
	calls int
}

func (r *replying) Run(context.Context, *Script, []string, []string) ([]int64, error) {
	r.calls++
	return r.all, nil
}
