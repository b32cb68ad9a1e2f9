package sluice

import (
	"context"
	"errors"
	"time"
)

// This file has what the answers to calls change in a gate: pauses and slow starts
// (see ramp.go), and the retry budget (see budget.go).

// ended applies err, which a call of Do returned, to the gate and returns it. since is
// when the call left and p its permit, nil if it has none.
func (g *Gate) ended(err error, since time.Duration, p *Permit) error {
	if err == nil {
		g.succeeded(true)
		return nil
	}
	permanent, throttled := marks(err)
	g.honor(err, throttled, since, p)
	wellAnswered := definite(err, permanent, throttled)
	p.answer(wellAnswered) // before the release, which counts a missing answer as a success
	switch {
	case wellAnswered:
		g.answeredDefinitely()
	case !errors.Is(err, context.Canceled):
		g.failed()
	}
	return err
}

// honor pauses the gate if the server asked for a wait. err is what the call ended
// with, throttled its mark or nil, since when the call left, and p its permit, nil if
// it has none. It returns the wait, 0 if there is none. The wait is at least 1 ms, like
// a backoff: it does not use up an attempt, so a server that asks for 1 ns would be
// retried without end. The permit must still be held: otherwise the next call would
// leave before the pause.
func (g *Gate) honor(err error, throttled *throttledError, since time.Duration, p *Permit) (wait time.Duration) {
	if throttled == nil {
		return 0
	}
	at := throttled.at
	if wait = throttled.wait(); wait <= 0 {
		g.queue.Lock()
		defer g.queue.Unlock()
		if p != nil {
			p.first(answered) // by this error, and not by the release
		}
		g.slowStart(g.queue.Now(), since, 0)
		return 0
	}
	if wait < minBackoff {
		wait, at = minBackoff, time.Now().Add(minBackoff)
	}
	g.pauseUntil(at, err.Error(), since)
	return wait
}

// slowStart records, with the queue locked, that the server refused a call that left
// at since and asked for a wait of asked, 0 if it set no time. A gate with a rate needs
// no slow start.
func (g *Gate) slowStart(now, since, asked time.Duration) {
	if g.rate.Count == 0 {
		g.ramp = g.ramp.refuse(now, since, asked)
		g.ramping.Store(true)
	}
}

// answer is Permit.answer for one gate.
func (g *Gate) answer(p *Permit, fine bool) {
	g.queue.Lock()
	defer g.queue.Unlock()
	if !p.first(answered) {
		return
	}
	g.ramp = g.ramp.answer(p.since, fine, (*rule)(g).places())
	g.ramping.Store(g.ramp != nil)
	if g.queue.Len() > 0 {
		g.queue.Advance(g.queue.Now())
		g.queue.Kick()
	}
}

// failure is what kind of error an attempt ended with.
type failure int

const (
	plain failure = iota
	throttle
	timeout
)

// payRetry pays for a retry of a call that left at left. If the budget cannot pay, it
// spaces calls out by at least backoff, and payRetry returns false.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	cost := retryCost
	switch {
	case kind == throttle && g.budget.throttled >= 0 && left < g.budget.throttled+minBackoff:
		// Not "left before": in a bubble calls leave, are refused and pay at one
		// instant, or a nanosecond apart if there is a slow start, and each of 64 paid.
		// No retry comes sooner than minBackoff, so no call is free again and again.
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	g.impaired.Store(true)
	g.endQuiet(now)
	if !g.budget.pay(cost) {
		// This wakes no caller: those that wait see the longer wait when they wake.
		g.budget.empty(backoff)
		return false
	}
	if kind == throttle && cost > 0 {
		g.budget.throttled = now
	}
	return true
}

// endQuiet records, with the queue locked, that a call failed at now.
func (g *Gate) endQuiet(now time.Duration) {
	g.budget = g.budget.at(now)
	g.budget.since = now
}

// failed records that a call failed and is not retried.
func (g *Gate) failed() {
	if !g.impaired.Load() {
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	g.endQuiet(g.queue.Now())
}

// succeeded records that a call succeeded, at its first attempt or later.
func (g *Gate) succeeded(first bool) {
	g.mend(func(b *budget) { b.refund(first) })
}

// answeredDefinitely records that a call failed with a definite answer: the server is
// well, and the call was wrong. It puts back no tokens: that a retry ends so is no
// reason for more of them.
func (g *Gate) answeredDefinitely() { g.mend(func(*budget) {}) }

// mend calls refund and halves the spacing.
func (g *Gate) mend(refund func(b *budget)) {
	if !g.impaired.Load() { // nothing to mend, as for nearly all calls
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	b := g.budget.at(now)
	refund(&b)
	spaced := g.budget.spacing > 0
	if spaced {
		b.halve(g.rate.Interval())
	}
	g.budget = b
	g.impaired.Store(!b.recovered())
	if spaced {
		// Waiting callers may leave earlier now. The release of the permit would wake
		// them, too, but may come much later.
		g.queue.Advance(now)
		g.queue.Kick()
	}
}
