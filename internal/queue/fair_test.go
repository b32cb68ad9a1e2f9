package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

// A fairly is a limit with a slot each 100 ms, after a trip, and the queue of those that ask it.
type fairly struct {
	Queue
	behind Behind
	trip   time.Duration
	next   time.Duration

	mu   sync.Mutex
	left []string
}

func newFairly(trip time.Duration) *fairly {
	s := &fairly{trip: trip, next: 50 * ms}
	s.Init(never{}, Config{Behind: &s.behind})
	return s
}

func (s *fairly) ask(context.Context, Turn) (Wait, error) {
	time.Sleep(s.trip)
	now := s.Now()
	if now < s.next {
		return Wait{For: s.next - now}, nil
	}
	s.next = now + 100*ms
	return Wait{}, nil
}

// call waits for a slot.
func (s *fairly) call(ctx context.Context, f *Flow, name string, r Request) error {
	r.N, r.Ask, r.Flow = max(1, r.N), s.ask, f
	if r.Max == 0 {
		r.Max = Forever
	}
	_, _, err := s.Acquire(ctx, r)
	if err == nil {
		s.mu.Lock()
		s.left = append(s.left, name)
		s.mu.Unlock()
	}
	return err
}

// flows returns the flows of queues below s.
func (s *fairly) flows(weights ...int64) (fs []*Flow) {
	for _, w := range weights {
		below := &Queue{}
		below.Init(never{}, Config{Behind: &Behind{Above: &s.Queue}})
		fs = append(fs, &Flow{Below: below, Weight: w})
	}
	return fs
}

// The heads of flows start in the order of their tags, which a slow model sorts, whatever
// their costs and weights, whoever pauses or gives up, and with bounds far away, which the index lists.
func TestFlow_Model(t *testing.T) {
	built.SkipRaced(t)
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newFairly(0)
			weights := make([]int64, 2+random.IntN(90))
			for i := range weights {
				weights[i] = 1 + random.Int64N(9)
			}
			fs := s.flows(weights...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			charged := make([]float64, len(fs)) // what the model has charged
			for i, f := range fs {
				bounded := i%3 == 0
				all.Go(func() {
					for ctx.Err() == nil {
						r := Request{N: 1 + int64(i)%4}
						if bounded {
							r.Max = 1000 * time.Hour
						}
						if s.call(ctx, f, fmt.Sprint(i), r) == nil {
							charged[i] += float64(r.N) / float64(f.Weight)
						}
					}
				})
			}
			time.Sleep(200 * time.Second) // 2,000 calls
			s.Lock()
			least, most := slices.Min(charged), slices.Max(charged)
			if s.length != int32(len(fs)) || s.behind.flows != s.length {
				t.Errorf("seed %d: %d in the queue, %d flows, want %d", seed, s.length, s.behind.flows, len(fs))
			}
			ordered(t, s)
			s.Unlock()
			// No flow is ahead of another by more than a call of each.
			if most-least > 4+4 {
				t.Errorf("seed %d: shares between %v and %v", seed, least, most)
			}
			cancel()
			all.Wait()
		})
	}
}

// ordered wants the entries behind the head to be in the order of their tags.
func ordered(t *testing.T, s *fairly) {
	t.Helper()
	for w := s.front.next; w != nil && w.next != nil; w = w.next {
		if w.rare.flow.tag > w.next.rare.flow.tag {
			t.Errorf("tag %v before %v", w.rare.flow.tag, w.next.rare.flow.tag)
		}
	}
}

// One with a lesser tag overtakes a head that sleeps immediately, and one that is asking when it has the
// answer. That one asks again as the head, and nobody asks in vain without end.
func TestFlow_OvertakesTheHead(t *testing.T) {
	for _, trip := range []time.Duration{0, 30 * ms} {
		synctest.Test(t, func(t *testing.T) {
			s := newFairly(trip)
			fs := s.flows(1, 1)
			var all sync.WaitGroup
			come := func(f int, name string) {
				all.Go(func() { _ = s.call(bg, fs[f], name, Request{}) })
				synctest.Wait()
			}
			come(0, "a1")
			time.Sleep(100 * ms) // a1 has left, the next slot is not yet
			come(0, "a2")        // asks, with the tag 1
			time.Sleep(10 * ms)  // asking, if there is a trip
			come(1, "b1")        // with the tag 0
			all.Wait()
			if want := []string{"a1", "b1", "a2"}; !slices.Equal(s.left, want) {
				t.Errorf("trip %v: %v left, want %v", trip, s.left, want)
			}
		})
	}
}

// A head that was overtaken ends its wait at its bound, and those behind it go on.
func TestFlow_OvertakenAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFairly(0)
		fs := s.flows(1, 1)
		var all sync.WaitGroup
		_ = s.call(bg, fs[0], "a1", Request{}) // at 50 ms
		began := time.Now()
		all.Go(func() {
			if err := s.call(bg, fs[0], "a2", Request{Max: 130 * ms}); err == nil || time.Since(began) > 130*ms {
				t.Errorf("%v after %v, want an error", err, time.Since(began))
			}
		})
		synctest.Wait()
		all.Go(func() { _ = s.call(bg, fs[1], "b1", Request{}) }) // at 150 ms
		all.Wait()
		if want := []string{"a1", "b1"}; !slices.Equal(s.left, want) || s.behind.flows != 0 {
			t.Errorf("%v left, want %v; %d flows", s.left, want, s.behind.flows)
		}
	})
}
