package linear

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

const firstLimit = 3

// semState is a semaphore that does one thing after the other.
type semState struct {
	limit, inFlight int64
	queue           []waiter // calls that have entered and not returned
}

type waiter struct {
	id    int
	n     int64
	stage stage
}

type stage uint8

const (
	waits  stage = iota
	failed       // asked for more than the limit, now or once
	handed       // holds permits, but has yet to notice
)

func (s semState) waiting() (n int64) {
	for _, w := range s.queue {
		if w.stage == waits {
			n++
		}
	}
	return n
}

// with returns s with another queue, in which calls that ask for too much have
// failed.
func (s semState) with(queue []waiter) semState {
	s.queue = slices.Clone(queue)
	for i, w := range s.queue {
		if w.stage == waits && w.n > s.limit {
			s.queue[i].stage = failed
		}
	}
	return s
}

// turn reports whether the i-th in the queue may have its permits.
func (s semState) turn(i int) bool {
	first := slices.IndexFunc(s.queue, func(w waiter) bool { return w.stage == waits })
	return i == first && s.queue[i].n <= s.limit-s.inFlight
}

var semModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{semState{limit: firstLimit}} },
	Step: func(state, in, out any) (next []any) {
		for _, s := range stepSemaphore(state.(semState), in.(input), out.(answer)) {
			next = append(next, s)
		}
		return next
	},
	Equal: func(a, b any) bool {
		x, y := a.(semState), b.(semState)
		return x.limit == y.limit && x.inFlight == y.inFlight && slices.Equal(x.queue, y.queue)
	},
	DescribeOperation: describe,
}).ToModel()

// stepSemaphore returns what s may be after in was answered with out: nothing
// if that cannot be.
func stepSemaphore(s semState, in input, out answer) []semState {
	possible := true
	i := slices.IndexFunc(s.queue, func(w waiter) bool { return w.id == in.id })
	switch in.what {
	case "try":
		possible = out.ok == (s.waiting() == 0 && in.n <= s.limit-s.inFlight)
		if out.ok {
			s.inFlight += in.n
		}
	case "release":
		s.inFlight -= in.n
		possible = s.inFlight >= 0
	case "set limit":
		s.limit = in.n
		s = s.with(s.queue)
	case "in flight":
		possible = out.n == s.inFlight
	case "waiting":
		possible = out.n == s.waiting()
	case "enter":
		s = s.with(append(slices.Clone(s.queue), waiter{id: in.id, n: in.n}))
	case "hand over":
		if i < 0 || !s.turn(i) {
			return []semState{s}
		}
		other := s.with(s.queue)
		other.queue[i].stage = handed
		other.inFlight += in.n
		return []semState{s, other}
	case "return":
		switch {
		case i < 0:
			return nil
		case out.ok:
			possible = s.turn(i)
			s.inFlight += in.n
		case out.err == limits.ErrTooLarge.Error():
			possible = s.queue[i].stage == failed
		case s.queue[i].stage == handed:
			s.inFlight -= in.n
		}
		s = s.with(slices.Delete(slices.Clone(s.queue), i, i+1))
	}
	if !possible {
		return nil
	}
	return []semState{s}
}

// sem is what is tested, and what stands in for it to be found out.
type sem interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
	SetLimit(n int64) error
	InFlight() int64
	Waiting() int
}

// useSemaphore records a history: four goroutines, each of which takes
// permits, one way or another, and returns them; one in 8 calls changes the
// limit or reads.
func useSemaphore(s sem, seed uint64) []porcupine.Operation {
	return record(4, seed, func(r *recorder, random *rand.Rand) {
		for range 6 {
			spin(random)
			n := 1 + random.Int64N(firstLimit)
			got := false
			switch random.IntN(16) {
			case 0:
				limit := 1 + random.Int64N(2*firstLimit)
				r.do("set limit", limit, func() answer { return answer{ok: s.SetLimit(limit) == nil} })
			case 1:
				r.do("in flight", 0, func() answer { return answer{n: s.InFlight()} })
			case 2:
				r.do("waiting", 0, func() answer { return answer{n: int64(s.Waiting())} })
			case 3, 4, 5, 6, 7, 8:
				got = r.do("try", n, func() answer { return answer{ok: s.TryAcquire(n)} }).ok
			default:
				ctx, cancel := context.WithCancel(context.Background())
				switch random.IntN(4) {
				case 0:
					go cancel()
				case 1:
					time.AfterFunc(time.Duration(random.IntN(20))*time.Microsecond, cancel)
				}
				got = r.wait(n, func() answer {
					if err := s.Acquire(ctx, n); err != nil {
						return answer{err: err.Error()}
					}
					return answer{ok: true}
				}).ok
				cancel()
			}
			if got {
				spin(random)
				r.do("release", n, func() answer { s.Release(n); return answer{ok: true} })
			}
		}
	})
}

func TestSemaphore(t *testing.T) {
	bad := histories(t, semModel, *lasting, func(seed uint64) []porcupine.Operation {
		return useSemaphore(semaphore.NewWeighted(firstLimit), seed)
	})
	if bad != nil {
		t.Errorf("not linearizable:\n%s", text(bad))
	}
}

// TestSemaphoreFairOrNot has the same done to a semaphore that serves whoever
// comes first to its lock: it must be found out.
func TestSemaphoreFairOrNot(t *testing.T) {
	bad := histories(t, semModel, lookLong, func(seed uint64) []porcupine.Operation {
		return useSemaphore(&barging{limit: firstLimit}, seed)
	})
	if bad == nil {
		t.Error("a semaphore that lets TryAcquire overtake was not found out")
	}
}

// barging is correct but for its order: waiting callers ask again and again.
type barging struct {
	mu                       sync.Mutex
	limit, inFlight, waiters int64
}

func (s *barging) TryAcquire(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.limit-s.inFlight {
		return false
	}
	s.inFlight += n
	return true
}

func (s *barging) Acquire(ctx context.Context, n int64) error {
	s.mu.Lock()
	s.waiters++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.waiters--; s.mu.Unlock() }()
	for ctx.Err() == nil {
		if s.TryAcquire(n) {
			return nil
		}
		s.mu.Lock()
		tooLarge := n > s.limit
		s.mu.Unlock()
		if tooLarge {
			return limits.ErrTooLarge
		}
		runtime.Gosched()
	}
	return ctx.Err()
}

func (s *barging) Release(n int64)        { s.mu.Lock(); s.inFlight -= n; s.mu.Unlock() }
func (s *barging) SetLimit(n int64) error { s.mu.Lock(); s.limit = n; s.mu.Unlock(); return nil }
func (s *barging) InFlight() int64        { s.mu.Lock(); defer s.mu.Unlock(); return s.inFlight }
func (s *barging) Waiting() int           { s.mu.Lock(); defer s.mu.Unlock(); return int(s.waiters) }

// The limit is 3 in these histories; a call is (what, n, id), from … to.
func op(call, ret int64, what string, n int64, id int, out answer) porcupine.Operation {
	return porcupine.Operation{
		Input: input{what: what, n: n, id: id, call: call, ret: ret}, Output: out, Call: call, Return: ret,
	}
}

var (
	yes       = answer{ok: true}
	no        = answer{}
	cancelled = answer{err: context.Canceled.Error()}
	tooLarge  = answer{err: limits.ErrTooLarge.Error()}
)

func TestSemaphoreModel(t *testing.T) {
	tests := []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"three and no fourth", []porcupine.Operation{
			op(1, 2, "try", 2, 0, yes), op(3, 4, "try", 1, 0, yes), op(5, 6, "try", 1, 0, no),
		}, true},
		{"four of three", []porcupine.Operation{
			op(1, 2, "try", 2, 0, yes), op(3, 4, "try", 2, 0, yes),
		}, false},
		{"four of three at once", []porcupine.Operation{
			op(1, 9, "try", 2, 0, yes), op(1, 9, "try", 2, 0, yes),
		}, false},
		{"refused while there is room", []porcupine.Operation{
			op(1, 2, "try", 1, 0, yes), op(3, 4, "try", 2, 0, no),
		}, false},
		{"refused while a release is on its way", []porcupine.Operation{
			op(1, 2, "try", 3, 0, yes), op(3, 9, "release", 3, 0, yes), op(4, 5, "try", 1, 0, no),
		}, true},
		{"refused after the release", []porcupine.Operation{
			op(1, 2, "try", 3, 0, yes), op(3, 4, "release", 3, 0, yes), op(5, 6, "try", 1, 0, no),
		}, false},
		{"refused because a call waits", []porcupine.Operation{
			op(1, 2, "try", 2, 0, yes), op(3, 9, "enter", 3, 1, no), op(4, 5, "try", 1, 0, no),
			op(6, 7, "release", 2, 0, yes), op(3, 9, "return", 3, 1, yes),
		}, true},
		// Between 4 and 5 the waiter was there: the read says so.
		{"overtakes a waiting call", []porcupine.Operation{
			op(1, 2, "try", 2, 0, yes), op(3, 11, "enter", 3, 1, no), op(4, 5, "waiting", 0, 0, answer{n: 1}),
			op(6, 7, "try", 1, 0, yes), op(8, 9, "release", 1, 0, yes), op(9, 10, "release", 2, 0, yes),
			op(3, 11, "return", 3, 1, yes),
		}, false},
		{"the second is served before the first", []porcupine.Operation{
			op(1, 2, "try", 3, 0, yes), op(3, 20, "enter", 1, 1, no), op(4, 5, "waiting", 0, 0, answer{n: 1}),
			op(6, 9, "enter", 1, 2, no), op(7, 8, "release", 1, 0, yes), op(6, 9, "return", 1, 2, yes),
			op(10, 11, "waiting", 0, 0, answer{n: 1}), op(12, 13, "release", 1, 0, yes), op(3, 20, "return", 1, 1, yes),
		}, false},
		{"a cancelled one makes way", []porcupine.Operation{
			op(1, 2, "try", 2, 0, yes), op(3, 6, "enter", 2, 1, no), op(3, 6, "return", 2, 1, cancelled),
			op(7, 8, "try", 1, 0, yes), op(9, 9, "in flight", 0, 0, answer{n: 3}),
		}, true},
		{"a cancelled one keeps its permits", []porcupine.Operation{
			op(1, 6, "enter", 2, 1, no), op(1, 6, "hand over", 2, 1, no), op(1, 6, "return", 2, 1, cancelled),
			op(7, 8, "in flight", 0, 0, answer{n: 2}),
		}, false},
		{"a call that gives up had been given permits", []porcupine.Operation{
			op(1, 2, "try", 3, 0, yes), op(3, 13, "enter", 2, 1, no), op(3, 13, "hand over", 2, 1, no),
			op(5, 6, "release", 3, 0, yes), op(7, 8, "in flight", 0, 0, answer{n: 2}), op(9, 10, "try", 2, 0, no),
			op(3, 13, "return", 2, 1, cancelled), op(14, 15, "in flight", 0, 0, answer{n: 0}),
		}, true},
		{"too large, at once or later", []porcupine.Operation{
			op(1, 2, "enter", 4, 1, no), op(1, 2, "return", 4, 1, tooLarge),
			op(3, 4, "try", 3, 0, yes), op(5, 9, "enter", 3, 2, no), op(6, 7, "set limit", 2, 0, yes),
			op(5, 9, "return", 3, 2, tooLarge), op(10, 11, "waiting", 0, 0, answer{n: 0}),
		}, true},
		{"too large, and it is not", []porcupine.Operation{
			op(1, 2, "enter", 3, 1, no), op(1, 2, "return", 3, 1, tooLarge),
		}, false},
		{"more than a lowered limit", []porcupine.Operation{
			op(1, 2, "set limit", 1, 0, yes), op(3, 4, "try", 2, 0, yes),
		}, false},
		{"given back twice", []porcupine.Operation{
			op(1, 2, "try", 1, 0, yes), op(3, 4, "release", 1, 0, yes), op(5, 6, "release", 1, 0, yes),
		}, false},
	}
	for _, test := range tests {
		if got := porcupine.CheckOperations(semModel, test.history); got != test.want {
			t.Errorf("%s: linearizable is %v, want %v", test.name, got, test.want)
		}
	}
}
