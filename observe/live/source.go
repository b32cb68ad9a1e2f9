package live

import (
	"fmt"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A Gate is the view of one gate on the page at one moment. Only Stats is required.
type Gate struct {
	sluice.Stats

	// Key distinguishes gates that have the same name, or none. It is shown after the
	// name unless they are equal.
	Key string

	// Limits are the limits that the server of the gate last stated, at SeenAt.
	Limits []ratelimit.Limit
	SeenAt time.Time

	// Control changes the gate, as a *sluice.Gate does: also its rate and the calls in flight, if it
	// has the methods SetRate and SetConcurrency of a Gate. nil means that the page can only show
	// the gate. It is used only if [Handler].Token is set.
	Control interface {
		PauseUntil(t time.Time, why string)
		Resume()
	}
}

// A control is a Gate.Control.
type control interface {
	PauseUntil(t time.Time, why string)
	Resume()
}

type rateControl interface {
	SetRate(rate sluice.Rate) error
}

type concurrencyControl interface {
	SetConcurrency(limit int64) error
}

// FromGates returns a sequence of gates.
func FromGates(gates ...*sluice.Gate) iter.Seq[Gate] {
	return func(yield func(Gate) bool) {
		for _, g := range gates {
			if !yield(Gate{Stats: g.Stats(), Control: g}) {
				return
			}
		}
	}
}

// FromKeyed returns a sequence of all gates of a [sluice.Keyed], in no particular order. A change
// is lost when the Keyed evicts the gate.
func FromKeyed[K comparable](gates *sluice.Keyed[K]) iter.Seq[Gate] {
	return func(yield func(Gate) bool) {
		gates.Stats(func(key K, s sluice.Stats) bool {
			return yield(Gate{Stats: s, Key: text(key), Control: keyControl[K]{gates, key}})
		})
	}
}

func text(key any) string {
	if s, ok := key.(string); ok {
		return s
	}
	return fmt.Sprint(key)
}

// A keyControl changes the gate of one key.
type keyControl[K comparable] struct {
	gates *sluice.Keyed[K]
	key   K
}

// PauseUntil does nothing if the gate cannot be made again after it was discarded.
func (c keyControl[K]) PauseUntil(t time.Time, why string) {
	_ = c.gates.Use(c.key, func(g *sluice.Gate) error { g.PauseUntil(t, why); return nil })
}

func (c keyControl[K]) Resume() {
	_ = c.gates.Use(c.key, func(g *sluice.Gate) error { g.Resume(); return nil })
}

func (c keyControl[K]) SetRate(rate sluice.Rate) error {
	return c.gates.Use(c.key, func(g *sluice.Gate) error { return g.SetRate(rate) })
}

func (c keyControl[K]) SetConcurrency(limit int64) error {
	return c.gates.Use(c.key, func(g *sluice.Gate) error { return g.SetConcurrency(limit) })
}

// FromTransport returns a sequence of all gates of a transport, in no particular order, with the
// limits that their servers publish. A change is lost when the transport evicts the gate.
func FromTransport(t *sluicehttp.Transport) iter.Seq[Gate] {
	return func(yield func(Gate) bool) {
		t.Stats(func(key string, s sluicehttp.Stats) bool {
			return yield(Gate{Stats: s.Stats, Key: key, Limits: s.Limits, SeenAt: s.SeenAt, Control: hostControl{t, key}})
		})
	}
}

// A hostControl changes the gate of one key of a transport.
type hostControl struct {
	transport *sluicehttp.Transport
	key       string
}

func (c hostControl) PauseUntil(t time.Time, why string) { c.transport.PauseUntil(c.key, t, why) }
func (c hostControl) Resume()                            { c.transport.Resume(c.key) }

func (c hostControl) SetRate(rate sluice.Rate) error {
	_, err := c.transport.SetRate(c.key, rate)
	return err
}

func (c hostControl) SetConcurrency(limit int64) error {
	_, err := c.transport.SetConcurrency(c.key, limit)
	return err
}
