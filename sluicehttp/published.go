package sluicehttp

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # The limits that a server publishes
//
// With Config.Cost, a gate has one more limit: all those that the responses of its server show,
// each of its own unit. The remaining quota in a response was counted when the server got the
// request, and other calls were on their way then. So a response does not set how much remains
// here, but bounds it:
//
//	remaining + refilled − calls that the server may not have counted
//	    ≤ remaining here ≤
//	remaining + refilled − calls that it cannot have counted
//
// Between two responses the calls change the remaining quota here: each takes its estimate when it
// starts, and returns the surplus when it is settled. So calls in flight never exceed the remaining
// quota, and a burst whose responses overtake each other is not counted twice.
//
// A call that left before another one has been counted before it, unless one overtook the
// other in the network. Tokens of output are counted when they have been made, so there a
// call counts until it has ended.

// mostOvertaking is by how much two requests may overtake each other. A server whose headers
// come sooner shows that it is less.
const mostOvertaking = 100 * time.Millisecond

// probeEvery is the time between two calls before the first response: a server that answers after seconds refills
// meanwhile, and may publish nothing. With a second, a preset was slower than no configuration there by nearly the time
// that a response takes: 300 calls at 500 per minute, answered after 2 s, took 37.5 s instead of 35.7. A call that the
// server throttles is answered soon, and shows its limits.
const probeEvery = 100 * time.Millisecond

// mostPublished bounds the memory for a server that invents limits.
const mostPublished = 16

// requests is the unit of which each call takes 1.
const requests = "requests"

// A published has the limits that a server publishes, as a limit of a gate.
type published struct {
	most      time.Duration // Config.MaxPause
	tolerated time.Duration // RetryPolicy.MaxServerWait
	use       Published
	bell      bell.Bell

	mu      sync.Mutex
	apart   time.Duration // by how much two requests may overtake each other
	shown   bool          // a response has shown which limits there are
	probe   *charge       // the last call that started before that
	late    *time.Timer   // ends the wait for probe
	limits  []*shownLimit
	charges []*charge // that the last responses may not have counted, in order
}

// A charge is the amounts of one attempt in published limits.
type charge struct {
	at       time.Time // when it left
	answered time.Time // when the header of its response arrived; zero before
	ended    time.Time // zero before
	void     bool      // the server has not counted it
	costs    sluice.Costs
}

// of returns the amount of unit in c: one request, and the amounts of Config.Cost.
func (c *charge) of(unit sluice.Unit) float64 {
	n, ok := c.costs[unit]
	if !ok && unit == requests {
		return 1
	}
	return float64(n)
}

// A serverWait is the error of a call that published limits delay for longer than
// RetryPolicy.MaxServerWait.
type serverWait struct {
	wait time.Duration
	at   time.Time
}

func (e *serverWait) Error() string {
	w := sentence.Wait{For: "limit of the server", End: e.at}
	return fmt.Sprintf("%v: by the limits that it publishes, %v%s", sluice.ErrServerWait, e.wait.Round(time.Millisecond), w.Until(e.at.Add(-e.wait)))
}

func (e *serverWait) Unwrap() error { return sluice.ErrServerWait }

// Admit implements limits.Limiter. It returns a serverWait instead of a wait that is longer
// than is tolerated.
func (p *published) Admit(ctx context.Context, n int64) (time.Duration, error) {
	c, _ := ctx.Value(spendingKey{}).(*spending)
	if c != nil && c.of != p {
		return 0, nil // it is charged in another scope
	}
	k := new(charge)
	if c != nil {
		k.costs = c.costs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	k.at = now
	if !p.shown && p.probe != nil && now.Sub(p.probe.at) < probeEvery {
		return limits.Never, nil
	}
	p.advance(now)
	var wait time.Duration
	for _, l := range p.limits {
		wait = max(wait, l.wait(l.of(k), now, p.apart))
	}
	if wait == limits.Never {
		return wait, nil
	}
	if wait = min(wait, p.most); wait > p.tolerated {
		return 0, &serverWait{wait, now.Add(wait)}
	}
	if wait > 0 {
		return wait, nil
	}
	for _, l := range p.limits {
		l.take(k, now)
	}
	if !p.shown {
		p.probed(p.probe)
		p.probe, p.late = k, time.AfterFunc(probeEvery, p.bell.Ring)
	}
	if !p.shown || len(p.limits) > 0 {
		p.charges = append(p.charges, k)
	}
	if c != nil {
		c.charge = k
	}
	return 0, nil
}

// Adjust implements limits.Limiter. A gate calls it only to undo Admit.
func (p *published) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	c, _ := ctx.Value(spendingKey{}).(*spending)
	if c == nil || c.of != p || c.charge == nil {
		return nil
	}
	p.mu.Lock()
	k := c.charge
	c.charge = nil
	for _, l := range p.limits {
		n := l.of(k)
		l.level += min(n, l.most)
		if l.pace > 0 {
			l.next = l.next.Add(-ofSeconds(n / l.pace))
		}
	}
	p.charges = slices.DeleteFunc(p.charges, func(other *charge) bool { return other == k })
	p.askedInVain(k)
	probe := p.probed(k)
	p.mu.Unlock()
	if probe || bell.Loud(ctx, delta) {
		p.bell.Ring()
	}
	return nil
}

// Known reports whether the server has published a limit, for the gate: see learner.go there.
func (p *published) Known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.limits) > 0
}

// Refills reports whether the server has published a bucket, likewise.
func (p *published) Refills() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.limits, func(l *shownLimit) bool { return l.rate > 0 })
}

// OnChange makes p a limit that notifies, see limits.Limiter.
func (p *published) OnChange(f func()) (stop func()) { return p.bell.Wait(f) }

// Take lets a Keyed see when the state of p is that of a new one: Take(0).ResetAfter is 0.
// It takes nothing.
func (p *published) Take(int64) (r limits.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.advance(now)
	for _, l := range p.limits {
		r.ResetAfter = max(r.ResetAfter, l.resetAt.Sub(now))
		if l.rate > 0 {
			r.ResetAfter = max(r.ResetAfter, ofSeconds((l.most-l.level)/l.rate))
		}
	}
	return r
}

// answered notes the header of the response to k, from which said was read.
func (p *published) answered(k *charge, said *ratelimit.Info, found *findings, now time.Time) {
	if p == nil || k == nil {
		return
	}
	p.mu.Lock()
	p.advance(now)
	k.answered = now
	if took := min(mostOvertaking, now.Sub(k.at)); took > p.apart {
		p.apart = took
	} else {
		p.apart -= (p.apart - took) / 16
	}
	for i := range said.Limits {
		if l := p.known(&said.Limits[i]); l != nil && said.Throttled {
			remaining, _ := said.Limits[i].Remaining.Value()
			l.refused(l.of(k), remaining)
		}
	}
	p.askedInVain(k)
	if said.Throttled { // the server has not counted it, but for the request
		for _, l := range p.limits {
			if l.unit != requests {
				l.level += min(l.of(k), l.most)
			}
		}
		k.costs = sluice.Costs{requests: int64(k.of(requests))}
		k.ended, k.void = now, true
	}
	for i := range said.Limits {
		l := said.Limits[i] // a copy, to be improved
		if i < len(found) && found[i].ignore {
			p.drop(&l)
			continue
		}
		found.improve(i, &l)
		p.note(&l, k, now)
		if i < len(found) {
			p.mayAsk(&l, found[i].ask)
		}
	}
	p.probed(k)
	p.shown = p.shown || len(said.Limits) > 0 || said.Status < 500
	p.silent(k)
	p.prune(now)
	p.mu.Unlock()
	p.bell.Ring()
}

// probed notes that k, if it was the last call that started without a response, has one, or ended.
func (p *published) probed(k *charge) bool {
	if k == nil || p.probe != k {
		return false
	}
	p.late.Stop()
	p.probe, p.late = nil, nil
	return true
}

// failed notes that there is no response to k.
func (p *published) failed(k *charge, now time.Time) {
	if p == nil || k == nil {
		return
	}
	p.mu.Lock()
	k.answered, k.ended = now, now
	p.askedInVain(k)
	p.probed(k)
	p.silent(k)
	p.mu.Unlock()
	p.bell.Ring()
}

// silent forgets the windows that began after the last response about them, and about which
// nothing was said after k: nothing else would end a wait for them.
func (p *published) silent(k *charge) {
	p.limits = slices.DeleteFunc(p.limits, func(l *shownLimit) bool {
		return l.renewed && !k.at.Before(l.resetAt)
	})
}

// settle corrects the amounts of k. The remaining quota of a response is not raised: some servers
// charge the estimate of a call, finally, others its actual amount. The response to the next call
// will say. Calls that no response has counted are corrected here.
func (p *published) settle(k *charge, actual sluice.Costs) {
	if p == nil || k == nil {
		return
	}
	p.mu.Lock()
	if !k.void {
		now := time.Now()
		p.advance(now)
		costs := make(sluice.Costs, len(k.costs))
		maps.Copy(costs, k.costs)
		maps.Copy(costs, actual)
		after := &charge{costs: costs}
		for _, l := range p.limits {
			less := min(l.of(k), l.most) - after.of(l.unit)
			if less > 0 && l.saw(k) {
				costs[l.unit] = k.costs[l.unit] // as the server has counted it, perhaps
				continue
			}
			l.level = min(l.most, l.level+less)
		}
		k.costs = costs
	}
	p.mu.Unlock()
	p.bell.Ring()
}

// ended notes that k ended, settled or not.
func (p *published) ended(k *charge) {
	if p == nil || k == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.ended.IsZero() {
		k.ended = time.Now()
	}
}

// forget forgets all limits.
func (p *published) forget() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.limits = nil
	p.mu.Unlock()
	p.bell.Ring()
}

// advance lets time pass until now.
func (p *published) advance(now time.Time) {
	p.limits = slices.DeleteFunc(p.limits, func(l *shownLimit) bool {
		l.advance(now)
		return math.IsInf(l.most, 1) && !now.Before(l.resetAt) || now.Sub(l.asOf) >= p.most
	})
}

// prune forgets charges that later responses have counted for certain.
func (p *published) prune(now time.Time) {
	oldest := now
	for _, l := range p.limits {
		if l.asOf.Before(oldest) {
			oldest = l.asOf
		}
	}
	oldest = oldest.Add(-mostOvertaking)
	p.charges = slices.DeleteFunc(p.charges, func(k *charge) bool {
		return !k.ended.IsZero() && k.ended.Before(oldest) || now.Sub(k.at) >= p.most
	})
}

// saw reports whether a response has shown the remaining quota after k.
func (l *shownLimit) saw(k *charge) bool {
	return l.unit != output && !k.answered.IsZero() && !l.asOf.Before(k.at)
}

// note notes one limit in the response to k.
func (p *published) note(said *ratelimit.Limit, k *charge, now time.Time) {
	remaining, known := said.Remaining.Value()
	left := said.ResetAt.Sub(now)
	if !known || said.ResetAt.IsZero() || left < 0 || said.Unit == concurrent {
		return
	}
	l := p.limitOf(said)
	if l == nil || k.at.Before(l.asOf) { // an older response
		return
	}
	first := l.asOf.IsZero()
	most, known := said.Max.Value()
	if !known {
		most = math.Inf(1)
	}
	l.rate, l.most = 0, most
	if !said.NextAt.IsZero() && known {
		l.rate = l.refill.of(most, remaining, left)
		if l.rate > 0 { // a bucket may hold less than the server says
			l.most = min(most, remaining+l.rate*left.Seconds())
		}
	}
	l.reserve = p.use.reserve(most)
	atMost, atLeast := l.since(k, remaining, p, now)
	l.at, l.asOf, l.resetAt, l.renewed = now, k.at, now.Add(min(left, p.most)), false
	if first {
		l.level = atLeast
	}
	l.level = min(max(l.level, atLeast), atMost)
	l.spread(p.use.Spread, remaining, most, left, now)
}

// since returns the bounds of what remains now, if it was remaining when the server counted k. Calls that
// left later took theirs when they left: what had come back by then was not lost because the bucket was
// full in the end.
func (l *shownLimit) since(k *charge, remaining float64, p *published, now time.Time) (atMost, atLeast float64) {
	after := k.at.Add(p.apart) // from then on the server has not counted a call, and refills for certain
	most, least := level{remaining, k.at}, level{remaining, after}
	for _, other := range p.charges { // in the order in which they left
		n := min(l.of(other), l.most)
		switch {
		case other == k && l.unit != output:
		case other.at.After(after):
			most.advance(l, other.at)
			least.advance(l, other.at)
			most.of -= n
			least.of -= n
		case !other.counted(k, l.unit, p.apart):
			least.of -= n
		}
	}
	most.advance(l, now)
	least.advance(l, now)
	return most.of, least.of
}

// A level is the amount that remains of a limit at a time.
type level struct {
	of float64
	at time.Time
}

// advance lets time pass until now, if that is later.
func (v *level) advance(l *shownLimit, now time.Time) {
	if elapsed := now.Sub(v.at); elapsed > 0 {
		v.of, v.at = l.after(v.of, elapsed), now
	}
}

// counted reports whether the server had certainly counted k when it counted by.
func (k *charge) counted(by *charge, unit sluice.Unit, apart time.Duration) bool {
	if unit == output {
		return !k.ended.IsZero() && !k.ended.After(by.at)
	}
	if !k.answered.IsZero() && !k.answered.After(by.at) {
		return true
	}
	return !k.at.After(by.at.Add(-apart))
}

// limitOf returns the limit that said is about, or nil if there are too many.
func (p *published) limitOf(said *ratelimit.Limit) *shownLimit {
	if l := p.known(said); l != nil || len(p.limits) >= mostPublished {
		return l
	}
	l := &shownLimit{name: said.Name, partition: said.Partition, unit: unitOf(said), scale: 1}
	p.limits = append(p.limits, l)
	return l
}

// drop forgets the limit that said is about, which is not believed.
func (p *published) drop(said *ratelimit.Limit) {
	p.limits = slices.DeleteFunc(p.limits, func(l *shownLimit) bool {
		return l.name == said.Name && l.partition == said.Partition
	})
}

// mayAsk lets one call start at ask, unless that is zero, although nothing remains of the limit
// that said is about: its window may have ended.
func (p *published) mayAsk(said *ratelimit.Limit, ask time.Time) {
	if l := p.known(said); l != nil {
		l.ask = ask
	}
}

// askedInVain notes that k, if it asked whether a window has ended, has not found that out, or has
// been answered. Then another call may ask, if no response has said that none may.
func (p *published) askedInVain(k *charge) {
	for _, l := range p.limits {
		if l.asker == k {
			l.asker = nil
		}
	}
}

// known is limitOf for a limit that an earlier response has shown.
func (p *published) known(said *ratelimit.Limit) *shownLimit {
	for _, l := range p.limits {
		if l.name == said.Name && l.partition == said.Partition {
			return l
		}
	}
	return nil
}
