package sluiceredis

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # What must be known of a kind of limit?
//
// A script reads what a limit holds, decides how many of the requests that arrive
// together are granted, and replies what it found. Which requests those are, and what
// each answer says, is computed here from that, for each request in turn. Without a
// server, and for a local share, the same is computed from what this process holds. For
// both, each kind of limit is a member and its state, in one file; its part of the
// scripts is in one file of lua.

// A member is one limit at one key.
type member interface {
	// about returns the key, and how the limit is asked.
	about() *spot
	kind() limitKind

	// args returns what a script wants to know to read the limit. A sliding window
	// needs a name that no other call has.
	args(name string) []string

	// limit returns how many units a result says there are; most how many one request
	// may take, and unit what scripts count for one.
	limit() int64
	most() int64
	unit() int64

	// counts returns how long what was granted counts at most.
	counts() time.Duration

	// state returns what a script found, at the server's clock.
	state(found []int64, now int64) state

	// correction returns what a script is to add for delta ≥ −most units of a call
	// that was admitted age ago, and what else it wants to know; end is what the state
	// said of the call, or 0. It returns an error if delta is too large, or
	// [ErrStranded] if it is too late.
	correction(delta int64, age time.Duration, end int64) (add, arg int64, err error)

	// share returns the share of one of m instances, or nil if there is none.
	share(m int64) member

	// local has decide look at, and change, what this process holds of the limit.
	// decide returns whether anything was asked for: if not, nothing is written.
	local(m *memory, decide func(state) (asked bool))
}

// A spot is the key of a limit and how it is asked: requests of which it is the same can share a call.
type spot struct {
	key  string // in Redis
	tag  string // the numbers of the limit
	away OutagePolicy
}

func (a *spot) about() *spot { return a }

// A state is what a limit holds while requests are decided, one after the other.
type state interface {
	// wait returns 0 if n fit now, limits.Never if they never do, and otherwise
	// how long until they will.
	wait(n int64) time.Duration

	// take takes n that fit, and returns what correction wants to know to give
	// exactly these back, or 0.
	take(n int64) (end int64)

	// add takes units without asking, or gives back −delta of a call that was
	// admitted age ago. It returns how many units that were.
	add(delta int64, age time.Duration, end int64) (made int64, err error)

	// holds returns how many units are left of how many, and how long until all
	// are.
	holds() (remaining, limit int64, reset time.Duration)

	// follow brings a share of one of m up to date with what the server has granted
	// this process and, if found is not nil, with what it holds then.
	follow(found state, granted, m int64)

	// owes returns how many of so many units that a share of one of m has granted it
	// still holds, and what a script is to add for them.
	owes(units, m int64) (held, add int64)
}

// A request is for n[i] units of each limit of a form, of all or of none, and what was
// answered.
type request struct {
	form *form
	n    []int64

	// results are what the limits say: of a request that was granted what each
	// alone would have said; of another whether this limit would have granted it, and
	// what it holds. The limit of a pacer is how many calls of 1 may leave at once
	// after idleness.
	results []limits.Result

	// by is the limit that refuses, −1 if none does. If several do it is the first
	// that never grants so many or, if there is none, the one that refuses longest.
	by int

	now  int64     // the server's clock, µs since 1970
	sent time.Time // when the script was, or a little earlier
	ends []int64   // what each state said of what was taken; nil: nothing
}

// A form is the limits that requests are for.
type form struct {
	members []member
	kinds   limitKind
}

// A signed is a form of several limits with its sign, which is that of the first with
// all others in its tag: requests for forms of the same sign share calls.
type signed struct {
	form
	sign spot
}

func newForm(members ...member) *signed {
	f := &signed{form{members: members}, *members[0].about()}
	for i, m := range members {
		f.kinds |= m.kind()
		if a := m.about(); i > 0 {
			f.sign.tag += fmt.Sprintf(" %q %q %d", a.key, a.tag, a.away)
		}
	}
	return f
}

// found returns how many numbers a script replies of what the limits hold.
func (f *form) found() (numbers int) {
	for _, m := range f.members {
		numbers += m.kind().found()
	}
	return numbers
}

// granted reports whether all limits let the request through.
func (r *request) granted() bool { return r.by < 0 }

// nothing reports whether r asks for that.
func (r *request) nothing() bool {
	for _, n := range r.n {
		if n > 0 {
			return false
		}
	}
	return true
}

// ever reports whether what r asks for can fit.
func (r *request) ever() bool {
	for i, m := range r.form.members {
		if r.n[i] > m.most() {
			return false
		}
	}
	return true
}

// sliding returns how many units r asks of sliding windows.
func (r *request) sliding() (units int64) {
	if r.form.kinds&slidingKind == 0 {
		return 0
	}
	for i, m := range r.form.members {
		if m.kind() == slidingKind && r.n[i] <= m.most() {
			units += r.n[i]
		}
	}
	return units
}

// decide is what becomes of r at limits that hold states.
func (r *request) decide(states []state) {
	for i, s := range states {
		r.results[i].RetryAfter = s.wait(r.n[i])
	}
	r.judge()
	for i, s := range states {
		if r.granted() && r.n[i] > 0 {
			r.ended(i, s.take(r.n[i]))
		}
		res := &r.results[i]
		res.Remaining, res.Limit, res.ResetAfter = s.holds()
	}
}

// judge says which limit refuses by these results.
func (r *request) judge() {
	worst := time.Duration(0)
	r.by = -1
	for i, res := range r.results {
		if res.RetryAfter > worst {
			worst, r.by = res.RetryAfter, i
		}
	}
}

func (r *request) ended(i int, end int64) {
	if end != 0 {
		if r.ends == nil {
			r.ends = make([]int64, len(r.n))
		}
		r.ends[i] = end
	}
}

// end returns what the state of limit i said of what was taken.
func (r *request) end(i int) int64 {
	if r.ends == nil {
		return 0
	}
	return r.ends[i]
}
