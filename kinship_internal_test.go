package sluice

import (
	"testing"
	"time"
)

// A first burst in which most calls of other children are throttled hides for long that later only those of one
// child are. Six in a row are improbable if it makes one call of five. They are not if it makes one of two, if they
// were in flight together, or if others are throttled in between; and a call that is throttled again before another one
// is accepted counts once.
func TestKinship_InARow(t *testing.T) {
	for name, c := range map[string]struct {
		others   int  // calls of other children that are accepted for each of the child
		together bool // the throttled calls of the child are in flight together
		between  bool // a call of another child is throttled between them
		again    bool // each is throttled again before another call is accepted
		want     int  // throttled calls of the child until its limit is its own, 0 if it never is
	}{
		"of five":  {others: 4, want: 6},
		"of two":   {others: 1, want: 0},
		"of fifty": {others: 49, want: 3},
		"together": {others: 4, together: true, want: 0},
		"between":  {others: 4, between: true, want: 0},
		"again":    {others: 4, again: true, want: 6},
		"alone":    {want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			tl, child, other := &tally{granted: 50}, &kinship{}, &kinship{}
			now := time.Second
			throttle := func(k *kinship, since time.Duration) bool {
				k.refuse(tl, now, since)
				own := k.own(tl)
				if !own {
					k.told++
					tl.refuse(now, since, false)
				}
				return own
			}
			throttle(child, 0)
			for range 50 { // of the first burst
				throttle(other, 0)
			}
			got := 0
			for i := 1; i <= 12 && got == 0; i++ {
				for range 24 { // of the child, all others in proportion
					child.grant()
					tl.grant(now + 1)
					for range c.others {
						tl.grant(now + 1)
					}
				}
				since := now
				if c.together {
					since = 0
				}
				now += time.Second
				if c.between {
					throttle(other, since)
				}
				own := throttle(child, since+1)
				if c.again && !own {
					now += time.Second
					own = throttle(child, now-1)
				}
				if own {
					got = i
				}
			}
			if got != c.want {
				t.Errorf("after %d throttled calls, want %d", got, c.want)
			}
		})
	}
}

// A wait of one child is asked about unless another child was just told about as long a one, and from then on
// unless it is much longer or the same child is throttled again next. Calls in flight together count once.
func TestKinship_Asks(t *testing.T) {
	tl, a, b := &tally{granted: 50}, &kinship{}, &kinship{}
	for i, c := range []struct {
		at, since, wait time.Duration // in seconds
		child           *kinship
		alone           bool // no other child has made a call
		accepted        time.Duration
		want            bool
	}{
		{at: 1, since: 0, wait: 600, child: a, alone: true},
		{at: 700, since: 699, wait: 600, child: a, want: true},
		{at: 702, since: 701, wait: 1, child: b},
		{at: 703, since: 702, wait: 60, child: a, want: true}, // b was told less
		{at: 704, since: 703, wait: 50, child: b},             // both
		{at: 1400, since: 1399, wait: 90, child: a, accepted: 1390},
		{at: 1401, since: 1399, wait: 90, child: a}, // in flight with it
		{at: 1500, since: 1499, wait: 90, child: a, accepted: 1495, want: true},
		{at: 1550, since: 1549, wait: 90, child: b, accepted: 1540},
		{at: 1600, since: 1599, wait: 3600, child: a, accepted: 1595, want: true}, // longer than any of both
	} {
		if c.accepted > 0 {
			tl.grant(c.accepted * time.Second)
		}
		now, since := c.at*time.Second, c.since*time.Second
		if got := c.child.asks(tl, now, since, c.wait*time.Second, !c.alone); got != c.want {
			t.Errorf("%d: asks: %v, want %v", i, got, c.want)
		}
		c.child.refuse(tl, now, since)
	}
}
