package sluiceredis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

// mostInLog is the largest limit of a log.
const mostInLog = 100_000

// mostAtOnce is how many units one script takes from a log at most. They keep the
// server from everything else for some 20 ms; 100,000 took it half a second where it
// was busy.
const mostAtOnce = 10_000

// A Sliding admits at most limit units in any window, for each key, on all machines
// together. It is exact: in every window of that length, from t up to but not including
// t + window, at most limit were admitted, by the server's clock.
//
// It notes each unit it admits, which takes about 100 bytes and 2 µs of the server: a
// limit of 20,000 takes 2 MB for each key that uses it up. One call takes at most 10,000
// units; beyond that use a [Fixed] or a [Bucket]. A refused call is not noted and does
// not prolong the wait.
//
// Limit and window may be changed machine by machine. While machines use different
// windows for one key, each admits only what all of them allow; with the same window the
// largest limit counts. A machine's numbers count until no machine has used them for one
// to one and a quarter of its windows.
//
// A Sliding is safe for use by multiple goroutines.
type Sliding struct {
	store *Store
	name  string
	at    slidingWindow // without a key
}

// Sliding returns the sliding windows called name. It returns an error if name is
// empty, limit or window is not positive, or limit is more than 100,000. A window is
// rounded up to a microsecond. The same name with another limit or window means the
// same windows: what was admitted stays.
func (s *Store) Sliding(name string, limit int64, window time.Duration) (*Sliding, error) {
	if err := checkWindow(name, limit, window, mostInLog); err != nil {
		return nil, err
	}
	return &Sliding{s, name, newSlidingWindow(limit, microseconds(window))}, nil
}

// OnOutage returns the same windows with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (l *Sliding) OnOutage(p OutagePolicy) *Sliding {
	also := *l
	also.at.away = l.store.heed(p)
	return &also
}

func (l *Sliding) member(key string) member {
	w := l.at
	w.key = l.store.key("log1", l.name, key, "")
	return &w
}

func (l *Sliding) current(member) bool { return true }

// Take takes n from the window of key if n fit now. Otherwise it changes nothing, and
// the result says when they will fit. n = 0 changes nothing and is always allowed; an n
// larger than the limit, or than 10,000, never is, and Err of the result is then
// [limits.ErrTooLarge]. Errors are those of [Bucket.Take]. It panics if n < 0.
func (l *Sliding) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return l.store.take(ctx, l.member(key), n)
}

// On returns the window of key as a limit of a gate, or for sluice.NewQueue. Its Adjust
// gives back what still counts: the newest units that are as old as age.
// If nothing is left to be given back, its error is [ErrStranded]. It can be joined with
// limits of the same store whose names are the same up to the last slash and whose keys
// are the same, such as "orders/second" and "orders/day"; the key of a [Pacer] is "".
func (l *Sliding) On(key string) limits.Remote { return l.on(key) }

func (l *Sliding) on(key string) *limiter { return &limiter{l.store, l, key} }

// A slidingWindow is a sliding window as it is asked.
type slidingWindow struct {
	spot
	n, window int64 // the limit; µs
}

func newSlidingWindow(n, window int64) slidingWindow {
	return slidingWindow{spot{tag: format(n) + " " + format(window)}, n, window}
}

func (w *slidingWindow) kind() limitKind       { return slidingKind }
func (w *slidingWindow) limit() int64          { return w.n }
func (w *slidingWindow) most() int64           { return min(w.n, mostAtOnce) }
func (w *slidingWindow) unit() int64           { return 1 }
func (w *slidingWindow) counts() time.Duration { return w.length() }

func (w *slidingWindow) args(name string) []string {
	return []string{format(w.n), format(w.window), name}
}

// length returns the window, short enough to be added to others.
func (w *slidingWindow) length() time.Duration { return micro(min(w.window, math.MaxInt64/4000)) }

func (w *slidingWindow) state(found []int64, now int64) state {
	return &slidingState{window: w, used: found[1], newest: found[2], now: now}
}

func (w *slidingWindow) correction(delta int64, age time.Duration, end int64) (add, arg int64, err error) {
	if delta > mostAtOnce {
		return 0, 0, fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, mostAtOnce)
	}
	if end > 0 {
		return delta, -end, nil
	}
	return delta, int64(age / time.Microsecond), nil
}

func (w *slidingWindow) share(m int64) member {
	if m < 1 || w.n < m {
		return nil
	}
	share := *w
	share.n /= m
	return &share
}

// A slidingState is how many units are in a window, by a script's reply.
type slidingState struct {
	window            *slidingWindow
	used, newest, now int64
	when              int64 // the next request will fit, if it does not now
}

func (s *slidingState) wait(n int64) time.Duration {
	switch {
	case n > s.window.most():
		return limits.Never
	case n == 0 || n <= s.window.n-s.used:
		return 0
	}
	return micro(s.when - s.now)
}

func (s *slidingState) take(n int64) (end int64) {
	if n == 0 {
		return 0
	}
	s.used, s.newest = s.used+n, s.now
	return s.now
}

func (s *slidingState) holds() (remaining, limit int64, reset time.Duration) {
	if s.used > 0 {
		reset = micro(s.newest + s.window.window - s.now)
	}
	return max(0, s.window.n-s.used), s.window.n, reset
}

// Nothing is added to what the server holds but by a script, and it is no share.
func (s *slidingState) add(int64, time.Duration, int64) (int64, error) { return 0, ErrStranded }
func (s *slidingState) follow(state, int64, int64)                     {}
func (s *slidingState) owes(int64, int64) (held, add int64)            { return 0, 0 }

// slidings are what this process holds of a key: for each window that it is asked by
// the same units, and the limits that count. As in lua/sliding.lua, each must have room
// for what is admitted.
type slidings struct{ windows []*slidingHeld }

type slidingHeld struct {
	window int64 // µs
	units  kind.SlidingState
	limits []slidingLimit
}

// A slidingLimit counts until an instant, since the memory was made.
type slidingLimit struct {
	n     int64
	until time.Duration
}

// most returns the largest limit that counts.
func (h *slidingHeld) most() (n int64) {
	for _, l := range h.limits {
		n = max(n, l.n)
	}
	return n
}

// rule returns the rule of h, for a limit.
func (h *slidingHeld) rule(n int64) kind.Sliding {
	return kind.Sliding{Limit: n, Window: micro(min(h.window, math.MaxInt64/1000))}
}

func (h *slidingHeld) used(now time.Duration) int64 {
	return mostInLog - h.rule(mostInLog).Take(&h.units, now, 0).Remaining
}

func (h *slidingHeld) add(now time.Duration, delta int64, age time.Duration) {
	h.rule(mostInLog).Adjust(&h.units, now, delta, age)
}

func (w *slidingWindow) local(m *memory, decide func(state) (asked bool)) {
	m.update(w.key, func(e *entry, now time.Duration) {
		all, _ := e.value.(*slidings)
		if all == nil {
			all = new(slidings)
		}
		st := slidingLocal{window: w, now: now, stamp: m.clock()}
		for _, h := range all.windows {
			h.limits = slices.DeleteFunc(h.limits, func(l slidingLimit) bool { return l.until <= now })
			switch {
			case h.window == w.window:
				st.own = h
			case len(h.limits) > 0:
				st.others = append(st.others, h)
			}
		}
		if st.own == nil {
			st.own = &slidingHeld{window: w.window}
		}
		decide(&st)
		if len(st.own.limits) == 0 && st.own.units.Len() == 0 {
			return // it was only looked at
		}
		all.windows = append(st.others, st.own)
		e.value, e.until = all, 0
		for _, h := range all.windows {
			for _, l := range h.limits {
				e.until = max(e.until, l.until)
			}
		}
	})
}

// A slidingLocal is what this process holds of a window.
type slidingLocal struct {
	window *slidingWindow
	own    *slidingHeld
	others []*slidingHeld
	now    time.Duration
	stamp  int64 // the clock of the memory, µs
}

// note notes that the limit is asked for. A window that is new begins with what others
// hold, as if it had been admitted now.
func (s *slidingLocal) note() {
	w, h := s.window, s.own
	length := w.length()
	if slices.ContainsFunc(h.limits, func(l slidingLimit) bool { return l.n == w.n && l.until >= s.now+length }) {
		return
	}
	if len(h.limits) == 0 {
		most := int64(0)
		for _, o := range s.others {
			most = max(most, o.used(s.now))
		}
		if more := most - h.used(s.now); more > 0 {
			h.add(s.now, more, 0)
		}
	}
	h.limits = slices.DeleteFunc(h.limits, func(l slidingLimit) bool { return l.n == w.n })
	h.limits = append(h.limits, slidingLimit{w.n, s.now + length + length/4})
}

func (s *slidingLocal) wait(n int64) (wait time.Duration) {
	switch {
	case n > s.window.most():
		return limits.Never
	case n == 0:
		return 0
	}
	s.note()
	fits := func(h *slidingHeld, limit int64) {
		if n > limit-h.used(s.now) {
			retry := h.rule(limit).Take(&h.units, s.now, n).RetryAfter
			if retry == limits.Never { // until that limit does not count any more
				retry = micro(h.window)
			}
			wait = max(wait, retry)
		}
	}
	fits(s.own, s.window.n)
	for _, o := range s.others {
		fits(o, o.most())
	}
	return wait
}

func (s *slidingLocal) take(n int64) (end int64) {
	if n == 0 {
		return 0
	}
	_, _ = s.add(n, 0, 0)
	return s.stamp
}

func (s *slidingLocal) add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	if delta > mostAtOnce {
		return 0, fmt.Errorf("sluiceredis: a correction by %d: at most %d", delta, mostAtOnce)
	}
	if delta < 0 && int64(age/time.Microsecond) >= s.window.window {
		return 0, nil
	}
	if delta > 0 {
		s.note()
	}
	for _, h := range append(slices.Clip(s.others), s.own) {
		h.add(s.now, delta, age)
	}
	return max(delta, -delta), nil
}

func (s *slidingLocal) holds() (remaining, limit int64, reset time.Duration) {
	res := s.own.rule(s.window.n).Take(&s.own.units, s.now, 0)
	for _, o := range s.others {
		if other := o.rule(o.most()).Take(&o.units, s.now, 0); other.Remaining < res.Remaining {
			res = other
		}
	}
	return res.Remaining, s.window.n, res.ResetAfter
}

func (s *slidingLocal) follow(found state, granted, m int64) {
	mine, n := s.own.used(s.now), s.window.n
	want := min(mine+granted, n)
	if whole, ok := found.(*slidingState); ok {
		want = max(want, min(ceil(whole.used, m), n))
	}
	if want > mine {
		s.note()
		for _, h := range append(slices.Clip(s.others), s.own) {
			h.add(s.now, want-mine, 0)
		}
	}
}

func (s *slidingLocal) owes(units, _ int64) (held, add int64) {
	held = min(units, s.own.used(s.now))
	return held, held
}
