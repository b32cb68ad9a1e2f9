package kinds

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kind"
)

// MostSliding is the largest limit of a sliding window.
const MostSliding = 100_000

// SlidingAtOnce is the number of units that one script takes from a sliding window at most. They
// keep the server from everything else for about 20 ms; 100,000 took it half a second
// where it was busy.
const SlidingAtOnce = 10_000

// A Sliding is a sliding window.
type Sliding struct {
	limit, window            int64 // µs
	tag, limitArg, windowArg string
}

// NewSliding returns a window of that many units. The numbers must be possible.
func NewSliding(limit int64, window time.Duration) *Sliding {
	return newSliding(limit, Microseconds(window))
}

func newSliding(limit, window int64) *Sliding {
	w := &Sliding{limit: limit, window: window, limitArg: Format(limit), windowArg: Format(window)}
	w.tag = w.limitArg + " " + w.windowArg
	return w
}

func (w *Sliding) Kind() Kind            { return SlidingKind }
func (w *Sliding) Tag() string           { return w.tag }
func (w *Sliding) Limit() int64          { return w.limit }
func (w *Sliding) Most() int64           { return min(w.limit, SlidingAtOnce) }
func (w *Sliding) AtOnce() int64         { return SlidingAtOnce }
func (w *Sliding) Each() int64           { return 1 }
func (w *Sliding) Cost(n int64) string   { return Format(n) }
func (w *Sliding) Counts() time.Duration { return w.length() }

func (w *Sliding) Args(args []string, name string) []string {
	return append(args, w.limitArg, w.windowArg, name)
}

// length returns the window, short enough to be added to others.
func (w *Sliding) length() time.Duration { return Micro(min(w.window, math.MaxInt64/4000)) }

func (w *Sliding) State(found []int64, now int64, _ *Room) State {
	return &slidingState{window: w, used: found[1], newest: found[2], now: now}
}

func (w *Sliding) Correction(delta int64, age time.Duration, end int64) (add, arg int64, err error) {
	if err := tooMany(delta); err != nil {
		return 0, 0, err
	}
	if end > 0 {
		return delta, -end, nil
	}
	return delta, int64(age / time.Microsecond), nil
}

func tooMany(delta int64) error {
	if delta > SlidingAtOnce {
		return fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, SlidingAtOnce)
	}
	return nil
}

func (w *Sliding) Share(m int64) Rule {
	if m < 1 || w.limit < m {
		return nil
	}
	return newSliding(w.limit/m, w.window)
}

// A slidingState is the number of units in a window, by a script's reply.
type slidingState struct {
	window            *Sliding
	used, newest, now int64
	when              int64 // the next request will fit, if it does not now
}

func (s *slidingState) SetWhen(when int64) { s.when = when }

func (s *slidingState) Wait(n int64) time.Duration {
	switch {
	case n > s.window.Most():
		return limits.Never
	case n == 0 || n <= s.window.limit-s.used:
		return 0
	}
	return Micro(s.when - s.now)
}

func (s *slidingState) Take(n int64) (end int64) {
	s.used, s.newest = s.used+n, s.now
	return s.now
}

func (s *slidingState) Holds() (remaining, limit int64, reset time.Duration) {
	if s.used > 0 {
		reset = Micro(s.newest + s.window.window - s.now)
	}
	return max(0, s.window.limit-s.used), s.window.limit, reset
}

// slidingUnits are the units in windows of one length, and the limits that count.
type slidingUnits struct {
	window int64 // µs
	units  kind.SlidingState
	limits []slidingLimit
}

// A slidingLimit counts until a time, since the clock began.
type slidingLimit struct {
	n     int64
	until time.Duration
}

// most returns the largest limit that counts.
func (u *slidingUnits) most() (n int64) {
	for _, l := range u.limits {
		n = max(n, l.n)
	}
	return n
}

// rule returns the algorithm of u, for a limit.
func (u *slidingUnits) rule(n int64) kind.Sliding {
	return kind.Sliding{Limit: n, Window: Micro(min(u.window, math.MaxInt64/1000))}
}

func (u *slidingUnits) used(now time.Duration) int64 {
	return MostSliding - u.rule(MostSliding).Take(&u.units, now, 0).Remaining
}

func (u *slidingUnits) add(now time.Duration, delta int64, age time.Duration) {
	u.rule(MostSliding).Adjust(&u.units, now, delta, age)
}

// A SlidingHeld is the state of a key in a process: for each window that it is asked by
// the same units. As in lua/sliding.lua, each must have room for the admitted units.
type SlidingHeld struct {
	all []*slidingUnits // the first is for the window that it was asked by last

	window *Sliding
	own    *slidingUnits   // all[0]
	others []*slidingUnits // all[1:]
	now    time.Duration
	stamp  int64 // the server's clock, µs
}

func (w *Sliding) Open(old Held, now time.Duration, c *Clock) Held {
	h, _ := old.(*SlidingHeld)
	if h == nil {
		h = new(SlidingHeld)
	}
	h.all = slices.DeleteFunc(h.all, func(u *slidingUnits) bool {
		u.limits = slices.DeleteFunc(u.limits, func(l slidingLimit) bool { return l.until <= now })
		return u.window != w.window && len(u.limits) == 0
	})
	own := slices.IndexFunc(h.all, func(u *slidingUnits) bool { return u.window == w.window })
	if own < 0 {
		own = len(h.all)
		h.all = append(h.all, &slidingUnits{window: w.window})
	}
	h.all[0], h.all[own] = h.all[own], h.all[0]
	h.window, h.own, h.others, h.now, h.stamp = w, h.all[0], h.all[1:], now, c.Server()
	return h
}

func (h *SlidingHeld) Close(bool) (keep bool) {
	return len(h.own.limits) > 0 || h.own.units.Len() > 0 // else it was only looked at
}

func (h *SlidingHeld) Until() (until time.Duration) {
	for _, u := range h.all {
		for _, l := range u.limits {
			until = max(until, l.until)
		}
	}
	return until
}

// note notes that the limit is asked for. A new window begins with the state of the others, as if
// it had been admitted now.
func (h *SlidingHeld) note() {
	w, own := h.window, h.own
	length := w.length()
	if slices.ContainsFunc(own.limits, func(l slidingLimit) bool { return l.n == w.limit && l.until >= h.now+length }) {
		return
	}
	if len(own.limits) == 0 {
		most := int64(0)
		for _, o := range h.others {
			most = max(most, o.used(h.now))
		}
		if more := most - own.used(h.now); more > 0 {
			own.add(h.now, more, 0)
		}
	}
	own.limits = slices.DeleteFunc(own.limits, func(l slidingLimit) bool { return l.n == w.limit })
	own.limits = append(own.limits, slidingLimit{w.limit, h.now + length + length/4})
}

func (h *SlidingHeld) Wait(n int64) (wait time.Duration) {
	switch {
	case n > h.window.Most():
		return limits.Never
	case n == 0:
		return 0
	}
	h.note()
	fits := func(u *slidingUnits, limit int64) {
		if n > limit-u.used(h.now) {
			retry := u.rule(limit).Take(&u.units, h.now, n).RetryAfter
			if retry == limits.Never { // until that limit no longer applies
				retry = Micro(u.window)
			}
			wait = max(wait, retry)
		}
	}
	fits(h.own, h.window.limit)
	for _, o := range h.others {
		fits(o, o.most())
	}
	return wait
}

func (h *SlidingHeld) Take(n int64) (end int64) {
	_, _ = h.Add(n, 0, 0)
	return h.stamp
}

func (h *SlidingHeld) Add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	if err := tooMany(delta); err != nil {
		return 0, err
	}
	if delta < 0 && int64(age/time.Microsecond) >= h.window.window {
		return 0, nil
	}
	if delta > 0 {
		h.note()
	}
	h.addToAll(delta, age)
	return max(delta, -delta), nil
}

func (h *SlidingHeld) addToAll(delta int64, age time.Duration) {
	for _, u := range h.all {
		u.add(h.now, delta, age)
	}
}

func (h *SlidingHeld) Holds() (remaining, limit int64, reset time.Duration) {
	res := h.own.rule(h.window.limit).Take(&h.own.units, h.now, 0)
	for _, o := range h.others {
		if other := o.rule(o.most()).Take(&o.units, h.now, 0); other.Remaining < res.Remaining {
			res = other
		}
	}
	return res.Remaining, h.window.limit, res.ResetAfter
}

func (h *SlidingHeld) Follow(found State, granted, m int64) {
	mine, n := h.own.used(h.now), h.window.limit
	want := min(mine+granted, n)
	if whole, ok := found.(*slidingState); ok {
		want = max(want, min(Ceil(whole.used, m), n))
	}
	if want > mine {
		h.note()
		h.addToAll(want-mine, 0)
	}
}

func (h *SlidingHeld) Owes(units, _ int64) (held, add int64) {
	held = min(units, h.own.used(h.now))
	return held, held
}

func (h *SlidingHeld) Reset() { *h = SlidingHeld{} }
