package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A single is a request for one limit, in one piece of memory.
type single struct {
	request
	form    form
	members [1]member
	n       [1]int64
	results [1]limits.Result
}

// take takes n from one limit. It panics if n < 0.
func (s *Store) take(ctx context.Context, m member, n int64) (limits.Result, error) {
	r, err := s.ask(ctx, m, n)
	if err != nil {
		return limits.Result{}, err
	}
	return r.results[0], nil
}

func (s *Store) ask(ctx context.Context, m member, n int64) (*single, error) {
	mustNotBeNegative(n)
	r := new(single)
	return r, s.askIn(ctx, r, m, n)
}

// askIn is ask, with the request in r.
func (s *Store) askIn(ctx context.Context, r *single, m member, n int64) error {
	r.members[0], r.n[0] = m, n
	r.form = form{members: r.members[:], kinds: m.kind()}
	r.request = request{form: &r.form, n: r.n[:], results: r.results[:]}
	return s.takes.do(ctx, *m.about(), &r.request)
}

// eachRun calls f with runs of equal requests.
func eachRun(requests []*request, f func(run []*request)) {
	equal := func(a, b *request) bool {
		for i, n := range a.n {
			if n != b.n[i] {
				return false
			}
		}
		return true
	}
	for len(requests) > 0 {
		i := 1
		for i < len(requests) && equal(requests[0], requests[i]) {
			i++
		}
		f(requests[:i])
		requests = requests[i:]
	}
}

// decided reports whether the script decides requests like r. The answer to the others is
// known, but for what each of several limits would say.
func (f *form) decided(r *request) bool {
	return !r.nothing() && (len(f.members) > 1 || r.ever())
}

// call returns the call that takes what requests ask for, and how many numbers of its
// reply say when a sliding window will have room.
func (f *form) call(s *Store, requests []*request) (call Call, whens int) {
	if f.kinds == bucketKind && len(f.members) == 1 {
		return f.callBucket(requests), 0
	}
	name, sliding := s.unique(), 0
	for _, m := range f.members {
		call.Keys = append(call.Keys, m.about().key)
		call.Args = append(append(call.Args, m.kind().String()), m.args(name)...)
		if m.kind() == slidingKind {
			sliding++
		}
	}
	call.Script = takes[f.kinds]
	eachRun(requests, func(run []*request) {
		r := run[0]
		if !f.decided(r) {
			return
		}
		whens += sliding
		count := int64(len(run))
		if !r.ever() {
			count = 0 // only when the sliding windows will have room is asked
		}
		call.Args = append(call.Args, format(count))
		for i, m := range f.members {
			call.Args = append(call.Args, format(min(r.n[i], m.most())*m.unit()))
		}
	})
	return call, whens
}

func (f *form) callBucket(requests []*request) Call {
	m := f.members[0]
	args, runs := append(make([]string, 0, 5), m.args("")...), 0
	args = append(args, "0")
	eachRun(requests, func(run []*request) {
		if f.decided(run[0]) {
			runs++
			args = append(args, format(run[0].n[0]*m.unit()), format(int64(len(run))))
		}
	})
	args[2] = format(int64(runs))
	return Call{bucketTake, []string{m.about().key}, args}
}

// takeFromServer has requests for the same limits answered, in order, at one instant.
func takeFromServer(s *Store, ctx context.Context, _ spot, requests []*request) error {
	f := requests[0].form
	for _, m := range f.members {
		if err := s.tell(ctx, m); err != nil {
			return err
		}
	}
	sent := time.Now()
	call, whens := f.call(s, requests)
	reply, err := s.run(ctx, call.Script, call.Keys, call.Args)
	if err == nil {
		err = expect(call.Script, reply, 3+f.found()+whens)
	}
	if err != nil {
		return err
	}
	now, rest, clamped := reply[len(reply)-1], reply[2:], int64(0)
	states, units := make([]state, 0, 1), make([]int64, 1) // on the stack, if there is one
	if len(f.members) > 1 {
		units = make([]int64, len(f.members))
	}
	for _, m := range f.members {
		states = append(states, m.state(rest, now))
		clamped += rest[0]
		rest = rest[m.kind().found():]
	}
	granted := int64(0)
	eachRun(requests, func(run []*request) {
		if whens > 0 && f.decided(run[0]) {
			for _, state := range states {
				if w, ok := state.(*slidingState); ok {
					w.when, rest = rest[0], rest[1:]
				}
			}
		}
		for _, r := range run {
			r.now, r.sent = now, sent
			if r.decide(states); r.granted() && !r.nothing() {
				granted++
				for i, n := range r.n {
					units[i] += n
				}
			}
		}
	})
	for i, m := range f.members {
		s.keep(m, states[i], units[i], now)
	}
	s.stats.decisions.Add(uint64(len(requests)))
	s.stats.clamped.Add(uint64(clamped))
	if granted != reply[1] {
		return fmt.Errorf("sluiceredis: %s granted %d, which should be %d", call.Script.name, reply[1], granted)
	}
	return nil
}

// giveBack gives back what was taken for callers who had gone, the last first, so that
// the slots of those before it are at the tail then.
func giveBack(s *Store, _ spot, requests []*request) {
	for i := len(requests) - 1; i >= 0; i-- {
		r := requests[i]
		if !r.granted() {
			continue
		}
		all := make([]correction, len(r.n))
		for i, m := range r.form.members {
			all[i] = correction{member: m, delta: -r.n[i], age: time.Since(r.sent), end: r.end(i)}
		}
		s.adjust(context.Background(), all) // counted if it fails
	}
}

// # How are requests decided without a server?
//
// One limit after the other, and what was taken from some is given back if another
// refuses, at once and exactly. Meanwhile it is missing, so that another request may be
// refused that would have been granted; none is granted that should not be. While the
// server is away each limit follows its own policy.

// takeAlone has requests decided by a store that has no server.
func takeAlone(s *Store, _ spot, requests []*request) error { return s.takeApart(requests, nil) }

// takeAway has requests decided while their server is away.
func takeAway(s *Store, _ spot, requests []*request, away *outageError) error {
	closed := true
	for _, m := range requests[0].form.members {
		closed = closed && s.policy(m.about().away) == FailClosed
	}
	if closed {
		s.stats.refused.Add(uint64(len(requests)))
		return away
	}
	return s.takeApart(requests, away)
}

func (s *Store) takeApart(requests []*request, away *outageError) error {
	for i, r := range requests {
		if err := s.takeHere(r, away); err != nil {
			s.stats.refused.Add(uint64(len(requests) - i - 1))
			return err
		}
	}
	return nil
}

// takeHere decides one request in this process.
func (s *Store) takeHere(r *request, away *outageError) (err error) {
	r.sent = time.Now()
	if len(r.n) == 1 {
		var end int64
		r.results[0], end, _, err = s.decideHere(r.form.members[0], r.n[0], away)
		if r.judge(); away == nil && err == nil && r.granted() {
			r.ended(0, end)
		}
		return err
	}
	ends, by := make([]int64, len(r.n)), make([]member, len(r.n))
	defer func() {
		if err == nil && r.granted() {
			return
		}
		for i, m := range by {
			if m == nil || !r.results[i].Allowed() || r.n[i] == 0 {
				continue
			}
			s.takeBack(m, r.n[i], ends[i], away != nil)
			if err == nil { // what it holds without that
				r.results[i], _, _, err = s.decideHere(r.form.members[i], 0, away)
			}
		}
	}()
	for i, m := range r.form.members {
		if r.results[i], ends[i], by[i], err = s.decideHere(m, r.n[i], away); err != nil {
			r.by = i
			return err
		}
	}
	r.judge()
	if away == nil && r.granted() {
		for i, end := range ends {
			r.ended(i, end)
		}
	}
	return nil
}

// decideHere is what becomes of a request for n units of one limit, in this process. by
// is the limit or the share that has decided it, if any has.
func (s *Store) decideHere(m member, n int64, away *outageError) (res limits.Result, end int64, by member, err error) {
	a, most := m.about(), m.most()
	switch policy := s.policy(a.away); {
	case away == nil:
		by = m
	case policy == FailOpen:
		s.local().note(a.key, 0, m.counts()) // so that nothing of it is given back to the server
		s.stats.open.Add(1)
		return open(m, n), 0, nil, nil
	case policy == LocalShare:
		if by, err = s.shareOf(m, away); err != nil {
			s.stats.refused.Add(1)
			return res, 0, nil, err
		}
		s.stats.local.Add(1)
		if n > by.most() {
			if res = open(m, n); res.Allowed() {
				res = away.later(m.limit())
			}
			return res, 0, nil, nil
		}
	default:
		s.stats.refused.Add(1)
		return res, 0, nil, away
	}
	d := deciding{n: n, most: most}
	by.local(s.local(), d.decide)
	res, end = d.res, d.end
	if away != nil && n > 0 && res.Allowed() {
		s.local().note(a.key, n, m.counts())
	}
	return res, end, by, nil
}

// A deciding is a request for n of one limit, in one piece of memory.
type deciding struct {
	n, most int64
	res     limits.Result
	end     int64
}

func (d *deciding) decide(st state) (asked bool) {
	if d.res.RetryAfter = st.wait(d.n); d.res.RetryAfter == 0 && d.n > 0 {
		d.end = st.take(d.n)
	}
	d.res.Remaining, d.res.Limit, d.res.ResetAfter = st.holds()
	return d.n > 0 && d.n <= d.most
}

// takeBack gives back what decideHere has taken, to a share or to a limit of this
// process.
func (s *Store) takeBack(by member, n, end int64, shared bool) {
	if shared {
		s.local().unnote(by.about().key, n, 0)
	}
	var made int64
	by.local(s.local(), func(st state) bool {
		made, _ = st.add(-n, 0, end)
		return true
	})
	s.stats.refunded.Add(uint64(made))
	s.stats.stranded.Add(uint64(n - made))
}

// open is what becomes of a request for n by FailOpen.
func open(m member, n int64) limits.Result {
	res := limits.Result{Limit: m.limit()}
	if n > m.most() {
		res.RetryAfter = limits.Never
	}
	return res
}
