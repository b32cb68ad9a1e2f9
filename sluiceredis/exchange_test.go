package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// exchangeReport returns a report of one of a few gates.
func exchangeReport(random *rand.Rand, granted map[string]int64, stamp int64) peers.Report {
	id := string(rune('a' + random.IntN(5)))
	granted[id] += random.Int64N(1000)
	r := peers.Report{
		ID: id, Want: random.Int64N(40_000_000) - 2, Admitted: granted[id], Use: random.Int64N(50_000_000), Seen: stamp,
	}
	switch random.IntN(6) {
	case 0:
		r.Want = peers.Leaves
	case 1, 2:
		r.Want = peers.WantsAll
	}
	if random.IntN(4) == 0 {
		r.News = []int64{random.Int64N(200_000_000), random.Int64N(1 << 53), 0}
		if random.IntN(3) == 0 {
			r.Seen--
		}
	}
	r.Seen = max(0, r.Seen)
	return r
}

// The script is the rule of package ext/peers, to the last digit.
func TestStore_Exchange_AsTheModel(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		for seed := range uint64(8) {
			random := rand.New(rand.NewPCG(seed, 2))
			group, model, now, stamp := fmt.Sprint("group {|} ", seed), peers.Groups{}, time.Duration(0), int64(0)
			granted := map[string]int64{}
			for step := range 60 {
				now += time.Duration(random.Int64N(int64(600*time.Millisecond))) / 1000 * 1000
				if random.IntN(20) == 0 {
					now += time.Duration(random.IntN(8)-3) * time.Second // the clock may step back
				}
				now = max(0, now)
				clock.set(now)
				r := exchangeReport(random, granted, stamp)
				want := model.Exchange((epoch + now).Microseconds(), "", r)
				got, err := s.Exchange(bg, group, r)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.News, want.News) {
					t.Fatalf("seed %d, step %d: news %v, want %v", seed, step, got.News, want.News)
				}
				got.News, want.News = nil, nil
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("seed %d, step %d at %v: %+v\n got %+v\nwant %+v", seed, step, now, r, got, want)
				}
				stamp = got.Stamp
			}
		}
	})
}

func TestStore_Exchange_Key(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, r := b.store(t), peers.Report{ID: "a", Want: peers.WantsAll}
		key := s.key("peers1", "learned", "api", "")
		if _, err := s.Exchange(bg, "api", r); err != nil {
			t.Fatal(err)
		}
		if ttl := b.redis.PTTL(bg, key).Val(); ttl < groupKeeps-time.Minute || ttl > groupKeeps {
			t.Errorf("the key lives for %v", ttl)
		}
		r.Want = peers.Leaves
		if _, err := s.Exchange(bg, "api", r); err != nil {
			t.Fatal(err)
		}
		if n := b.redis.Exists(bg, key).Val(); n != 0 {
			t.Error("a group without gates and news has a key")
		}
		for name, spoil := range map[string]func(){
			"a text":            func() { b.redis.Set(bg, key, "x", 0) },
			"foreign fields":    func() { b.redis.HSet(bg, key, "x", "y") },
			"too few numbers":   func() { b.redis.HSet(bg, key, "mb", "1 2 3") },
			"too long a number": func() { b.redis.HSet(bg, key, "news", "1 12345678901234567890") },
			"no stamp":          func() { b.redis.HSet(bg, key, "news", "1") },
		} {
			b.redis.Del(bg, key)
			spoil()
			before := b.redis.Dump(bg, key).Val()
			if _, err := s.Exchange(bg, "api", r); !errors.Is(err, ErrData) {
				t.Errorf("%s: %v", name, err)
			}
			if after := b.redis.Dump(bg, key).Val(); after != before {
				t.Errorf("%s: the key was changed", name)
			}
		}
	})
}

func TestStore_Exchange_BadReports(t *testing.T) {
	b := newBackend(t, redistest.Mini(t))
	alone, err := New(InProcess(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{b.store(t), alone} {
		for want, r := range map[string]peers.Report{
			"no ID":            {},
			"-3":               {ID: "a", Want: -5},
			"-7":               {ID: "a", Admitted: -7},
			"-8":               {ID: "a", Use: -8},
			"-9":               {ID: "a", News: []int64{1, -9}},
			"9007199254740993": {ID: "a", Seen: 1<<53 + 1},
			"65 numbers of":    {ID: "a", News: make([]int64, 65)},
		} {
			if _, err := s.Exchange(bg, "api", r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want something of %q", r, err, want)
			}
		}
	}
}

func TestStore_Exchange_InProcess(t *testing.T) {
	s, err := New(InProcess(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := peers.Report{ID: "a", Want: peers.WantsAll, News: []int64{60_000_000}}
	b := peers.Report{ID: "b", Want: peers.WantsAll}
	_, _ = s.Exchange(bg, "api", a)
	if r, err := s.Exchange(bg, "api", b); err != nil || r.Peers != 2 || r.Due != peers.Whole/2 || !slices.Equal(r.News, a.News) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.Exchange(bg, "other", b); err != nil || r.Peers != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := s.Exchange(ctx, "api", a); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An upstream admits a rate, and 20 calls together.
type upstream struct {
	rate float64

	mu      sync.Mutex
	granted map[*sluice.Gate]int
	refused int
	have    float64
	seen    time.Time
}

// serve serves a call of g.
func (u *upstream) serve(g *sluice.Gate) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.have, u.seen = min(20, u.have+u.rate*now.Sub(u.seen).Seconds()), now
	if u.have < 1 {
		u.refused++
		return sluice.ThrottledFor(errors.New("too many"), 0)
	}
	u.have--
	u.granted[g]++
	return nil
}

// shared returns a gate with its own store, as in its own process.
func (b *backend) shared(t *testing.T, peers bool) *sluice.Gate {
	t.Helper()
	cfg := sluice.Config{Name: "api", RetryBudget: -1}
	if peers {
		cfg.Adaptive.Peers = b.store(t)
	}
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// callers calls u through g, so many calls at a time, until ctx is done.
func (u *upstream) callers(ctx context.Context, g *sluice.Gate, n int) (wait func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = sluice.Retry(ctx, g, func(context.Context) error {
					time.Sleep(20 * time.Millisecond)
					return u.serve(g)
				})
			}
		})
	}
	return wg.Wait
}

// Four gates with their own stores share a Redis and the limit of a server. Only what is
// certain on any machine is checked: that they find each other, that a gate without a
// rejection believes what others have learned, and that all calls end.
func TestStore_Exchange_GatesOnARedis(t *testing.T) {
	b := onRedis(t)
	ctx, cancel := context.WithTimeout(bg, 2*time.Minute)
	defer cancel()
	calling, stop := context.WithCancel(ctx)
	defer stop()
	u := &upstream{rate: 200, granted: map[*sluice.Gate]int{}, seen: time.Now()}
	var gates []*sluice.Gate
	for range 3 {
		g := b.shared(t, true)
		gates = append(gates, g)
		defer u.callers(calling, g, 8)()
	}
	defer stop()
	until := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			select {
			case <-ctx.Done():
				t.Fatalf("not in 2 min: %s", what)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	until("the three find each other", func() bool {
		for _, g := range gates {
			if l := g.Stats().Learned; l == nil || l.Peers != 3 || l.Rate == 0 {
				return false
			}
		}
		return true
	})
	fresh := b.shared(t, true)
	until("the fourth believes the others", func() bool {
		if err := fresh.Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		l := fresh.Stats().Learned
		return l != nil && l.Peers == 4 && l.Rate > 0 && l.Throttled == 0
	})
}

// Gates share what they learn of each unit, each with its own key, and a gate that is shut
// down has left all groups when Shutdown returns.
func TestStore_Exchange_UnitsAndGoodbye(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		probe := b.store(t)
		groups := []string{"api", "api\x1ftokens"}
		exchange := func(group string, news []int64) peers.Reply {
			t.Helper()
			r, err := probe.Exchange(ctx, group, peers.Report{ID: "probe", Want: peers.WantsAll, News: news})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		// As a gate that has learned 1,000 tokens per second.
		exchange(groups[1], []int64{1000e6, 1e6, 0, 0, 32e6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2})
		for stalls := 1; ; stalls++ {
			g := b.shared(t, true)
			calls := sluice.WithCosts(ctx, sluice.Costs{"tokens": 1})
			for {
				if err := g.Do(calls, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
				l := g.Stats().Learned
				if l != nil && l.Unit == "tokens" && l.Rate == 1000 && l.Peers == 2 && exchange("api", nil).Peers == 2 {
					break
				}
				exchange(groups[1], nil)
				<-time.After(20 * time.Millisecond)
			}
			if n := len(b.redis.Keys(ctx, probe.prefix+":peers1:*").Val()); n != 2 {
				t.Errorf("%d keys", n)
			}
			began := time.Now()
			if err := g.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if took <= time.Second {
				break
			}
			if stalls == 3 { // Shutdown waits no longer than a second
				t.Fatalf("the server or this machine stalls: Shutdown took %v", took)
			}
		}
		for _, group := range groups {
			if r := exchange(group, nil); r.Peers != 1 || r.Share != peers.Whole {
				t.Errorf("after Shutdown, of %q: %+v", group, r)
			}
		}
	})
}

// What processes get of a limit after 10 s, with and without an exchange, on a real server and
// clock.
func TestLongExchange(t *testing.T) {
	needLong(t)
	const lasts, begins = 30 * time.Second, 10 * time.Second
	for _, n := range []int{1, 2, 8} {
		for _, rate := range []float64{50, 500} {
			for _, share := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d processes on %g, sharing %v", n, rate, share), func(t *testing.T) {
					b := onRedis(t)
					ctx, stop := context.WithTimeout(bg, lasts)
					defer stop()
					u := &upstream{rate: rate, granted: map[*sluice.Gate]int{}, seen: time.Now()}
					var waits []func()
					for range n {
						waits = append(waits, u.callers(ctx, b.shared(t, share), 64/n))
					}
					time.Sleep(begins)
					u.mu.Lock()
					clear(u.granted)
					u.refused = 0
					u.mu.Unlock()
					for _, wait := range waits {
						wait()
					}
					sum, squares := 0., 0.
					for _, n := range u.granted {
						sum += float64(n)
						squares += float64(n) * float64(n)
					}
					t.Logf("goodput %.3f, %.4f refused, Jain %.3f", sum/(rate*(lasts-begins).Seconds()),
						float64(u.refused)/(sum+float64(u.refused)), sum*sum/squares/float64(n))
					if sum < rate*(lasts-begins).Seconds()/10 {
						t.Error("not even a tenth")
					}
				})
			}
		}
	}
}
