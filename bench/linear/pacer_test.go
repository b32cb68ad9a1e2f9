package linear

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

const interval = int64(20 * time.Microsecond)

// paceState is a pacer without a burst, of 50,000 per second, that does one
// thing after the other. Each thing happens at an instant within the times of
// its call, and those instants do not go backwards. The instants are not
// recorded, so the state is what is known of them:
//
//	last    the last call left at an instant in [first, last]
//	cost    and the next may leave so long after it
//	now     nothing happens before now any more
//
// A rejection narrows that down: if one was right to be rejected at 90 or later,
// and the cost is 20, the last left after 70.
type paceState struct {
	first, last, cost, now int64
	queue                  []waiter
}

var paceModel = porcupine.Model{
	Init: func() any { return paceState{first: math.MinInt64 / 2, last: math.MinInt64 / 2} },
	Step: func(state, in, out any) (bool, any) {
		return stepPacer(state.(paceState), in.(input), out.(answer))
	},
	Equal: func(a, b any) bool {
		x, y := a.(paceState), b.(paceState)
		return x.first == y.first && x.last == y.last && x.cost == y.cost && x.now == y.now && slices.Equal(x.queue, y.queue)
	},
	DescribeOperation: describe,
}

func stepPacer(s paceState, in input, out answer) (bool, any) {
	// The earliest instant for it forbids the least of what comes after.
	s.now = max(s.now, in.call, s.first)
	if s.now > in.ret {
		return false, s
	}
	switch {
	case in.what == "enter":
		s.queue = append(slices.Clone(s.queue), waiter{id: in.id, n: in.n})
		return true, s
	case in.what == "hand over": // never to a call that then returns an error
		return true, s
	case in.what == "try" && out.ok:
		return len(s.queue) == 0 && s.leave(in), s
	case in.what == "try":
		return len(s.queue) > 0 || s.tooEarly(in), s
	}
	i := slices.IndexFunc(s.queue, func(w waiter) bool { return w.id == in.id })
	if i < 0 || out.ok && (i > 0 || !s.leave(in)) {
		return false, s
	}
	s.queue = slices.Delete(slices.Clone(s.queue), i, i+1)
	return true, s
}

// leave lets in leave, if it can have.
func (s *paceState) leave(in input) bool {
	at := max(s.now, s.first+s.cost)
	if at > in.ret {
		return false
	}
	s.first, s.last, s.cost, s.now = at, in.ret, in.n*interval, at
	return true
}

// tooEarly rejects in, if that can have been right.
func (s *paceState) tooEarly(in input) bool {
	s.first = max(s.first, s.now-s.cost+1)
	s.now = max(s.now, s.first)
	return s.first <= s.last && s.now <= in.ret
}

type paced interface {
	TryAcquire(n int64) bool
	Acquire(ctx context.Context, n int64) error
}

// usePacer records a history: four goroutines that ask for calls of weight 1
// or 2, and now and then wait, and give up waiting.
func usePacer(p paced, seed uint64, wait bool) []porcupine.Operation {
	return record(4, seed, func(r *recorder, random *rand.Rand) {
		for range 10 {
			for range random.IntN(8) {
				spin(random)
			}
			n := 1 + random.Int64N(2)
			if !wait || random.IntN(4) > 0 {
				r.do("try", n, func() answer { return answer{ok: p.TryAcquire(n)} })
				continue
			}
			ctx, cancel := context.WithCancel(context.Background())
			if random.IntN(2) == 0 {
				time.AfterFunc(time.Duration(random.Int64N(2*interval)), cancel)
			}
			r.wait(n, func() answer {
				if err := p.Acquire(ctx, n); err != nil {
					return answer{err: err.Error()}
				}
				return answer{ok: true}
			})
			cancel()
		}
	})
}

// TestPacerTry is about a pacer as it comes.
func TestPacerTry(t *testing.T) {
	bad := histories(t, paceModel, *lasting, func(seed uint64) []porcupine.Operation {
		return usePacer(limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Duration(interval)})), seed, false)
	})
	if bad != nil {
		t.Errorf("not linearizable:\n%s", text(bad))
	}
}

// TestPacer has callers wait as well. The pacer is strict: what MaxCatchUp catches up on depends on when
// the pacer meant to wake each caller, which is not visible.
func TestPacer(t *testing.T) {
	bad := histories(t, paceModel, *lasting, func(seed uint64) []porcupine.Operation {
		p, err := pacer.New(limits.Rate{Count: 1, Per: time.Duration(interval)}, pacer.Config{MaxCatchUp: -1})
		if err != nil {
			t.Fatal(err)
		}
		return usePacer(p, seed, true)
	})
	if bad != nil {
		t.Errorf("not linearizable:\n%s", text(bad))
	}
}

// TestPacerRacy has the same done to a pacer that looks and then writes: it
// must be found out.
func TestPacerRacy(t *testing.T) {
	bad := histories(t, paceModel, lookLong, func(seed uint64) []porcupine.Operation {
		return usePacer(&racy{epoch: time.Now()}, seed, false)
	})
	if bad == nil {
		t.Error("a pacer with a race was not found out")
	}
}

type racy struct {
	epoch time.Time
	tat   atomic.Int64
}

func (p *racy) TryAcquire(n int64) bool {
	now := int64(time.Since(p.epoch))
	if now < p.tat.Load() {
		return false
	}
	runtime.Gosched() // so that others find the way in
	p.tat.Store(now + n*interval)
	return true
}

func (p *racy) Acquire(context.Context, int64) error { return nil }

func TestPacerModel(t *testing.T) {
	const T = interval
	tests := []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"one each interval", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T, T+10, "try", 1, 0, yes), op(2*T, 2*T+10, "try", 1, 0, yes),
		}, true},
		{"two of them too close", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T-20, T-1, "try", 1, 0, yes),
		}, false},
		{"as close as can have been right", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T-20, T, "try", 1, 0, yes),
		}, true},
		// The second left at T at the earliest, so the third at 2·T.
		{"three of them too close, though no two are", []porcupine.Operation{
			op(0, T, "try", 1, 0, yes), op(T/2, 2*T-1, "try", 1, 0, yes), op(T/2, 2*T-1, "try", 1, 0, yes),
		}, false},
		{"three of them as close as can have been right", []porcupine.Operation{
			op(0, T, "try", 1, 0, yes), op(T/2, 2*T, "try", 1, 0, yes), op(T/2, 2*T, "try", 1, 0, yes),
		}, true},
		{"the weight is paid afterwards", []porcupine.Operation{
			op(0, 10, "try", 2, 0, yes), op(T, T+10, "try", 1, 0, yes),
		}, false},
		{"refused at once", []porcupine.Operation{op(0, 10, "try", 1, 0, no)}, false},
		{"refused within the interval", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T-20, T+9, "try", 1, 0, no),
		}, true},
		{"refused though the interval was over", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T+10, T+20, "try", 1, 0, no),
		}, false},
		// The third before the second, which was rejected because of it.
		{"refused and granted at one instant", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(T+20, T+20, "try", 1, 0, no), op(T+20, T+20, "try", 1, 0, yes),
		}, true},
		{"refused because a call waits", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(20, 2*T, "enter", 1, 1, no),
			op(T+15, T+20, "try", 1, 0, no), op(20, 2*T, "return", 1, 1, yes),
		}, true},
		{"the second is served before the first", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(20, 3*T, "enter", 1, 1, no), op(30, 40, "enter", 1, 2, no),
			op(T, T+10, "return", 1, 2, yes), op(2*T, 3*T, "return", 1, 1, yes),
		}, true}, // it may have entered later: the history does not show it
		{"a cancelled one makes way", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(20, 30, "enter", 9, 1, no), op(20, 30, "return", 9, 1, cancelled),
			op(T, T+10, "try", 1, 0, yes),
		}, true},
		{"a cancelled one is paid for", []porcupine.Operation{
			op(0, 10, "try", 1, 0, yes), op(20, 30, "enter", 1, 1, no), op(20, 30, "return", 1, 1, cancelled),
			op(T+10, T+20, "try", 1, 0, no),
		}, false},
	}
	for _, test := range tests {
		if got := porcupine.CheckOperations(paceModel, test.history); got != test.want {
			t.Errorf("%s: linearizable is %v, want %v", test.name, got, test.want)
		}
	}
}
