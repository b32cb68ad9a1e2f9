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
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

func newSemaphore(t testing.TB, s *Store, name string, limit int64, cfg SemaphoreConfig) *Semaphore {
	t.Helper()
	sem, err := s.Semaphore(name, limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sem
}

// lentBy returns how much is leased, as the server has it.
func lentBy(b *backend, sem *Semaphore) string {
	used, _, _ := strings.Cut(b.redis.HGet(bg, sem.keys[0], "=").Val(), " ")
	return used
}

// asked asks for a lease and returns what it replied, but for the clock; a token
// is told as how much it is above the one before.
func asked(t *testing.T, sem *Semaphore, id string, n int64) string {
	t.Helper()
	reply, err := sem.run(bg, 6, "acquire", id, format(n), format(sem.most()))
	if err != nil {
		t.Fatal(err)
	}
	at := epoch.Microseconds()
	if reply[1] > 0 {
		reply[1] -= at
	}
	return fmt.Sprint(reply[:5])
}

func renewed(t *testing.T, sem *Semaphore, ids ...string) string {
	t.Helper()
	var args []string
	for _, id := range ids {
		args = append(args, id, "1", "1") // the numbers are not looked at: nothing was lost
	}
	reply, err := sem.run(bg, len(ids)+2, "renew", args...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(reply[:len(reply)-1])
}

// released releases a lease, which may be asked for later if late is "1".
func released(t *testing.T, sem *Semaphore, id string, late ...string) string {
	t.Helper()
	reply, err := sem.run(bg, 4, "release", append([]string{id}, late...)...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(reply[:3])
}

// What the scripts reply: status, token in µs since the beginning, hint, how much
// is leased, leases clamped.
func TestLeases(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		sem := newSemaphore(t, s, "leases", 5, SemaphoreConfig{Lease: 10 * sec})
		is := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		clock.set(time.Microsecond)
		is("two", asked(t, sem, "a", 2), "[0 1 0 2 0]")
		is("two more in the same microsecond", asked(t, sem, "b", 2), "[0 2 0 4 0]")
		clock.set(4 * sec)
		is("more than is left", asked(t, sem, "c", 2), "[1 0 6000001 4 0]")
		is("the same once more", asked(t, sem, "b", 2), "[0 2 0 4 0]")
		is("the last", asked(t, sem, "d", 1), "[0 4000000 0 5 0]")
		is("renewed", renewed(t, sem, "a", "nobody", "d"), "[0 1 0 1]")
		is("released", released(t, sem, "d"), "[0 1 4]")
		is("released again", released(t, sem, "d"), "[0 0 4]")
		clock.set(14*sec - 1000)
		is("a µs before they end", asked(t, sem, "c", 5), "[1 0 1 4 0]")
		clock.set(14 * sec)
		is("ended, so not renewed", renewed(t, sem, "a", "b"), "[0 0 0]")
		is("what ended is free", asked(t, sem, "c", 5), "[0 14000000 0 5 0]")
		is("what ended frees nothing", released(t, sem, "a"), "[0 0 5]")
		// The counter is lost: tokens rise all the same.
		is("released", released(t, sem, "c"), "[0 1 0]")
		b.redis.Del(bg, sem.keys[1])
		clock.set(15 * sec)
		is("a token", asked(t, sem, "e", 5), "[0 15000000 0 5 0]")
		// The clock steps back: nobody is locked out for longer than a lease, and
		// tokens rise.
		clock.set(-time.Hour)
		is("an hour ago", asked(t, sem, "f", 1), "[1 0 10000000 5 1]")
		clock.set(10*sec - time.Hour)
		is("a lease later", asked(t, sem, "f", 1), "[0 15000001 0 1 0]")
		if n := b.redis.Exists(bg, sem.keys...).Val(); n != 2 {
			t.Errorf("%d keys", n)
		}
		is("released", released(t, sem, "f"), "[0 1 0]")
		if n := b.redis.Exists(bg, sem.keys[0]).Val(); n != 0 {
			t.Errorf("%d keys remain", n)
		}
		// Requests that arrive after the release of what they ask for.
		clock.set(0)
		is("one", asked(t, sem, "g", 2), "[0 15000002 0 2 0]")
		is("released", released(t, sem, "g", "1"), "[0 1 0]")
		is("asked for too late", asked(t, sem, "g", 2), "[0 0 0 0 0]")
		is("released before it was asked for", released(t, sem, "h", "1"), "[0 0 0]")
		is("asked for too late", asked(t, sem, "h", 5), "[0 0 0 0 0]")
		is("another", asked(t, sem, "i", 3), "[0 15000003 0 3 0]")
		is("released beside it", released(t, sem, "j", "1"), "[0 0 3]")
		is("asked for too late", asked(t, sem, "j", 2), "[0 0 0 3 0]")
		is("nothing is renewed", renewed(t, sem, "i"), "[0 1]")
		clock.set(10 * sec)
		is("a lease later", asked(t, sem, "j", 5), "[0 15000004 0 5 0]")
		is("released", released(t, sem, "j"), "[0 1 0]")
		if n := b.redis.Exists(bg, sem.keys[0]).Val(); n != 0 {
			t.Errorf("%d keys remain", n)
		}
		// Those alone are nothing that stays.
		is("released before it was asked for", released(t, sem, "k", "1"), "[0 0 0]")
		for _, key := range sem.keys[:1] {
			if ttl := b.redis.PTTL(bg, key).Val(); ttl <= 0 || ttl > sem.lease+2*ms {
				t.Errorf("%s stays for %v", key, ttl)
			}
		}
	})
}

// strays is a client of which the first request to lease is not answered, and
// arrives only when somebody says so. It tells of what is released.
type strays struct {
	Client
	stray    *func()
	released chan struct{}
}

func (c strays) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if args[0] == "acquire" && *c.stray == nil {
		*c.stray = func() { c.Client.Run(bg, s, keys, args) }
		return nil, ambiguous(errors.New("no reply"))
	}
	if args[0] == "release" {
		defer func() { c.released <- struct{}{} }()
	}
	return c.Client.Run(ctx, s, keys, args)
}

// A request that was given up may arrive when what it asks for was leased to the next
// request for it, and released, or was given up as well: it leases nothing to nobody.
func TestRequestThatArrivesTooLate(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		for name, lend := range map[string]func(*Semaphore){
			"released": func(sem *Semaphore) {
				l, err := sem.acquire(bg, 2, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				l.Release()
			},
			"given up": func(sem *Semaphore) {
				if _, err := sem.acquire(bg, 2, 0); !errors.Is(err, ErrAmbiguous) {
					t.Errorf("%v", err)
				}
			},
			"refused, and given up": func(sem *Semaphore) {
				other := newSemaphore(t, b.store(t), "stray/refused, and given up", 3, SemaphoreConfig{})
				l, err := other.acquire(bg, 2, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := sem.acquire(bg, 2, 30*ms); err != limits.ErrTimeout {
					t.Errorf("%v", err)
				}
				l.Release()
			},
		} {
			t.Run(name, func(t *testing.T) {
				var stray func()
				released := make(chan struct{}, 2)
				sem := newSemaphore(t, b.storeOn(t, strays{b.client, &stray, released}), "stray/"+name, 3, SemaphoreConfig{Poll: 5 * ms})
				lend(sem)
				select {
				case <-released: // in the background if it was given up
				case <-time.After(10 * sec):
					t.Error("it was not released")
				}
				stray()
				if l, err := sem.acquire(bg, 3, 0); err != nil {
					t.Errorf("something is lent, and nobody has it: %v", err)
				} else {
					l.Release()
				}
			})
		}
	})
}

// A lease is lost in time when the server is out of reach, and what it was for
// comes back.
func TestLeaseIsLostWhenTheServerIsOutOfReach(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	const lease = 600 * ms
	near, far := newBackend(t, s.Addr), newBackend(t, p.Addr)
	far.prefix = near.prefix
	other := newSemaphore(t, near.store(t), "cut", 1, SemaphoreConfig{Lease: lease, Poll: 5 * ms})
	cut := newSemaphore(t, far.store(t), "cut", 1, SemaphoreConfig{Lease: lease})
	l, err := cut.acquire(bg, 1, sec)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * lease) // it is renewed meanwhile
	select {
	case <-l.Lost():
		t.Fatal("lost while the server was there")
	default:
	}
	p.Set(redistest.Fault{DropCalls: true, DropReply: true})
	next, err := other.acquire(bg, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Lost():
	default:
		t.Error("another has the permit, and the holder does not know")
	}
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	p.Set(redistest.Fault{})
	l.Release() // does not free what is another's
	if _, err := other.acquire(bg, 1, 0); err != limits.ErrTimeout {
		t.Errorf("%v", err)
	}
	next.Release()
	next.Release()
	if got := far.client; got == nil || cut.store.Stats().LeasesLost != 1 {
		t.Errorf("%+v", cut.store.Stats())
	}
}

// Whose timer is late, because the machine stood still, learns from Release that it
// was too late for that.
func TestReleaseAfterTheEnd(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		sem := newSemaphore(t, b.store(t), "end", 3, SemaphoreConfig{})
		l, err := sem.acquire(bg, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		sem.mu.Lock()
		l.until = time.Now()
		sem.mu.Unlock()
		calls := sem.store.Stats().Scripts
		l.Release()
		l.Release()
		select {
		case <-l.Lost():
		default:
			t.Error("the holder is not told")
		}
		if s := sem.store.Stats(); s.LeasesLost != 1 || s.Scripts != calls {
			t.Errorf("%+v", s)
		}
	})
}

// A lease that ends here while it is renewed there does not stay for nobody.
func TestRenewedForNobody(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		sem := newSemaphore(t, b.store(t), "nobody", 3, SemaphoreConfig{})
		l, err := sem.acquire(bg, 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.lose()
		if !sem.renewSome([]*Lease{l}) {
			t.Fatal("not renewed")
		}
		next, err := sem.acquire(bg, 3, 10*sec) // a lease is longer
		if err != nil {
			t.Fatal(err)
		}
		next.Release()
	})
}

// A reply that is lost does not lease twice, and does not keep what nobody holds.
func TestLendingWhenRepliesAreLost(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	near, far := newBackend(t, s.Addr), newBackend(t, p.Addr)
	store, err := New(far.client, Config{Prefix: near.prefix, Timeout: 30 * ms, FailureThreshold: 1000}) // it is asked all the time
	if err != nil {
		t.Fatal(err)
	}
	sem := newSemaphore(t, store, "replies", 3, SemaphoreConfig{Poll: ms})
	watch := newSemaphore(t, near.store(t), "replies", 3, SemaphoreConfig{})
	lent := func() string { return lentBy(near, watch) }
	p.Set(redistest.Fault{DropReply: true})
	done := make(chan *Lease)
	go func() {
		for {
			l, err := sem.acquire(bg, 2, time.Minute)
			if err == nil {
				done <- l
				return
			}
			if !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrOutage) { // a silent server is unavailable
				t.Error(err)
			}
			time.Sleep(ms)
		}
	}()
	for store.Stats().Ambiguous < 3 {
		time.Sleep(ms)
	}
	p.Set(redistest.Fault{})
	l := <-done
	for range 5000 {
		if lent() == "2" {
			break
		}
		time.Sleep(ms)
	}
	if lent() != "2" {
		t.Errorf("%s are lent, 2 are held", lent())
	}
	p.Set(redistest.Fault{DropReply: true})
	if _, err := sem.acquire(bg, 1, 50*ms); !errors.Is(err, limits.ErrTimeout) && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrOutage) {
		t.Errorf("%v", err)
	}
	p.Set(redistest.Fault{})
	for range 5000 {
		if lent() == "2" {
			break
		}
		time.Sleep(ms)
	}
	if lent() != "2" {
		t.Errorf("%s are lent, 2 are held", lent())
	}
	l.Release()
}

// More than the limit is never held, tokens rise in the order of admits, and all
// comes back.
func TestSemaphoreNeverLendsMoreThanItsLimit(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		const limit = 5
		type grant struct{ token, weight, asked, began, ended int64 }
		var mu sync.Mutex
		var grants []grant
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			sem := newSemaphore(t, b.store(t), "law", limit, SemaphoreConfig{Poll: 2 * ms})
			for range 4 {
				wg.Go(func() {
					for range 25 {
						n := 1 + rand.Int64N(3)
						asked := int64(time.Since(start))
						l, err := sem.acquire(bg, n, time.Minute)
						if err != nil {
							t.Error(err)
							return
						}
						g := grant{l.Token(), l.n, asked, int64(time.Since(start)), 0}
						time.Sleep(rand.N(500 * time.Microsecond))
						g.ended = int64(time.Since(start))
						l.Release()
						mu.Lock()
						grants = append(grants, g)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		type edge struct{ at, weight int64 }
		var edges []edge
		tokens := map[int64]bool{}
		for _, g := range grants {
			edges = append(edges, edge{g.began, g.weight}, edge{g.ended, -g.weight})
			tokens[g.token] = true
		}
		slices.SortFunc(edges, func(a, b edge) int { return int(a.at - b.at) })
		held, peak := int64(0), int64(0)
		for _, e := range edges {
			held += e.weight
			peak = max(peak, held)
		}
		if peak > limit || peak < 3 || len(tokens) != len(grants) || len(grants) != 300 {
			t.Errorf("%d held at once, %d tokens for %d grants", peak, len(tokens), len(grants))
		}
		slices.SortFunc(grants, func(a, b grant) int { return int(a.token - b.token) })
		for i := range grants {
			for _, later := range grants[i+1:] {
				if later.ended < grants[i].asked {
					t.Fatalf("token %d was asked for after %d was released", grants[i].token, later.token)
				}
			}
		}
		sem := newSemaphore(t, b.store(t), "law", limit, SemaphoreConfig{})
		l, err := sem.acquire(bg, limit, 0)
		if err != nil {
			t.Fatalf("not all came back: %v", err)
		}
		l.Release()
	})
}

func TestSemaphoreVerbs(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		sem := newSemaphore(t, b.store(t), "verbs", 3, SemaphoreConfig{Poll: ms})
		held, err := sem.acquire(bg, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sem.acquire(bg, 4, sec); err != limits.ErrTooLarge {
			t.Errorf("more than the limit: %v", err)
		}
		if _, err := sem.acquire(bg, 2, 0); err != limits.ErrTimeout {
			t.Errorf("without waiting: %v", err)
		}
		if _, err := sem.acquire(bg, 2, 20*ms); err != limits.ErrTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("within 20 ms: %v", err)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, err := sem.acquire(ctx, 1, sec); err != context.Canceled {
			t.Errorf("a context that is done: %v", err)
		}
		ctx, cancel = context.WithTimeout(bg, 20*ms)
		defer cancel()
		if _, err := sem.acquire(ctx, 2, limits.Never); err != context.DeadlineExceeded {
			t.Errorf("a context that ends: %v", err)
		}
		if l, err := sem.Acquire(bg, 2, 0); l != nil || err == nil {
			t.Errorf("%v, %v", l, err)
		}
		if l, err := sem.acquire(bg, 0, 0); err != nil || l.Token() != 0 {
			t.Errorf("nothing: %v, %v", l, err)
		} else {
			l.Release()
		}
		// It shrinks and grows while it is in use, also for who waits.
		if err := sem.SetLimit(-1); err == nil || sem.most() != 3 {
			t.Error("a negative limit")
		}
		got := make(chan error)
		go func() {
			l, err := sem.acquire(bg, 2, time.Minute)
			if err == nil {
				l.Release()
			}
			got <- err
		}()
		time.Sleep(5 * ms)
		if err := sem.SetLimit(4); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		held.Release()
		// As the concurrency of a gate.
		gate, err := sluice.New(sluice.Config{Semaphore: sem})
		if err != nil {
			t.Fatal(err)
		}
		if err := gate.Do(bg, func(context.Context) error {
			if used := lentBy(b, sem); used != "1" {
				t.Errorf("%s are lent", used)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if used := lentBy(b, sem); used != "" && used != "0" {
			t.Errorf("%s stayed lent", used)
		}
	})
}

func TestSemaphoreRefusesWhatCannotBe(t *testing.T) {
	s := (&backend{prefix: "none"}).storeOn(t, unreachable{})
	for _, v := range []struct {
		name  string
		limit int64
		cfg   SemaphoreConfig
		want  string
	}{
		{"", 1, SemaphoreConfig{}, "needs a name"},
		{"family/", 1, SemaphoreConfig{}, "around the last slash"},
		{"/limit", 1, SemaphoreConfig{}, "around the last slash"},
		{"n", -1, SemaphoreConfig{}, "limit of -1"},
		{"n", 1, SemaphoreConfig{Lease: 99 * ms}, "lease of 99ms"},
		{"n", 1, SemaphoreConfig{Lease: -1}, "lease of -1ns"},
		{"n", 1, SemaphoreConfig{Poll: -1}, "negative poll"},
	} {
		if _, err := s.Semaphore(v.name, v.limit, v.cfg); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v, want %q", v, err, v.want)
		}
	}
	sem := newSemaphore(t, s, "n", 0, SemaphoreConfig{})
	if _, err := sem.acquire(bg, 1, sec); err != limits.ErrTooLarge {
		t.Errorf("limit 0: %v", err)
	}
}

// fails is a client that gives these errors, one after the other, to those who
// acquire.
type fails struct {
	unreachable
	errs *[]error
}

func (f fails) Run(_ context.Context, _ *Script, _, args []string) ([]int64, error) {
	if args[0] != "acquire" {
		return nil, errAway
	}
	err := (*f.errs)[0]
	*f.errs = (*f.errs)[1:]
	return nil, err
}

// An unknown outcome, and then an error that is none: there is no lease, and an
// error says so.
func TestLendThatFailsAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{ambiguous(errors.New("no reply")), errAway}
		s := (&backend{prefix: "none"}).storeOn(t, fails{errs: &errs})
		l, err := newSemaphore(t, s, "n", 1, SemaphoreConfig{}).acquire(bg, 1, time.Minute)
		if l != nil || !errors.Is(err, errAway) {
			t.Errorf("%v, %v", l, err)
		}
		synctest.Wait() // what may have been leased is returned
	})
}
