package adaptive

import (
	"math"
	"testing"
	"time"
)

// FuzzController feeds a controller with any history: calls, replies in any order and of any kind,
// pauses, idle time. Whatever happens, it must keep its promises.
func FuzzController(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 10, 20, 30, 40, 200, 201, 202, 203, 77, 78, 79})
	f.Add([]byte{255, 1, 1, 1, 1, 1, 1, 1, 130, 131, 132, 133, 134, 135, 136, 90, 91, 92, 1, 130})
	f.Fuzz(func(t *testing.T, history []byte) {
		if len(history) < 2 || len(history) > 4000 {
			return
		}
		h := &fuzzed{t: t, cfg: Config{Unlimited: history[0]&1 != 0}}
		if history[0]&4 != 0 {
			h.cfg.Min, h.cfg.Max, h.cfg.MaxConcurrency = 1, 50, 6
		}
		h.r = New(h.cfg)
		for _, b := range history[1:] {
			h.step(b)
			h.check()
		}
	})
}

type fuzzed struct {
	t     *testing.T
	cfg   Config
	r     *Controller
	now   time.Duration
	calls []Call
	pause time.Duration // until here nothing may leave
	moved uint32        // epoch
}

// step is one event: two bits say which, the others how much.
func (h *fuzzed) step(b byte) {
	n := int(b & 63)
	switch b >> 6 {
	case 0: // time passes: from a microsecond to an hour
		h.now += time.Duration(math.Exp(float64(n)/63*22) * 1e3)
	case 1: // callers
		for range n {
			at := h.r.Demand(h.now, len(h.calls))
			if at > h.now {
				break
			}
			h.leave()
		}
	case 2: // replies
		if len(h.calls) == 0 {
			return
		}
		i := n % len(h.calls)
		call := h.calls[i]
		h.calls = append(h.calls[:i], h.calls[i+1:]...)
		h.r.Ended(h.now, call, Reply{Outcome: Outcome(n % 4)})
	case 3: // refusals, some with a pause
		if len(h.calls) == 0 {
			return
		}
		call := h.calls[0]
		h.calls = h.calls[1:]
		reply := Reply{Outcome: Refused}
		if n > 40 {
			reply.RetryAfter = time.Duration(n-40) * 100 * time.Millisecond
			h.pause = max(h.pause, h.now+reply.RetryAfter)
		}
		h.r.Ended(h.now, call, reply)
	}
}

func (h *fuzzed) leave() {
	if h.now < h.pause {
		h.t.Fatalf("a call leaves at %v, in a pause until %v", h.now, h.pause)
	}
	if h.cfg.MaxConcurrency > 0 && len(h.calls) >= h.cfg.MaxConcurrency {
		h.t.Fatalf("%d calls are out", len(h.calls)+1)
	}
	h.calls = append(h.calls, h.r.Started(h.now, 1, len(h.calls)))
}

func (h *fuzzed) check() {
	h.t.Helper()
	c, b := h.r, h.r.Belief()
	for _, x := range []float64{c.next, c.until, c.meanCost, c.pace.now, c.pace.span, b.Rate, b.Pace, b.Proven, b.Refuted, c.capacity.limit} {
		if math.IsNaN(x) || x < 0 {
			h.t.Fatalf("at %v: %g in %+v", h.now, x, b)
		}
	}
	if c.paced() && (b.Pace < c.cfg.Min*(1-1e-9)*c.meanCost || b.Pace > c.cfg.Max*(1+1e-9)*max(c.meanCost, 1)) {
		h.t.Fatalf("at %v: pace %g, bounds %g and %g", h.now, b.Pace, c.cfg.Min, c.cfg.Max)
	}
	if b.Concurrency < 0 || b.Concurrency == 0 && c.capacity.limit < 1e9 {
		h.t.Fatalf("at %v: concurrency %d", h.now, b.Concurrency)
	}
	if c.ledger.denied > c.ledger.sent {
		h.t.Fatalf("at %v: %g refused of %g", h.now, c.ledger.denied, c.ledger.sent)
	}
	if c.epoch < h.moved {
		h.t.Fatalf("epoch %d after %d", c.epoch, h.moved)
	}
	h.moved = c.epoch
	// With no call out there is always an instant at which the next may leave.
	if len(h.calls) > 0 {
		return
	}
	copied := *c
	at := copied.Demand(h.now, 0)
	if latest := max(h.now, h.pause) + 2*time.Hour; at == Never || at > latest {
		h.t.Fatalf("at %v with no call out: the next may leave at %v: %+v", h.now, at, b)
	}
}
