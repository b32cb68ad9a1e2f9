package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// tracing prints what the rule believes whenever that changes.
var tracing bool

// searcher drives the pure rule. A call that is refused goes to the end of the queue:
// the rule says when it leaves, so it needs no backoff of its own.
type searcher struct {
	rule *adaptive.Controller
	last adaptive.Belief
	seen time.Duration // when last was printed
	n    [3]int        // replies since then, by outcome
}

// searching returns strategies that know nothing of the world but what time it is, and
// that to 0.4 s.
func searching(cfg adaptive.Config) func(*World, *rand.Rand) strategy {
	return func(w *World, r *rand.Rand) strategy {
		own := cfg
		own.Clock = seconds(w.Clock + .8*r.Float64() - .4)
		return &searcher{rule: adaptive.New(own)}
	}
}

func (s *searcher) leave(now time.Duration, inFlight int, cost float64) (ticket, time.Duration) {
	if at := s.rule.Demand(now, inFlight); at > now {
		return nil, at
	}
	return s.rule.Started(now, cost, inFlight), now
}

func (s *searcher) done(now time.Duration, t ticket, r reply) {
	report := adaptive.Reply{RetryAfter: max(0, r.retryAfter)}
	switch r.outcome {
	case refused:
		report.Outcome = adaptive.Refused
	case failed:
		report.Outcome = adaptive.Failed
	}
	s.rule.Ended(now, t.(adaptive.Call), report)
	if tracing {
		s.trace(now, r.outcome)
	}
}

// trace prints what is believed when that changes, and each ten seconds.
func (s *searcher) trace(now time.Duration, o outcome) {
	s.n[o]++
	b := s.rule.Belief()
	if b.Changes == s.last.Changes && now < s.seen+10*time.Second {
		return
	}
	fmt.Fprintf(os.Stderr, "%9.3f %6.4g granted/s, %4d refused, %v: %+v\n",
		now.Seconds(), float64(s.n[granted])/(now-s.seen).Seconds(), s.n[refused], b.Why, b)
	s.last, s.seen, s.n = b, now, [3]int{}
}

func (s *searcher) retry(int, reply) time.Duration { return 0 }
