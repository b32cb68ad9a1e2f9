package sluiceredis

import (
	"fmt"
	"strings"
)

// A form is how the limits of a set are asked.
type form struct {
	members []member
	sign    string // what scripts are told of them: sets of which it is the same share calls
}

// formOf returns how limits are asked now.
func formOf(limits []joinable) *form {
	f := new(form)
	var sign strings.Builder
	for _, l := range limits {
		_, m := l.member()
		f.members = append(f.members, m)
		fmt.Fprintf(&sign, "%q %q %d %d ", m.keyName(), m.header(""), m.most(), m.unit())
	}
	f.sign = sign.String()
	return f
}

// form returns how the limits of t are asked now. To make it anew for each call would
// take longer than all else that is done here for one.
func (t *joint) form() *form {
	f := t.formed.Load()
	for i, l := range t.limits {
		if !l.current(f.members[i]) {
			f = formOf(t.limits)
			t.formed.Store(f)
			break
		}
	}
	return f
}

func (m *BucketLimiter) current(old member) bool {
	c, now := old.(*cell), m.leaky.quoted.Load().cell
	return c.capacity == now.capacity && c.interval == now.interval
}

func (m *SlidingLimiter) current(member) bool { return true }

func (m *FixedLimiter) current(member) bool { return true }

func (p *Pacer) current(old member) bool { return old.(*pace).interval == p.interval.Load() }
