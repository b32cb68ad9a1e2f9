package main

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/bench/league/guests"
)

// A guest scores in a world, and is in the table without being named.
func TestGuest_Scores(t *testing.T) {
	if s := scoreOf(t, "cinnamon", "queue"); s.Score <= 0 || s.Goodput <= 0 {
		t.Errorf("%+v", s)
	}
	all := choose(nil)
	if last := all[len(all)-1]; last.name != "cinnamon" {
		t.Errorf("the last entry is %s", last.name)
	}
}

// A polite is a guest that sees each reply.
type polite struct {
	next  time.Duration
	calls []guests.Call
}

func (p *polite) Leave(now time.Duration, inFlight int, _ float64) time.Duration {
	switch {
	case inFlight > 0:
		return guests.Never
	case now < p.next:
		return p.next
	}
	p.next = now + time.Second
	return now
}

func (p *polite) Done(c guests.Call)                        { p.calls = append(p.calls, c) }
func (p *polite) Retry(_ int, r guests.Reply) time.Duration { return r.RetryAfter }

func TestGuest_SeesWhatHappens(t *testing.T) {
	p := new(polite)
	g := guest{p}
	first, at := g.leave(5*time.Second, 0, 3)
	if at != 0 {
		t.Fatal(at)
	}
	if _, at := g.leave(5*time.Second, 0, 1); at != 6*time.Second {
		t.Error(at)
	}
	if _, at := g.leave(5*time.Second, 1, 1); at != never {
		t.Error(at)
	}
	refusal := plain
	refusal.outcome, refusal.retryAfter = refused, 7*time.Second
	g.done(6*time.Second, first, refusal)
	want := guests.Call{Left: 5 * time.Second, Ended: 6 * time.Second, Cost: 3, Reply: guests.Reply{Throttled: true, RetryAfter: 7 * time.Second}}
	if len(p.calls) != 1 || p.calls[0] != want {
		t.Errorf("%+v, want %+v", p.calls, want)
	}
	if d := g.retry(1, plain); d != 0 {
		t.Error(d)
	}
}
