package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # Seconds or milliseconds?
//
// Some servers state a reset in milliseconds, in a field in which others have seconds. Believed, a window of a
// minute lasts for 17 hours, and calls fail instead of waiting. But the reset of a window comes nearer by a
// second in each second, and one in milliseconds by a thousand:
//
//	after     0 s      0.3 s    0.6 s
//	reset     60000    59700    59400    300 "seconds" in 0.3 s: milliseconds
//
// Nothing else does that: the reset of a bucket, or of another window, moves away. Twice in a row, by as much as
// the time between two responses allows, is proof; and once it falls otherwise in a window, it is seconds again.
type thousandth struct {
	at     time.Time     // when a response came
	left   time.Duration // until the reset, as it said
	times  int           // in a row that it has come nearer a thousand times as fast as it should
	proven bool
}

const (
	thousands = 2                      // times are proof
	leastSpan = 200 * time.Millisecond // between two responses, which may overtake each other by mostOvertaking
)

// note notes l in a response at now, and corrects its reset if that is in milliseconds. It reports whether that is
// news, either way.
func (u *thousandth) note(l *ratelimit.Limit, now time.Time) (news bool) {
	left := l.ResetAt.Sub(now)
	span, fell, before := now.Sub(u.at), u.left-left, u.proven
	switch {
	case u.at.IsZero(), fell < -1000*mostOvertaking, u.proven && span > u.left/1000-mostOvertaking: // another window
		u.at, u.left = now, left
	case span >= leastSpan:
		u.at, u.left = now, left
		if off := fell - 1000*span; off.Abs() > 1000*mostOvertaking {
			u.times, u.proven = 0, false
		} else if u.times++; u.times >= thousands {
			u.proven = true
		}
	}
	if u.proven {
		l.ResetAt, l.Rounding = now.Add(left/1000), l.Rounding/1000
	}
	return u.proven != before
}
