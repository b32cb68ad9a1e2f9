package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
)

// # Fleets: processes that share a limit, and that do not
//
// Each process has five workers. The server serves 20 calls per second of all together, and 20 at once
// after a rest. After a rejection it may ban all of them. For an hour.

const (
	fleetRate  = 20.
	fleetBurst = 20.
	fleetWorks = 5
	fleetLasts = time.Hour
	fleetSeeds = 2
)

// A fleet is a server and the processes that call it.
type fleet struct {
	name  string
	gates int
	ban   time.Duration                        // after a rejection all calls are rejected for so long, and told so
	again bool                                 // each call during a ban begins it again
	told  time.Duration                        // without bans: the wait that a rejection asks for
	rate  func(since time.Duration) float64    // nil: fleetRate
	lives func(i int) (from, to time.Duration) // when a process works; nil: always
	dies  bool                                 // without a word to the others
	store func(s peers.Store) peers.Store      // nil: it answers in no time
}

var fleets = func() (all []fleet) {
	for _, ban := range []time.Duration{5 * time.Second, 30 * time.Second} {
		for _, n := range []int{1, 2, 3, 5} {
			all = append(all, fleet{name: fmt.Sprintf("bans of %v, %d processes", ban, n), gates: n, ban: ban})
		}
	}
	return append(all,
		fleet{name: "Retry-After: 1, 3 processes", gates: 3, told: time.Second},
		fleet{name: "bans of 30 s that calls begin again, 3 processes", gates: 3, ban: 30 * time.Second, again: true},
		fleet{name: "bans of 5 s, 20/s then 10/s then 40/s, 3 processes", gates: 3, ban: 5 * time.Second, rate: steps},
		fleet{name: "bans of 5 s, a store that takes 400 ms, 3 processes", gates: 3, ban: 5 * time.Second, store: func(s peers.Store) peers.Store {
			return storeFunc(func(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
				time.Sleep(400 * time.Millisecond)
				return s.Exchange(ctx, group, r)
			})
		}},
		fleet{name: "bans of 5 s, a store that fails for 20 s of each minute, 3 processes", gates: 3, ban: 5 * time.Second, store: func(s peers.Store) peers.Store {
			return storeFunc(func(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
				if time.Now().Second() < 20 {
					return peers.Reply{}, errAway
				}
				return s.Exchange(ctx, group, r)
			})
		}},
		fleet{name: "bans of 5 s, 6 processes that come, and die after 24 min", gates: 6, ban: 5 * time.Second, dies: true, lives: func(i int) (from, to time.Duration) {
			from = time.Duration(i) * 8 * time.Minute
			return from, min(fleetLasts, from+24*time.Minute)
		}},
	)
}()

func steps(since time.Duration) float64 {
	return []float64{20, 10, 40}[min(2, int(since/(20*time.Minute)))]
}

type storeFunc func(ctx context.Context, group string, r peers.Report) (peers.Reply, error)

// Exchange implements peers.Store.
func (f storeFunc) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	return f(ctx, group, r)
}

var errAway = errors.New("the store is away")

// A fleetServer is the server of a fleet.
type fleetServer struct {
	*fleet

	mu             sync.Mutex
	random         *rand.Rand
	began, at      time.Time
	used, all      float64   // used of the bucket; what a perfect client is served until now
	until          time.Time // of the ban
	served         []int     // by process
	calls, refused int
}

func (s *fleetServer) call(i int) error {
	s.mu.Lock()
	there, back := time.Duration(15+s.random.IntN(10))*time.Millisecond, time.Duration(15+s.random.IntN(10))*time.Millisecond
	s.mu.Unlock()
	time.Sleep(there)
	ok, wait := s.take(i)
	time.Sleep(back)
	if !ok {
		return sluice.ThrottledFor(errFull, wait)
	}
	time.Sleep(30 * time.Millisecond)
	return nil
}

func (s *fleetServer) take(i int) (ok bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	rate := fleetRate
	if s.rate != nil {
		rate = s.rate(s.at.Sub(s.began))
	}
	leaked := now.Sub(s.at).Seconds() * rate
	s.used, s.all, s.at = max(0, s.used-leaked), s.all+leaked, now
	s.calls++
	switch {
	case s.used <= fleetBurst-1 && !now.Before(s.until):
		s.used++
		s.served[i]++
		return true, 0
	case s.ban > 0 && (s.again || !now.Before(s.until)):
		s.until = now.Add(s.ban)
	}
	s.refused++
	return false, max(s.told, s.until.Sub(now))
}

// play lets the processes of f make calls.
func (f *fleet) play(shared bool, seed uint64) *fleetServer {
	s := &fleetServer{
		fleet: f, random: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), at: time.Now(),
		all: fleetBurst, served: make([]int, f.gates),
	}
	groups, began := new(peers.Groups), time.Now()
	var store peers.Store = storeFunc(func(_ context.Context, group string, r peers.Report) (peers.Reply, error) {
		return groups.Exchange(time.Since(began).Microseconds(), group, r), nil
	})
	if f.store != nil {
		store = f.store(store)
	}
	var all sync.WaitGroup
	for i := range f.gates {
		from, to := time.Duration(s.random.IntN(1000))*time.Millisecond, fleetLasts
		if f.lives != nil {
			from, to = f.lives(i)
		}
		all.Go(func() {
			time.Sleep(from)
			ctx, cancel := context.WithCancel(context.Background()) // without a deadline: calls wait
			time.AfterFunc(to-from, cancel)
			cfg := sluice.Config{Name: "api"}
			if shared {
				cfg.Adaptive.Peers = f.until(ctx, store)
			}
			s.work(ctx, i, mustGate(cfg))
		})
	}
	all.Wait()
	time.Sleep(10 * time.Second) // until the goroutines of all have ended
	return s
}

// until returns store for a process that may die when ctx is done.
func (f *fleet) until(ctx context.Context, store peers.Store) peers.Store {
	return storeFunc(func(c context.Context, group string, r peers.Report) (peers.Reply, error) {
		if f.dies && ctx.Err() != nil {
			return peers.Reply{}, errAway
		}
		return store.Exchange(c, group, r)
	})
}

// work lets the workers of process i make calls until ctx is done.
func (s *fleetServer) work(ctx context.Context, i int, g *sluice.Gate) {
	var all sync.WaitGroup
	for range fleetWorks {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = sluice.Retry(ctx, g, func(context.Context) error { return s.call(i) }, sluice.RetryPolicy{MaxServerWait: time.Hour})
			}
		})
	}
	all.Wait()
	_ = g.Shutdown(context.Background())
}

// result returns what was served, of the limit, and refused, of the calls, in percent.
func (s *fleetServer) result() (served, refused float64) {
	n := 0
	for _, k := range s.served {
		n += k
	}
	return 100 * float64(n) / s.all, 100 * float64(s.refused) / float64(s.calls)
}

// shareTheLimit prints the table of fleets.
func shareTheLimit(t *testing.T, out io.Writer, only string) {
	if !chosen("fleets", only) {
		return
	}
	fmt.Fprintf(out, "\n| fleets: 20/s of all, mean of %d (least) | served alone | by Peers | refused alone | by Peers |\n", fleetSeeds)
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: |")
	for _, f := range fleets {
		var served, refused [2]float64
		least := [2]float64{100, 100}
		for i, shared := range []bool{false, true} {
			for seed := range uint64(fleetSeeds) {
				synctest.Test(t, func(*testing.T) {
					s, r := f.play(shared, seed).result()
					served[i] += s / fleetSeeds
					refused[i] += r / fleetSeeds
					least[i] = min(least[i], s)
				})
			}
		}
		fmt.Fprintf(out, "| %s | %.1f %% (%.1f) | %.1f %% (%.1f) | %.2f %% | %.2f %% |\n", f.name, served[0], least[0], served[1], least[1], refused[0], refused[1])
	}
}
