package sluiceredis

import (
	"context"
	"time"
)

var adjust = strictScript("adjust", "instant", "slots", "leaky", "log", "fixed", "pacer", "kinds", "leaky_add", "log_add", "fixed_add", "pacer_add")

// A correction is a change of what a call took from one limit, and what became of
// it.
type correction struct {
	member member
	delta  int64         // units; negative: given back
	age    time.Duration // since the call was admitted
	end    int64         // 0, or of a pacer: when the slots of the call end, ns since 1970; of a bucket: when they may have leaked, µs; of a log: when it was admitted, µs

	add, arg int64
	done     bool  // it was this process's own affair
	err      error // why it was not made
}

// adjust makes corrections of limits of one tag in one script: all, but for those
// that cannot be, or none. It counts what was given back and what was not. What is
// given back must not be lost because its caller gave up: that ctx is done does
// not matter.
func (s *Store) adjust(ctx context.Context, all []correction) {
	name := s.unique()
	var keys, args, adds []string
	var asked []*correction
	for i := range all {
		c := &all[i]
		c.delta = max(c.delta, -c.member.most()) // more was never in one call
		c.age = min(max(0, c.age), time.Duration(longest))
		if c.delta, c.err = s.adjustHere(c.member, c.delta, c.age); c.delta == 0 {
			c.done = true
			continue
		}
		if c.add, c.arg, c.err = c.member.correction(c.delta, c.age, c.end); c.err != nil {
			continue
		}
		asked = append(asked, c)
		keys = append(keys, c.member.keyName())
		args = append(args, c.member.header(name)...)
		adds = append(adds, format(c.add), format(c.arg))
	}
	var reply []int64
	if len(asked) > 0 {
		var err error
		reply, err = s.run(context.WithoutCancel(ctx), adjust, keys, append(args, adds...))
		if err == nil {
			err = expect(adjust, reply, 2+len(asked))
		}
		for i, c := range asked {
			if err == nil && c.delta > 0 {
				c.member.keep(s, c.delta, reply[len(reply)-1])
			}
			if c.err = s.adjustAway(c.member, c.delta, c.age, err); err == nil {
				c.made(s, reply[1+i])
			}
		}
	}
	for i := range all {
		if c := &all[i]; c.delta < 0 && c.err != nil && !c.done {
			s.stats.stranded.Add(uint64(-c.delta))
		}
	}
}

// made notes that the script added so much.
func (c *correction) made(s *Store, added int64) {
	if c.delta > 0 {
		return
	}
	back := uint64(-c.delta)
	if added != -c.add {
		back = uint64(ceil(added, c.member.unit())) // a unit of which a part has leaked is back as well
	}
	if back == 0 {
		c.err = ErrStranded
		return
	}
	s.stats.refunded.Add(back)
	s.stats.stranded.Add(uint64(-c.delta) - back)
}

// adjustOne is adjust for one limit.
func (s *Store) adjustOne(ctx context.Context, m member, delta int64, age time.Duration) error {
	all := []correction{{member: m, delta: delta, age: age}}
	s.adjust(ctx, all)
	return all[0].err
}

// strand counts units that were too late to be given back.
func (s *Store) strand(units int64) error {
	s.stats.stranded.Add(uint64(units))
	return ErrStranded
}

// put takes units that were granted elsewhere, beyond the limit if need be.
func (s *Store) put(ctx context.Context, m member, units int64) error {
	args := append(m.header(s.unique()), format(units*m.unit()), "0")
	_, err := s.run(ctx, adjust, []string{m.keyName()}, args)
	return err
}

// settled counts what became of a correction by delta of which so much was made.
func (s *Store) settled(delta, made int64, err error) error {
	if delta > 0 {
		return err
	}
	s.stats.refunded.Add(uint64(made))
	s.stats.stranded.Add(uint64(-delta - made))
	if err == nil && made == 0 {
		return ErrStranded
	}
	return err
}
