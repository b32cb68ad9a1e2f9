package main

import "math"

// A limiter is a rule of the upstream. Instants are in seconds.
type limiter interface {
	// take takes cost at now and reports whether it did.
	take(now, cost float64) bool
	// undo returns what take took at this instant.
	undo(cost float64)
	// wait returns for how long cost would have to wait if no other call came; 0: it
	// would be granted.
	wait(now, cost float64) float64
	// state returns what remains, and when all of it will be back.
	state(now float64) (remaining, reset float64)
}

func newLimiter(l Limiter) limiter {
	switch l.Kind {
	case "bucket":
		return newBucket(l)
	case "penalty":
		return &penalty{bucket: newBucket(l), ban: l.Ban}
	case "window":
		return &fixedWindow{count: l.Count, seconds: l.Seconds, phase: l.Phase, number: -1}
	case "log":
		return &slidingLog{count: l.Count, seconds: l.Seconds}
	}
	panic("league: unknown limiter " + l.Kind)
}

// epsilon forgives what adding fractions of a unit rounds away.
const epsilon = 1e-9

// A bucket is a token bucket. It is real-valued, and keeps its level when its rate
// changes.
type bucket struct {
	rates       []Step
	burst, have float64
	seen        float64
}

func newBucket(l Limiter) *bucket {
	return &bucket{rates: l.rates(), burst: l.Burst, have: l.Burst}
}

func (b *bucket) refill(now float64) {
	for b.seen < now {
		rate, until := rateIn(b.rates, b.seen)
		until = math.Min(until, now)
		b.have = math.Min(b.burst, b.have+rate*(until-b.seen))
		b.seen = until
	}
}

func (b *bucket) take(now, cost float64) bool {
	b.refill(now)
	if b.have < cost-epsilon {
		return false
	}
	b.have -= cost
	return true
}

func (b *bucket) undo(cost float64) { b.have += cost }

func (b *bucket) wait(now, cost float64) float64 {
	b.refill(now)
	if cost > b.burst {
		return math.Inf(1)
	}
	return b.until(now, cost)
}

// until returns how long it takes until the bucket holds level.
func (b *bucket) until(now, level float64) float64 {
	t, need := now, level-b.have
	for need > epsilon {
		rate, until := rateIn(b.rates, t)
		if end := t + need/rate; end <= until {
			return end - now
		}
		need -= rate * (until - t)
		t = until
	}
	return t - now
}

func (b *bucket) state(now float64) (remaining, reset float64) {
	b.refill(now)
	return math.Max(0, b.have), b.until(now, b.burst)
}

// A penalty is a bucket that bans whoever it refuses; each call during the ban starts
// the ban again. The bucket fills meanwhile.
type penalty struct {
	*bucket
	ban, until float64
}

func (p *penalty) take(now, cost float64) bool {
	if now < p.until || !p.bucket.take(now, cost) {
		p.until = now + p.ban
		return false
	}
	return true
}

func (p *penalty) wait(now, cost float64) float64 {
	if now < p.until {
		return p.until - now
	}
	return p.bucket.wait(now, cost)
}

// A fixedWindow grants count in each window; window number n begins at n·seconds − phase.
type fixedWindow struct {
	count, seconds, phase float64
	number, used          float64
}

func (w *fixedWindow) roll(now float64) {
	if n := math.Floor((now + w.phase) / w.seconds); n != w.number {
		w.number, w.used = n, 0
	}
}

func (w *fixedWindow) end(now float64) float64 { return (w.number+1)*w.seconds - w.phase - now }

func (w *fixedWindow) take(now, cost float64) bool {
	w.roll(now)
	if w.used+cost > w.count+epsilon {
		return false
	}
	w.used += cost
	return true
}

func (w *fixedWindow) undo(cost float64) { w.used -= cost }

func (w *fixedWindow) wait(now, cost float64) float64 {
	w.roll(now)
	switch {
	case cost > w.count:
		return math.Inf(1)
	case w.used+cost > w.count+epsilon:
		return w.end(now)
	}
	return 0
}

func (w *fixedWindow) state(now float64) (remaining, reset float64) {
	w.roll(now)
	return w.count - w.used, w.end(now)
}

// A slidingLog grants count in any seconds. A grant at u counts at t while
// t − u < seconds.
type slidingLog struct {
	count, seconds float64
	used           float64
	grants         []grant
}

type grant struct{ at, cost float64 }

func (l *slidingLog) forget(now float64) {
	for len(l.grants) > 0 && now-l.grants[0].at >= l.seconds {
		l.used -= l.grants[0].cost
		l.grants = l.grants[1:]
	}
}

func (l *slidingLog) take(now, cost float64) bool {
	l.forget(now)
	if l.used+cost > l.count+epsilon {
		return false
	}
	l.used += cost
	l.grants = append(l.grants, grant{now, cost})
	return true
}

func (l *slidingLog) undo(cost float64) {
	l.used -= cost
	l.grants = l.grants[:len(l.grants)-1]
}

func (l *slidingLog) wait(now, cost float64) float64 {
	l.forget(now)
	if cost > l.count {
		return math.Inf(1)
	}
	used := l.used
	for _, g := range l.grants {
		if used+cost <= l.count+epsilon {
			break
		}
		used -= g.cost
		if used+cost <= l.count+epsilon {
			return g.at + l.seconds - now
		}
	}
	return 0
}

func (l *slidingLog) state(now float64) (remaining, reset float64) {
	l.forget(now)
	if len(l.grants) > 0 {
		reset = l.grants[len(l.grants)-1].at + l.seconds - now
	}
	return l.count - l.used, reset
}
