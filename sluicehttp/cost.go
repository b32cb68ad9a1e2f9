package sluicehttp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// mostRead bounds how much of a body Config.Cost and Config.Idempotent get.
const mostRead = 1 << 20

// ask asks idempotent, unless that is nil or c is safe anyway, and cost, unless that is nil, about
// the request.
func (c *call) ask(idempotent func(*http.Request, []byte) bool, cost func(*http.Request, []byte) sluice.Costs) error {
	body, err := c.body.beginning()
	if err != nil {
		return err
	}
	c.safe = c.safe || idempotent != nil && idempotent(c.req, body)
	if cost == nil {
		return nil
	}
	return c.estimate(cost(c.req, body))
}

// estimate puts the estimated amounts of the request into the context of c.
func (c *call) estimate(costs sluice.Costs) error {
	costs = maps.Clone(costs)
	for unit, n := range costs {
		if n < 0 {
			return fmt.Errorf("sluicehttp: negative cost: %d %s", n, unit)
		}
	}
	if n, ok := costs[sluice.Cost]; ok && n > 0 && c.o.Cost == 0 {
		c.cost = n
	}
	c.spent = &spending{costs: costs}
	c.ctx = context.WithValue(sluice.WithCosts(c.ctx, costs), spendingKey{}, c.spent)
	return nil
}

// A spending is the amounts of a request, in its context. With the call itself in a context,
// each request would allocate it, also without a Config.Cost.
type spending struct {
	costs  sluice.Costs
	of     *published // the limits that take the charge; others let it pass
	charge *charge    // the charge of the attempt in published limits; nil if none
}

type spendingKey struct{}

// exhausted returns the unit of the limit that has throttled the request, as a throttle says: the
// only one of which less remains than the request takes, or else the one that the reason
// names. It returns "" if there is none.
func (s *spending) exhausted(said *ratelimit.Info) (unit sluice.Unit) {
	need, several := charge{costs: s.costs}, false
	for i := range said.Limits {
		l := &said.Limits[i]
		remaining, known := l.Remaining.Value()
		if u := unitOf(l); known && remaining < max(1, need.of(u)) && u != unit {
			several = several || unit != ""
			unit = u
		}
	}
	_, costly := s.costs[requests]
	if several || unit == "" {
		unit = sluice.Unit(strings.ToLower(said.Reason))
		if _, known := s.costs[unit]; !known && unit != requests {
			return ""
		}
	}
	if unit == requests && !costly {
		return sluice.Calls
	}
	return unit
}

// beginning returns the first bytes of the body, at most mostRead, or nil if there is no body
// or it can be read only once.
func (p *replay) beginning() ([]byte, error) {
	if p.getBody == nil {
		return nil, nil
	}
	body, err := p.getBody()
	if err != nil {
		return nil, fmt.Errorf("sluicehttp: the body for Config.Cost or Config.Idempotent: %w", err)
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, mostRead))
	if err != nil {
		return nil, fmt.Errorf("sluicehttp: the body for Config.Cost or Config.Idempotent: %w", err)
	}
	return content, nil
}

// A bill is the amounts of one attempt. It is settled at most once.
type bill struct {
	permit  *sluice.Permit
	server  *published // nil if there is none
	charge  *charge    // of server
	costs   sluice.Costs
	settled atomic.Bool
}

// newBill returns the bill of an attempt, or nil if it will not be settled.
func (c *call) newBill(h *hold, permit *sluice.Permit) *bill {
	if c.spent == nil && c.page == nil && c.t.cfg.Usage == nil {
		return nil
	}
	b := &bill{permit: permit, server: c.counts(h).published}
	if c.spent != nil {
		b.charge, b.costs = c.spent.charge, c.spent.costs
		c.spent.charge = nil // another attempt has another one
	}
	return b
}

// mostUsed is the largest amount that a response can charge. A larger one is a mistake or an
// attack: it would block the limit for good.
const mostUsed = 1e9

// settle corrects the amounts of the attempt. It reports false if that was done before.
func (b *bill) settle(actual sluice.Costs) bool {
	if b == nil || !b.settled.CompareAndSwap(false, true) {
		return false
	}
	b.permit.SettleCosts(actual)
	b.server.settle(b.charge, actual)
	return true
}

// answered notes the response to the attempt. A throttle settles for nothing but
// the request itself.
func (b *bill) answered(said *ratelimit.Info, found *findings, now time.Time) {
	if b == nil {
		return
	}
	b.server.answered(b.charge, said, found, now)
	if !said.Throttled || b.costs == nil {
		return
	}
	nothing := make(sluice.Costs)
	for unit := range b.costs {
		if unit != requests {
			nothing[unit] = 0
		}
	}
	b.settle(nothing)
}

// failed notes that there is no response to the attempt.
func (b *bill) failed(now time.Time) {
	if b != nil {
		b.server.failed(b.charge, now)
	}
}

// end notes that the attempt is over.
func (b *bill) end() {
	if b != nil {
		b.server.ended(b.charge)
	}
}

// known returns used without impossible amounts.
func known(used sluice.Costs) sluice.Costs {
	maps.DeleteFunc(used, func(_ sluice.Unit, n int64) bool { return n < 0 || n > mostUsed })
	return used
}
