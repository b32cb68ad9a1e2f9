package sluicehttp

import (
	"math"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A shownLimit is one published limit.
type shownLimit struct {
	name, partition string
	unit            sluice.Unit
	refill          refillRate

	scale   float64 // by how much estimates are too low, at least 1
	rate    float64 // per second; 0 for a window
	most    float64 // that can remain; infinite if unknown
	level   float64 // the remaining quota, minus that of calls since
	reserve float64 // of it, which is left to others
	at      time.Time
	resetAt time.Time // when all of a window comes back
	renewed bool      // that time has come, and no response has said anything since
	asOf    time.Time // when the call left whose response said so

	ask   time.Time // when one call may start although nothing remains; zero for none
	asker *charge   // it, until it is answered

	pace float64   // for Published.Spread: per second, 0 for none
	next time.Time // when the next call may start at that pace
}

const output = "output"

// unitOf returns the unit of l, as Config.Cost names it.
func unitOf(l *ratelimit.Limit) sluice.Unit {
	name := strings.ToLower(l.Name)
	switch {
	case strings.HasSuffix(name, "input-tokens"), strings.HasSuffix(name, "input_tokens"):
		return "input"
	case strings.HasSuffix(name, "output-tokens"), strings.HasSuffix(name, "output_tokens"):
		return output
	case strings.HasPrefix(name, "tokens"), strings.HasSuffix(name, "tokens"):
		return "tokens" // tokens_usage_based, project-tokens
	case l.Unit == "":
		return requests
	case strings.HasSuffix(l.Unit, "bytes"):
		return "bytes" // content-bytes
	}
	return sluice.Unit(l.Unit)
}

// of returns the amount of k in l.
func (l *shownLimit) of(k *charge) float64 { return k.of(l.unit) * l.scale }

// refused notes that a call was throttled that was estimated to take n while remaining was
// left. If that was enough, but not by far, the estimate is too low, and the next call would
// be throttled, too, as soon as it fits.
func (l *shownLimit) refused(n, remaining float64) {
	if l.unit != requests && n > 0 && n <= remaining && remaining < 2*n {
		l.scale = min(1.2*l.scale, mostScale)
	}
}

// mostScale is for texts of which a byte is a token.
const mostScale = 4

// advance lets time pass until now.
func (l *shownLimit) advance(now time.Time) {
	if elapsed := now.Sub(l.at); elapsed > 0 {
		l.level, l.at = l.after(l.level, elapsed), now
	}
	if now.Before(l.resetAt) {
		return
	}
	l.pace = 0
	if l.rate == 0 && !l.renewed && !math.IsInf(l.most, 1) {
		l.level, l.renewed = l.most, true
	}
}

// after returns the amount that remains of level after some time.
func (l *shownLimit) after(level float64, elapsed time.Duration) float64 {
	return min(l.most, level+l.rate*elapsed.Seconds())
}

// wait returns how long until n may leave, if requests overtake each other by up to apart.
func (l *shownLimit) wait(n float64, now time.Time, apart time.Duration) time.Duration {
	if n == 0 && (l.rate > 0 || l.level > l.reserve) {
		return 0
	}
	n = max(n, 1) // nothing remains, whatever it counts
	var wait time.Duration
	if l.pace > 0 {
		wait = l.next.Sub(now)
	}
	// A call may overtake the one before it, for which the server must have refilled. More
	// than there can be would wait for ever, and the estimate may be too high.
	n += l.rate * apart.Seconds()
	need := min(n, l.most-l.reserve) + l.reserve
	if short := need - l.level; short > max(1e-6, need*rounding) {
		if l.rate > 0 {
			return max(wait, ofSeconds(short/l.rate))
		}
		if l.renewed {
			return limits.Never // until there is a response
		}
		until := max(1, l.resetAt.Sub(now))
		if l.asker == nil && !l.ask.IsZero() {
			until = min(until, max(0, l.ask.Sub(now)))
		}
		return max(wait, until)
	}
	return wait
}

// rounding is the share of an amount that is lost when it is added up.
const rounding = 1e-12

// take takes the amounts of k, for which wait is 0.
func (l *shownLimit) take(k *charge, now time.Time) {
	n := l.of(k)
	if n > 0 && l.rate == 0 && l.level-l.reserve < min(n, l.most-l.reserve) {
		l.asker = k
	}
	l.level -= min(n, l.most)
	if l.pace > 0 && n > 0 {
		if l.next.Before(now) {
			l.next = now
		}
		l.next = l.next.Add(ofSeconds(n / l.pace))
	}
}

// spread sets the pace at which the remaining quota lasts until the reset, if less than share of
// most remains. Requests are spread by the rate of the gate.
func (l *shownLimit) spread(share, remaining, most float64, left time.Duration, now time.Time) {
	if share == 0 || l.unit == requests || left <= 0 {
		return
	}
	if l.pace = 0; remaining <= l.reserve || share < 1 && remaining >= share*most {
		return
	}
	if l.rate > 0 {
		remaining = l.most // a bucket refills completely until then
	}
	l.pace = max(1, remaining-l.reserve) / left.Seconds()
	if l.next.IsZero() {
		l.next = now
	}
}

// ofSeconds returns s seconds, rounded up and at most limits.Never.
func ofSeconds(s float64) time.Duration {
	ns := math.Ceil(s * 1e9)
	if ns >= math.MaxInt64 {
		return limits.Never
	}
	return time.Duration(ns)
}

// A refillRate learns how fast a bucket refills. OpenAI and Anthropic publish the amount per
// minute, and when the bucket will be full. The bucket may be smaller than that amount, so
// the amount divided by the time until it is full may be too fast. But two responses with
// different amounts show the rate, because their times differ by the difference divided by it.
type refillRate struct {
	most, remaining float64
	left            time.Duration // until the bucket is full, at that remaining
	rate            float64       // as two responses showed; 0 if unknown, negative for a window
}

// of returns the rate per second of a bucket that has remaining, is full after left, and is
// said to hold most; 0 if all comes back after left. left may be rounded up by a second.
func (r *refillRate) of(most, remaining float64, left time.Duration) float64 {
	if r.most != most {
		*r = refillRate{most: most, remaining: remaining, left: left}
	}
	differ := left - r.left
	least := 10 * time.Second
	if left%time.Second != 0 && r.left%time.Second != 0 {
		least = time.Second
	}
	if differ.Abs() >= least && remaining != r.remaining {
		r.rate = (r.remaining - remaining) / differ.Seconds()
		r.remaining, r.left = remaining, left
	}
	rate := most / 60
	switch {
	case r.rate < 0:
		return 0
	case r.rate > 0 && math.Abs(r.rate-rate) > rate/10: // else the rest is rounding
		rate = r.rate
	}
	// A server that says that more remains than the maximum has nothing to refill.
	if exact := (left - time.Second).Seconds(); exact > 0 && remaining < most {
		rate = min(rate, (most-remaining)/exact)
	}
	return rate
}
