package sluiceredis

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// Models of the limits of a set, in the plainest way, which know nothing of Redis
// or of what replies mean. Times are ns since 1970, by the server's clock.

type modelLimit interface {
	// answer is what the limit says of a request for n at now.
	answer(now, n int64) limits.Result
	// add takes n at now, without asking.
	add(now, n int64)
	// back returns n that were taken at now, by the last call of the set, and
	// returns how many.
	back(now, n int64) int64
}

// togetherModel decides for all limits, or changes none.
func togetherModel(models []modelLimit, now int64, n []int64) []limits.Result {
	answers := make([]limits.Result, len(models))
	all := true
	for i, l := range models {
		answers[i] = l.answer(now, n[i])
		all = all && answers[i].Allowed()
	}
	for i, l := range models {
		if all {
			l.add(now, n[i])
		}
		held := l.answer(now, 0)
		answers[i].Remaining, answers[i].ResetAfter = held.Remaining, held.ResetAfter
	}
	return answers
}

// modelBucket leaks one in each interval.
type modelBucket struct{ capacity, interval, empty int64 }

func (b *modelBucket) level(now int64) int64 { return max(0, b.empty-now) }

func (b *modelBucket) answer(now, n int64) limits.Result {
	depth := b.capacity * b.interval
	res := limits.Result{Limit: b.capacity, ResetAfter: time.Duration(b.level(now))}
	res.Remaining = max(0, depth-b.level(now)) / b.interval
	switch {
	case n > b.capacity:
		res.RetryAfter = limits.Never
	case n > 0 && b.level(now)+n*b.interval > depth:
		res.RetryAfter = time.Duration(b.level(now) + n*b.interval - depth)
	}
	return res
}

func (b *modelBucket) add(now, n int64) { b.empty = now + b.level(now) + n*b.interval }

func (b *modelBucket) back(now, n int64) int64 {
	b.add(now, -n)
	return n
}

// modelLog notes when each unit was admitted.
type modelLog struct {
	limit, window int64
	at            []int64
}

func (l *modelLog) forget(now int64) {
	l.at = slices.DeleteFunc(l.at, func(t int64) bool { return t <= now-l.window })
}

func (l *modelLog) answer(now, n int64) limits.Result {
	l.forget(now)
	used := int64(len(l.at))
	res := limits.Result{Limit: l.limit, Remaining: max(0, l.limit-used)}
	if used > 0 {
		res.ResetAfter = time.Duration(l.at[used-1] + l.window - now)
	}
	switch {
	case n > l.limit:
		res.RetryAfter = limits.Never
	case n == 0 || used+n <= l.limit:
	default:
		for i, t := range l.at { // when the first i+1 have left
			if used-int64(i+1)+n <= l.limit {
				res.RetryAfter = time.Duration(t + l.window - now)
				break
			}
		}
	}
	return res
}

func (l *modelLog) add(now, n int64) { l.at = append(l.at, slices.Repeat([]int64{now}, int(n))...) }

func (l *modelLog) back(_, n int64) int64 {
	n = min(n, int64(len(l.at)))
	l.at = l.at[:int64(len(l.at))-n]
	return n
}

// modelFixed counts what a window has seen. aligned < 0 means anchored.
type modelFixed struct{ limit, window, aligned, start, used int64 }

// at returns when the window of now began, and what it has seen.
func (f *modelFixed) at(now int64) (start, used int64) {
	if now < f.start+f.window {
		return f.start, f.used
	}
	if f.aligned >= 0 {
		return now - (now-f.aligned)%f.window, 0
	}
	return now, 0
}

func (f *modelFixed) answer(now, n int64) limits.Result {
	start, used := f.at(now)
	res := limits.Result{Limit: f.limit, Remaining: max(0, f.limit-used)}
	if used > 0 {
		res.ResetAfter = time.Duration(start + f.window - now)
	}
	switch {
	case n > f.limit:
		res.RetryAfter = limits.Never
	case n == 0 || used+n <= f.limit:
	default:
		res.RetryAfter = time.Duration(start + f.window - now)
	}
	return res
}

func (f *modelFixed) add(now, n int64) {
	if n > 0 {
		f.start, f.used = f.at(now)
		f.used += n
	}
}

func (f *modelFixed) back(_, n int64) int64 {
	n = min(n, f.used) // it was in this window
	f.used -= n
	return n
}

// modelPacer lets a call start in each interval, and catches up on what was missed.
type modelPacer struct{ interval, missed, horizon, next int64 }

// A slot so far ahead that nobody could have reserved it is nearer.
func (p *modelPacer) free(now int64) int64 {
	if p.next-now > 2*p.horizon {
		return p.horizon
	}
	return max(p.next-now, -p.missed)
}

func (p *modelPacer) answer(now, n int64) limits.Result {
	free := p.free(now)
	res := limits.Result{Limit: 1 + p.missed/p.interval, ResetAfter: time.Duration(max(0, free+p.missed))}
	for t := free; t <= 0; t += p.interval {
		res.Remaining++
	}
	switch {
	case n > p.horizon/p.interval:
		res.RetryAfter = limits.Never
	case n > 0 && free > 0:
		res.RetryAfter = time.Duration(free)
	}
	return res
}

func (p *modelPacer) add(now, n int64) {
	if n > 0 {
		p.next = now + p.free(now) + n*p.interval
	}
}

func (p *modelPacer) back(_, n int64) int64 {
	p.next -= n * p.interval
	return n
}
