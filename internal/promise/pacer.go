package promise

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// reserved is a pacer whose slots are reserved and then waited for.
func reserved(tb testing.TB, l Limits) *Subject {
	c := &pacerControl{p: limits.Must(pacer.New(sluice.Rate{Count: 1, Per: l.Interval}, pacer.Config{TimerResolution: l.Grain}))}
	return &Subject{
		Do: func(ctx context.Context, ask Ask, f func() error) error {
			if ask.Within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, ask.Within)
				defer cancel()
			}
			n := max(1, ask.N)
			if err := c.p.Reserve(n).Wait(ctx); err != nil {
				return err
			}
			c.note(time.Duration(n) * c.p.Interval())
			return f()
		},
		Try:    func() bool { return c.p.TryAcquire(1) },
		Levels: []*Level{{Name: "pacer", Control: c, Paced: true}},
		Paced:  true,
		Weighs: true,
	}
}

// A pacerControl is a pacer as the control of a level.
type pacerControl struct {
	p *pacer.Pacer

	mu    sync.Mutex
	known time.Time   // the next slot is not earlier
	seen  []time.Time // the next slots that Stats has returned
}

// note records that the next slot is at least d away.
func (c *pacerControl) note(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := time.Now().Add(d); next.After(c.known) {
		c.known = next
	}
}

func (c *pacerControl) SetRate(rate sluice.Rate) error {
	c.mu.Lock()
	c.known = time.Time{}
	c.mu.Unlock()
	return c.p.SetRate(rate)
}

func (c *pacerControl) SetConcurrency(int64) error {
	return errors.New("a pacer has no room in flight")
}

func (c *pacerControl) PauseUntil(t time.Time, why string) { c.p.PauseUntil(t) }
func (c *pacerControl) Resume()                            { c.p.Resume() }

// Stats finds the next slot by a reservation that it cancels. That would use up a slot of
// this time, so it does so only if the next slot is known to be later.
func (c *pacerControl) Stats() sluice.Stats {
	s := sluice.Stats{NextSlot: time.Now(), Pacing: int64(c.p.Waiting())}
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if time.Until(known) > 0 {
		r := c.p.Reserve(1)
		s.NextSlot = c.same(time.Now().Add(r.Delay()))
		r.Cancel()
	}
	return s
}

// same returns the slot that Stats has returned before if there is one less than a millisecond from next: some time passes
// before the delay of a reservation is added to the time.
func (c *pacerControl) same(next time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, slot := range c.seen {
		if next.Sub(slot).Abs() < time.Millisecond {
			return slot
		}
	}
	c.seen = append(c.seen, next)
	return next
}
