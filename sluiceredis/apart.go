package sluiceredis

import (
	"context"
	"strconv"

	"github.com/sluice-go/sluice/limits"
)

// # How are limits decided together without a server?
//
// One after the other, and what was taken from some is given back if another
// refuses, at once and exactly. Meanwhile it is missing, so that somebody else
// may be refused who would have been let through; nobody is let through who should
// not have been. While the server is away each limit follows its own policy.

// takeApart has requests answered by the limits of their set, one by one. If there
// is a server, away says why it is not asked.
func takeApart(requests []*joining, away *AwayError) error {
	for _, j := range requests {
		if err := j.takeApart(away); err != nil {
			return err
		}
	}
	return nil
}

func (j *joining) takeApart(away *AwayError) (err error) {
	results := make([]limits.Result, len(j.n))
	var undo []func()
	giveBack := func() {
		for _, u := range undo {
			u()
		}
		undo = nil
	}
	defer func() {
		if !j.decision.allowed() {
			giveBack()
		}
	}()
	for i, l := range j.set.limits {
		res, u, err := l.takeOne(j.n[i], away)
		if err != nil {
			return err
		}
		if results[i] = res; res.Allowed() && j.n[i] > 0 {
			undo = append(undo, u)
		}
	}
	d := decisionOf(results)
	if !d.allowed() {
		giveBack()
		for i, l := range j.set.limits {
			if results[i].Allowed() && j.n[i] > 0 { // what it holds without that
				if results[i], _, err = l.takeOne(0, away); err != nil {
					return err
				}
			}
		}
	}
	j.decision, j.ends = d, make([]int64, len(j.n))
	return nil
}

// setHere is what becomes of requests for a set while its server is away.
func setHere(s *Store, _ string, requests []*joining, away *AwayError) error {
	closed := true
	for _, m := range requests[0].form.members {
		closed = closed && s.policy(m.policy()) == FailClosed
	}
	if closed {
		s.stats.refused.Add(uint64(len(requests)))
		return away
	}
	return takeApart(requests, away)
}

// firstKey returns the first key of the sets of that sign.
func firstKey(sign string) string {
	quoted, _ := strconv.QuotedPrefix(sign)
	key, _ := strconv.Unquote(quoted)
	return key
}

// apart has one request answered without a server: the policy does it if that is
// away.
func (c *commit[K, O]) apart(key K, request O, away *AwayError) error {
	if away == nil {
		return c.alone(c.store.local(), key, []O{request})
	}
	return c.here(c.store, key, []O{request}, away)
}

// adjusted returns what gives n back to a meter.
func adjusted(s *Store, m member, n int64) func() {
	return func() { _ = s.adjustOne(context.Background(), m, -n, 0) } // counted if it fails
}

func (m *BucketLimiter) takeOne(n int64, away *AwayError) (limits.Result, func(), error) {
	s, c := m.leaky.store, m.leaky.at(m.leaky.quoted.Load().cell, m.key)
	t := taking{n: n}
	err := s.buckets.apart(c, &t, away)
	return t.result, adjusted(s, &c, n), err
}

func (m *SlidingLimiter) takeOne(n int64, away *AwayError) (limits.Result, func(), error) {
	s, k := m.log.store, m.log.at(m.key)
	a := asking{n: n}
	err := s.logs.apart(k, &a, away)
	return a.result, adjusted(s, &k, n), err
}

func (m *FixedLimiter) takeOne(n int64, away *AwayError) (limits.Result, func(), error) {
	s, k := m.fixed.store, m.fixed.at(m.key)
	a := asking{n: n}
	err := s.fixeds.apart(k, &a, away)
	return a.result, adjusted(s, &k, n), err
}

func (p *Pacer) takeOne(n int64, away *AwayError) (limits.Result, func(), error) {
	k := p.at()
	one := &pace{k} // as the share has it, if one decides
	if m, ok := p.store.shares(k.away); ok && away != nil {
		one.interval *= m
		one.horizon = max(one.horizon, one.interval) // the share has a slot, however long the next takes
	}
	if n > k.horizon/k.interval {
		return limits.Result{Limit: 1 + one.missed/one.interval, RetryAfter: limits.Never}, nil, nil
	}
	r := pacing{takes: n * k.interval}
	if err := p.store.pacers.apart(k, &r, away); err != nil {
		return limits.Result{}, nil, err
	}
	p.heard(r.pauses, r.at)
	free := int64(0)
	if !r.open {
		free = r.slot - r.now
	}
	// What is beyond the share, and not beyond the limit, is none of its business.
	res := decide(&paceState{one, free}, min(n, one.most()))
	return res, func() {
		if p.store.cancelSlots(context.Background(), k, r.span()) {
			p.store.stats.refunded.Add(uint64(n))
		} else {
			p.store.stats.lost.Add(uint64(n))
		}
	}, nil
}
