package schedule

import "time"

// # How is a slot given back after others have left?
//
// A call that took a slot and cannot use it after all, because of another schedule, gives it
// back a moment later. If it is the last call, the next one may leave in its place. If others
// have left since, they may have waited for it. With T = 10 ms, a call that took the slot at
// 0, and others that came at 1 and 2 ms:
//
//	slots       0   10   20   30
//	taken by    –    b    c
//
// Without it b and c would have been charged at 0 and 10, and the next slot would be 20. So
// that is what GiveBack does: it charges b and c an interval earlier, as if we had woken them
// that late. It gives back no more than the catch-up allows after the lateness that they had
// already, so the bound of the package holds. What follows is made up for at twice the rate,
// like any lateness.
//
// If there was a gap between the calls, those after it did not wait for the slot. It was not
// used in time, and is lost. So is one that comes back much later than the catch-up allows.

// A streak is the calls that were charged T apart, up to the last one, in two parts. When the
// second has lasted for the catch-up, the first is forgotten.
type streak struct {
	from, middle time.Duration // when the first call of each part was charged
	late, later  time.Duration // how late a call of each part left, at most
}

// follow notes a call that leaves at now and is charged at charged. Without a gap, that is tat.
func (s *streak) follow(now, charged, tat, catchUp time.Duration) {
	switch {
	case charged > tat:
		*s = streak{from: charged, middle: charged}
	case charged-s.middle > catchUp:
		*s = streak{from: s.middle, middle: charged, late: s.later}
	}
	s.later = max(s.later, now-charged)
}

// GiveBack gives back the slot of a call of cost 1 that was charged at the instant at, when
// T was t, and has not left. There must have been no burst and no warm-up.
func (s *Schedule) GiveBack(at, t time.Duration) {
	switch {
	case s.last == at:
		s.Adjust(-1)
		return
	case at < s.streak.from, s.tau > 0: // a burst since then makes up for it
		return
	}
	if t = min(t, s.catchUp-max(s.streak.late, s.streak.later)); t <= 0 {
		return
	}
	repay := s.last - max(s.grain, DefaultGrain) // as Admit does, had the last call been late
	if s.credit > 0 {
		repay = max(repay, s.repay)
	}
	s.credit, s.repay = s.credit+t, repay
	s.streak.late += t
	s.streak.later += t
	s.last -= t
	s.tat, s.rem = s.owed()
}
