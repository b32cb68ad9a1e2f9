package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// # How long may a server be silent?
//
// A server that cannot be reached says so immediately, and calls are decided by the policy. One
// that hangs, stopped or paused, says nothing, and each caller would wait for its Timeout. So
// a caller waits only until nothing has come from the server for four times as long as usual,
// and no less than a tenth of a second. Then the server is unavailable: the policy decides, for this
// call and for all that come after it. The script stays under way, as each probe does, and
// the first answer ends the outage:
//
//	caller  ├── patience ──┤ the policy decides
//	script  ├──────────────┼───────────────────────┤ Timeout
//	probes                 │ ├─────────────────────────┤   ├──── …
//
// Units that the script takes after its caller has left stay taken, as with every call of unknown
// outcome: fewer calls start than the limit allows, never more. Its answer, however late, is
// measured: a server that has become slow is waited for afterwards.
//
// To listen costs a goroutine, which doubles the time that a script takes on the same
// machine. So one caller listens in each listenEvery, and the others wait as long as their
// script lasts: in a program that runs more than 100 scripts a second, most of those that are
// under way when a server begins to hang last for Timeout. All that come later are decided
// immediately.
//
// Silence is measured while this process is awake: if a tick comes late, so may the reply
// that has been there for long, and the wait starts over. A server that was not heard for a
// minute may need a new connection, and has the whole Timeout.

// shortestPatience is the time for which a server may always be silent.
const shortestPatience = 100 * time.Millisecond

// listenEvery is the interval at which a caller listens. Probes always do.
const listenEvery = 10 * time.Millisecond

// ticks is the number of parts in which a caller listens, each at least as long as a usual round trip.
const ticks = 4

// A hearing is a call whose caller may start before it has ended. It is used again if the
// caller did not.
type hearing struct {
	conduct  func()
	timer    *time.Timer
	sending  *sending
	done     chan struct{} // of capacity 1; has a token when the call has ended
	ctx      context.Context
	ints     []int64 // the reply
	err      error
	panicked any // the value with which the client panicked

	mu    sync.Mutex
	ended bool
	left  bool
}

// end notes that the call has ended, and reports whether its caller has left.
func (h *hearing) end() (left bool) {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	return h.left
}

// A silentError is why a caller has left.
type silentError time.Duration

// Error reports the time for which the server was silent.
func (e silentError) Error() string { return fmt.Sprintf("no reply for %v", time.Duration(e)) }

// Is reports that a deadline has passed.
func (e silentError) Is(target error) bool { return target == context.DeadlineExceeded }

// listens reports whether the caller of c should listen.
func (s *Store) listens(c *sending, patience, longest time.Duration) bool {
	if patience >= longest {
		return false
	}
	now, next := int64(c.sent.Sub(s.beats.made)), s.listened.Load()
	return c.probe != nil || now >= next && s.listened.CompareAndSwap(next, now+int64(listenEvery))
}

// listen conducts c, and leaves it when its server has been silent for patience. The call
// lasts for longest, and ends before if ctx is canceled while listen waits.
func (s *Store) listen(ctx context.Context, c *sending, patience, longest time.Duration) ([]int64, error) {
	h, _ := s.hearings.Get().(*hearing)
	if h == nil {
		h = &hearing{done: make(chan struct{}, 1), timer: time.NewTimer(patience)}
		h.conduct = func() { s.conductAlone(h) } // once, so that go does not allocate
	}
	e := ear{patience: patience, from: c.sent}
	h.timer.Reset(e.next(c.sent))
	c.hearing, h.sending, h.ctx = h, c, ctx
	cancelled := ctx.Done()
	if cancelled != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c.within.begin(ctx, c.sent.Add(longest))
	go h.conduct()
	for {
		select {
		case <-h.done:
			return s.outcome(h)
		case <-cancelled:
			cancelled = nil
			c.within.end()
			continue
		case <-h.timer.C:
		}
		if now := time.Now(); !e.silent(now, s.pulse.Last(c.place)) {
			h.timer.Reset(e.next(now))
			continue
		}
		if err := s.abandon(c, patience); err != nil {
			return nil, s.notAnswered(h.ctx, c, err)
		}
		<-h.done
		return s.outcome(h)
	}
}

// An ear measures the time for which a server has been silent.
type ear struct {
	patience time.Duration
	from     time.Time // silent since then
	due      time.Time // the next tick
}

// next begins a tick, and returns its length.
func (e *ear) next(now time.Time) time.Duration {
	tick := (e.patience + ticks - 1) / ticks
	e.due = now.Add(tick)
	return tick
}

// silent ends a tick at now, and reports whether the server, which was last heard then, has
// been silent for too long. If the tick is late, this process was not awake, and the reply
// may be there.
func (e *ear) silent(now, heard time.Time) bool {
	if heard.After(e.from) {
		e.from = heard
	}
	if now.Sub(e.due) >= e.patience/ticks {
		e.from = now
	}
	return now.Sub(e.from) >= e.patience
}

// conductAlone conducts a call for a caller that listens.
func (s *Store) conductAlone(h *hearing) {
	defer func() { h.done <- struct{}{} }()
	h.err = ErrAmbiguous // if the client ends the goroutine
	defer func() {
		if !h.end() {
			h.panicked = recover()
		}
	}()
	h.ints, h.err = s.conduct(h.ctx, h.sending)
}

// outcome returns how the call has ended, for the caller that has not left. If the client
// panicked, so does outcome.
func (s *Store) outcome(h *hearing) ([]int64, error) {
	if h.panicked != nil {
		panic(h.panicked)
	}
	h.timer.Stop()
	ints, err := h.ints, h.err
	h.sending, h.ctx, h.ints, h.err, h.ended = nil, nil, nil, nil, false
	s.hearings.Put(h)
	return ints, err
}

// abandon has the policy decide from now on, and returns why. It returns nil if c has ended.
func (s *Store) abandon(c *sending, patience time.Duration) error {
	c.hearing.mu.Lock()
	defer c.hearing.mu.Unlock()
	if c.hearing.ended {
		return nil
	}
	why := ambiguous(silentError(patience))
	s.breaker.Hangs(c.place, c.probe, why)
	c.hearing.left, c.probe = true, nil
	return why
}

// notAnswered returns the error for the caller that has left c because of err.
func (s *Store) notAnswered(ctx context.Context, c *sending, err error) error {
	s.stats.ambiguous.Add(1)
	s.present(c.place, outage.Silent)
	if ctx.Err() != nil {
		return ambiguous(ctx.Err())
	}
	return c.away(err)
}

// silent reports whether c ended with err because its server, which was heard before, has not
// said anything for all of Timeout.
func (s *Store) silent(c *sending, err error, took time.Duration) bool {
	last := s.pulse.Last(c.place)
	return took >= s.timeout && errors.Is(err, ErrAmbiguous) && !last.IsZero() && last.Before(c.sent)
}

// away returns the error of a caller whose c was not answered, because of err.
func (c *sending) away(err error) error {
	return &outageError{server: c.place, sent: true, retry: outage.ShortestRetry, cause: err}
}
