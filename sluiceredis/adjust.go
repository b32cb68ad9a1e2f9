package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A correction is a change of the units a call took from one limit, and its outcome.
type correction struct {
	spot
	delta int64         // units; negative: returned
	age   time.Duration // since the call was admitted
	end   int64         // value that the state returned for the call, or 0

	add, arg int64
	done     bool  // it was this process's own affair
	err      error // why it was not made
}

// adjust makes corrections of limits of one tag in one script: all, but for those that cannot be,
// or none. It counts the units that were returned and those that were not. Returned units must not
// be lost because its caller gave up: that ctx is done does not matter.
func (s *Store) adjust(ctx context.Context, all []correction) {
	name, kind := s.unique(), kinds.Kind(0)
	var keys, args, tail []string
	var asked []*correction
	for i := range all {
		c := &all[i]
		c.delta = max(c.delta, -c.Most()) // more was never in one call
		c.age = min(max(0, c.age), time.Duration(kinds.Longest))
		if c.delta, c.err = s.adjustHere(c.spot, c.delta, c.age, c.end); c.delta == 0 {
			c.done = true
			continue
		}
		if c.add, c.arg, c.err = c.Correction(c.delta, c.age, c.end); c.err != nil {
			continue
		}
		kind |= c.Kind()
		asked = append(asked, c)
		keys = append(keys, c.key)
		args = c.Args(append(args, c.Kind().String()), name)
		tail = append(tail, format(c.add), format(c.arg))
	}
	if len(asked) > 0 {
		reply, err := s.run(context.WithoutCancel(ctx), adds[kind], keys, append(args, tail...))
		if err == nil {
			err = expect(adds[kind], reply, 2+len(asked))
		}
		for i, c := range asked {
			if err == nil && c.delta > 0 {
				s.keep(c.spot, nil, c.delta, reply[len(reply)-1])
			}
			if c.err = s.adjustAway(c.spot, c.delta, c.age, err); err == nil {
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
		back = uint64(kinds.Ceil(added, c.Each())) // a unit of which a part has leaked is back as well
	}
	if back == 0 {
		c.err = errStranded
		return
	}
	s.stats.refunded.Add(back)
	s.stats.stranded.Add(uint64(-c.delta) - back)
}

// strand counts units that were too late to be returned.
func (s *Store) strand(units int64) error {
	s.stats.stranded.Add(uint64(units))
	return errStranded
}
