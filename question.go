package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// # In which order are quotas asked, and how often?
//
// One after the other, each in a step of its own: what one refuses, those before
// it are given back. For a limit of this machine that is nothing. One far away
// costs a round trip to ask and another to give back, meanwhile others are refused
// what was there, and a refund can fail. So
//
//   - those of this machine are asked first, for a call and for its parents: what
//     one of them refuses has not travelled;
//   - of those far away as many as can be joined are asked in one step, which takes
//     from all or from none;
//   - only what is taken in one step and refused in another is given back.

// A question is one such step.
type question struct {
	joint limits.Joint // nil if there is one quota
	of    []owned
}

// An owned is a quota and whose it is.
type owned struct {
	*Limit
	gate *Gate
	bell *queue.Bell // of the meter; nil if it has none
}

// questionsOf returns what a call of g asks, of its quotas and those of its
// parents.
func questionsOf(g *Gate) []question {
	var here, far []question
	for ; g != nil; g = g.parent {
		for i := range g.quotas {
			one := owned{&g.quotas[i], g, bellOf(g.quotas[i].Limiter)}
			if _, ok := one.Limiter.(limits.Remote); ok {
				far = join(far, one)
			} else {
				here = append(here, question{of: []owned{one}})
			}
		}
	}
	return append(here, far...)
}

// join adds one, which is a Joiner, to the first question that it can be joined
// to, or to none.
func join(questions []question, one owned) []question {
	for i := range questions {
		q := &questions[i]
		var others []limits.Limiter
		for _, o := range q.of[1:] {
			others = append(others, o.Limiter)
		}
		if joint := q.of[0].Limiter.(limits.Remote).Join(append(others, one.Limiter)...); joint != nil {
			q.joint, q.of = joint, append(q.of, one)
			return questions
		}
	}
	return append(questions, question{of: []owned{one}})
}

// admit asks for a call of n, and returns who refused.
func (q *question) admit(ctx context.Context, n int64) (wait time.Duration, by owned, err error) {
	if q.joint == nil {
		wait, err = q.of[0].Limiter.Admit(ctx, q.of[0].Unit.of(n))
		return wait, q.of[0], err
	}
	all := make([]int64, len(q.of))
	for i, o := range q.of {
		all[i] = o.Unit.of(n)
	}
	wait, which, err := q.joint.AdmitAll(ctx, all)
	return wait, q.of[which], err
}

// giveBack gives back what admit has just taken for a call of n.
func (q *question) giveBack(ctx context.Context, n int64) {
	q.adjust(bell.Quietly(ctx), 0, func(o owned) int64 { return -o.Unit.of(n) })
}

// settle corrects by delta what admit took age ago from those that count cost.
func (q *question) settle(ctx context.Context, delta int64, age time.Duration) {
	q.adjust(ctx, age, func(o owned) int64 {
		if o.Unit == Cost {
			return delta
		}
		return 0
	})
}

func (q *question) adjust(ctx context.Context, age time.Duration, by func(owned) int64) {
	delta, any := make([]int64, len(q.of)), false
	for i, o := range q.of {
		delta[i] = by(o)
		any = any || delta[i] != 0
	}
	if !any {
		return
	}
	var lost []error
	if q.joint != nil {
		lost = q.joint.AdjustAll(ctx, delta, age)
	} else {
		lost = []error{q.of[0].Limiter.Adjust(ctx, delta[0], age)}
	}
	for i, err := range lost {
		if err != nil {
			q.of[i].gate.stranded.Add(1)
		}
	}
}
