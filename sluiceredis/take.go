package sluiceredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// take takes n from one limit. It panics if n < 0.
func (s *Store) take(ctx context.Context, a spot, n int64) (limits.Result, error) {
	r, err := s.ask(ctx, a, n)
	if err != nil {
		return limits.Result{}, err
	}
	return r.one[0].res, nil
}

func (s *Store) ask(ctx context.Context, a spot, n int64) (*single, error) {
	mustNotBeNegative(n)
	r := new(single)
	r.one[0] = part{spot: a, n: n}
	r.parts = r.one[:]
	return r, s.decide(ctx, a.sign(), &r.request)
}

// decide decides a request, along with others of that sign.
func (s *Store) decide(ctx context.Context, g sign, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case s.alone:
		s.stats.local.Add(1)
		return s.takeHere(r, nil)
	case s.isAway(g.key): // no call waits for others, nor others for it
		return s.takeOrElse(ctx, g, []*request{r})
	}
	return s.takes.Do(ctx, g, r)
}

// takeOrElse has requests decided by the server or, if that is unavailable, by this process.
func (s *Store) takeOrElse(ctx context.Context, _ sign, requests []*request) error {
	err := s.takeFromServer(ctx, requests)
	if err == nil {
		return nil
	}
	var away *outageError
	if errors.As(err, &away) {
		return s.takeAway(requests, away)
	}
	return err
}

// A taking is a call that takes, in one piece of memory if it is a short set.
type taking struct {
	sending
	keys [1]string
	args [shortArgs]string
	room kinds.Room
	wide [6]int64
}

// shortArgs is the number of arguments of a short set: one request for one bucket. See
// lua/take.lua.
const shortArgs = 3

// widen returns the reply for a short set as it is for any other.
func (t *taking) widen(reply []int64) []int64 {
	if len(t.call.Args) != shortArgs || len(reply) != 3 || reply[1] >= 0 {
		return reply
	}
	of := -1 - reply[1]
	t.wide = [6]int64{reply[0], 3, of & 1, 0, of >> 1, reply[2]}
	return t.wide[:]
}

// call returns the call that takes the units for requests, and the number of numbers of its reply
// that are when a request will fit.
func (s *Store) call(requests []*request) (t *taking, whens int) {
	t = new(taking)
	call := &t.call
	if r := requests[0]; len(requests) == 1 && len(r.parts) == 1 && r.times() == 1 && r.decided() && !s.strict && r.parts[0].Kind() == kinds.BucketKind {
		p := &r.parts[0]
		call.Script, call.Keys = takes[kinds.BucketKind], append(t.keys[:0], p.key)
		call.Args = p.Args(append(t.args[:0], p.Cost(p.n)), "")
		return t, 0
	}
	parts, runs, each, all := requests[0].parts, 0, 0, kinds.Kind(0)
	name := ""
	for i := range parts {
		if p := &parts[i]; p.Kind().When() {
			each++
			name = s.unique()
		}
	}
	call.Keys, call.Args = make([]string, 0, len(parts)), make([]string, 0, 6*len(parts))
	for i := range parts {
		p := &parts[i]
		all |= p.Kind()
		call.Keys = append(call.Keys, p.key)
		call.Args = p.Args(append(call.Args, p.Kind().String()), name)
	}
	call.Script, call.Args = takes[all], append(call.Args, "0")
	count := len(call.Args) - 1
	eachRun(requests, func(run []*request) {
		r := run[0]
		if !r.decided() {
			return
		}
		runs++
		n := int64(0)
		for _, r := range run {
			n += r.times()
		}
		if !r.ever() {
			n = 0 // the script only says when it would fit
		}
		call.Args = append(call.Args, format(n))
		for i := range r.parts {
			p := &r.parts[i]
			call.Args = append(call.Args, p.Cost(min(p.n, p.Most())))
		}
	})
	call.Args[count] = format(int64(runs))
	return t, runs * each
}

// takeFromServer has requests for the same limits decided, in order, at the same time.
func (s *Store) takeFromServer(ctx context.Context, requests []*request) error {
	parts := requests[0].parts
	for i := range parts {
		if err := s.report(ctx, parts[i].spot); err != nil {
			return err
		}
	}
	t, whens := s.call(requests)
	found := 0
	for i := range parts {
		found += parts[i].Kind().Found()
	}
	script := t.call.Script
	reply, err := s.runCall(ctx, &t.sending)
	if err == nil {
		reply = t.widen(reply)
		err = expect(script, reply, 4+found+whens)
	}
	if err != nil {
		return err
	}
	if granted := s.apply(requests, t, reply, whens > 0); granted != reply[2] {
		return fmt.Errorf("sluiceredis: %s granted %d, which should be %d", script.Name, reply[2], granted)
	}
	return nil
}

// apply decides requests as the script has, by its reply, and returns the number of calls that are
// admitted. timed says that the reply has the times at which requests will fit.
func (s *Store) apply(requests []*request, t *taking, reply []int64, timed bool) (granted int64) {
	parts := requests[0].parts
	now, rest, clamped := reply[len(reply)-1], reply[3:], int64(0)
	states, units := make([]kinds.State, 0, 1), make([]int64, 1) // on the stack, if there is one
	if len(parts) > 1 {
		units = make([]int64, len(parts))
	}
	for i := range parts {
		room := &t.room
		if i > 0 {
			room = nil
		}
		states = append(states, parts[i].State(rest, now, room))
		clamped += rest[0]
		rest = rest[parts[i].Kind().Found():]
	}
	decided, sent := uint64(0), t.sent.Sub(s.beats.made)
	eachRun(requests, func(run []*request) {
		if timed && run[0].decided() {
			for _, state := range states {
				if w, ok := state.(kinds.Whener); ok {
					w.SetWhen(rest[0])
					rest = rest[1:]
				}
			}
		}
		for _, r := range run {
			r.now, r.sent = now, sent
			decided += uint64(r.times())
			if r.decideAll(states); r.granted() && !r.nothing() {
				granted += r.admitted
				for i := range r.parts {
					units[i] += r.parts[i].n * r.admitted
				}
			}
		}
	})
	for i := range parts {
		s.keep(parts[i].spot, states[i], units[i], now)
	}
	s.stats.decisions.Add(decided)
	s.stats.clamped.Add(uint64(clamped))
	return granted
}

// giveBack returns the units taken for callers that had left, the last first, so that
// the slots of those before it are at the tail then.
func (s *Store) giveBack(_ sign, requests []*request) {
	for i := len(requests) - 1; i >= 0; i-- {
		r := requests[i]
		if !r.granted() {
			continue
		}
		all := make([]correction, len(r.parts))
		for i := range r.parts {
			p := &r.parts[i]
			all[i] = correction{spot: p.spot, delta: -p.n * r.admitted, age: s.elapsed() - r.sent, end: p.end}
		}
		s.adjust(context.Background(), all) // counted if it fails
	}
}

// # How are requests decided without a server?
//
// One limit after the other, and units taken from some are returned if another
// rejects, immediately and exactly. Until then it is missing, so that another request may be
// rejected that would have been admitted; none is admitted that should not be. While the
// server is unavailable each limit follows its own policy.

// takeAway has requests decided while their server is unavailable.
func (s *Store) takeAway(requests []*request, away *outageError) error {
	closed := true
	for _, p := range requests[0].parts {
		closed = closed && s.policy(p.away) == FailClosed
	}
	if closed {
		s.stats.refused.Add(uint64(len(requests)))
		return away
	}
	for i, r := range requests {
		if err := s.takeHere(r, away); err != nil {
			s.stats.refused.Add(uint64(len(requests) - i - 1))
			return err
		}
	}
	return nil
}

// takeHere decides one request, for one call, in this process: by its limits if away is nil, and
// otherwise by their policies.
func (s *Store) takeHere(r *request, away *outageError) (err error) {
	defer func() {
		if err == nil && r.granted() {
			r.admitted = 1
		}
	}()
	if away != nil {
		r.sent = s.elapsed()
		defer r.forget() // taken units are returned by the notes
	}
	if len(r.parts) == 1 {
		if _, err = s.decideHere(&r.parts[0], r.parts[0].n, away); err == nil {
			r.judge()
		}
		return err
	}
	by := make([]kinds.Rule, len(r.parts))
	defer func() {
		if err == nil && r.granted() {
			return
		}
		for i, rule := range by {
			p := &r.parts[i]
			if rule == nil || !p.res.Allowed() || p.n == 0 {
				continue
			}
			s.takeBack(p.key, rule, p.n, p.end, away != nil)
			if p.end = 0; err == nil { // its content without that
				_, err = s.decideHere(p, 0, away)
			}
		}
	}()
	for i := range r.parts {
		p := &r.parts[i]
		if by[i], err = s.decideHere(p, p.n, away); err != nil {
			r.by = i
			return err
		}
	}
	r.judge()
	return nil
}

// decideHere decides a request for n units of one limit in this process. It returns the algorithm
// of the limit or of its share that has decided it, if any has.
func (s *Store) decideHere(p *part, n int64, away *outageError) (by kinds.Rule, err error) {
	switch policy := s.policy(p.away); {
	case away == nil:
		by = p.Rule
	case policy == FailOpen:
		s.local().Note(p.key, 0, p.Counts()) // so that nothing of it is returned to the server
		s.stats.open.Add(1)
		p.res = open(p.limit, n)
		return nil, nil
	case policy == LocalShare:
		if by, err = s.shareOf(p.limit, away); err != nil {
			s.stats.refused.Add(1)
			return nil, err
		}
		s.stats.local.Add(1)
		if n > by.Most() {
			if p.res = open(p.limit, n); p.res.Allowed() {
				p.res = away.later(p.Limit())
			}
			return nil, nil
		}
	default:
		s.stats.refused.Add(1)
		return nil, away
	}
	h := s.local().Open(p.key, by)
	p.res.RetryAfter = h.Wait(n)
	if p.res.RetryAfter == 0 && n > 0 {
		p.end = h.Take(n)
	}
	p.res.Remaining, p.res.Limit, p.res.ResetAfter = h.Holds()
	if away != nil && n > 0 && p.res.Allowed() {
		h.Note(n, p.Counts())
	}
	h.Close(n > 0 && n <= p.Most())
	return by, nil
}

// takeBack returns the units decideHere has taken, to a share or to a limit of this
// process.
func (s *Store) takeBack(key string, by kinds.Rule, n, end int64, shared bool) {
	if shared {
		s.local().Unnote(key, n, 0)
	}
	h := s.local().Open(key, by)
	made, _ := h.Add(-n, 0, end)
	h.Close(true)
	s.stats.refunded.Add(uint64(made))
	s.stats.stranded.Add(uint64(n - made))
}

// open is the result of a request for n by FailOpen.
func open(l *limit, n int64) limits.Result {
	res := limits.Result{Limit: l.Limit()}
	if n > l.Most() {
		res.RetryAfter = limits.Never
	}
	return res
}
