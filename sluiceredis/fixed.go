package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

// FixedConfig says how a [Fixed] counts.
type FixedConfig struct {
	Limit  int64         // at least 1, at most 10^15
	Window time.Duration // positive, at most 104 days; rounded up to a microsecond

	// Aligned windows begin at multiples of Window since 1970, in UTC, Offset
	// later: a Window of 24 hours is a day. Others begin with the first call
	// after the one before is over.
	Aligned bool

	// Offset moves aligned windows. With −2 hours a day begins at midnight of
	// UTC+2; with 4 days a Window of 168 hours begins on Mondays.
	Offset time.Duration
}

// A Fixed admits at most limit in each of its windows, for each key, on all
// machines together. Windows follow one another and do not slide, so up to twice
// the limit can pass within a moment around the edge of two: that is what a fixed
// window is. If the other side counts by the same edges it is right; otherwise
// use a [Sliding].
//
// Only the server's clock counts. If that is put back the window in force stays,
// for as long as one window at most; nothing is granted twice.
//
// A Fixed is safe for use by multiple goroutines.
type Fixed struct {
	store *Store
	name  string
	at    fixedWindow // without a key
}

// mostInFixed is the largest limit of a fixed window, and of a semaphore: a script
// counts with 16 digits.
const mostInFixed = 1_000_000_000_000_000

// Fixed returns the fixed windows called name. It returns an error if name is
// empty or cfg is not possible. The same name with another limit means the same
// windows: what was used stays used.
//
// Window and Offset may be changed machine by machine, too. While machines ask by
// different ones, each kind of window has a count of its own, in which the calls of
// all machines count, and a call is admitted only if it fits into all that are not
// over. So no machine is given more than either configuration allows, and a window
// that no machine uses any more counts until its end.
func (s *Store) Fixed(name string, cfg FixedConfig) (*Fixed, error) {
	if err := checkWindow(name, cfg.Limit, cfg.Window, mostInFixed); err != nil {
		return nil, err
	}
	switch {
	case cfg.Window > time.Duration(longest):
		return nil, fmt.Errorf("sluiceredis: window of %v: at most 104 days", cfg.Window)
	case !cfg.Aligned && cfg.Offset != 0:
		return nil, fmt.Errorf("sluiceredis: an offset of %v needs aligned windows", cfg.Offset)
	}
	w := fixedWindow{n: cfg.Limit, window: microseconds(cfg.Window), offset: -1}
	if cfg.Aligned {
		w.offset = int64(cfg.Offset/time.Microsecond) % w.window
		if w.offset < 0 {
			w.offset += w.window
		}
	}
	w.tag = format(w.n) + " " + format(w.window) + " " + format(w.offset)
	return &Fixed{s, name, w}, nil
}

// OnOutage returns the same windows with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (f *Fixed) OnOutage(p OutagePolicy) *Fixed {
	also := *f
	also.at.away = f.store.heed(p)
	return &also
}

func (f *Fixed) member(key string) member {
	w := f.at
	w.key = f.store.key("fixed1", f.name, key, "")
	return &w
}

func (f *Fixed) current(member) bool { return true }

// Take takes n from the window of key if n fit now. Otherwise it changes nothing, and
// the result says when they will fit. n = 0 changes nothing and is always allowed; an n
// larger than the limit never is, and Err of the result is then [limits.ErrTooLarge].
// Errors are those of [Bucket.Take]. It panics if n < 0.
func (f *Fixed) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return f.store.take(ctx, f.member(key), n)
}

// On returns the window of key as a limit of a gate, or for sluice.NewQueue. Its Adjust
// gives back what still counts: what was admitted in this window.
// If nothing is left to be given back, its error is [ErrStranded]. It can be joined with
// limits of the same store whose names are the same up to the last slash and whose keys
// are the same, such as "orders/second" and "orders/day"; the key of a [Pacer] is "".
func (f *Fixed) On(key string) limits.Remote { return f.on(key) }

func (f *Fixed) on(key string) *limiter { return &limiter{f.store, f, key} }

// microseconds returns d in those, rounded up: a window is never too short.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond != 0 {
		us++
	}
	return us
}

// checkWindow returns an error unless a window of so many can be.
func checkWindow(name string, limit int64, window time.Duration, most int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	switch {
	case limit <= 0:
		return fmt.Errorf("sluiceredis: limit of %d: it must be positive", limit)
	case limit > most:
		return fmt.Errorf("sluiceredis: limit of %d: at most %d", limit, most)
	case window <= 0:
		return fmt.Errorf("sluiceredis: window of %v: it must be positive", window)
	}
	return nil
}

// A fixedWindow is a fixed window as it is asked.
type fixedWindow struct {
	spot
	n, window, offset int64 // the limit; µs; an offset of −1 means anchored
}

func (w *fixedWindow) kind() limitKind       { return fixedKind }
func (w *fixedWindow) limit() int64          { return w.n }
func (w *fixedWindow) most() int64           { return w.n }
func (w *fixedWindow) unit() int64           { return 1 }
func (w *fixedWindow) counts() time.Duration { return micro(w.window) }

func (w *fixedWindow) args(string) []string {
	return []string{format(w.n), format(w.window), format(w.offset)}
}

func (w *fixedWindow) state(found []int64, now int64) state {
	return &fixedState{window: w, used: found[1], left: micro(found[2]), now: now}
}

func (w *fixedWindow) correction(delta int64, age time.Duration, _ int64) (add, arg int64, err error) {
	return min(delta, mostInFixed), microseconds(age), nil
}

func (w *fixedWindow) share(m int64) member {
	if m < 1 || w.n < m {
		return nil
	}
	share := *w
	share.n /= m
	return &share
}

// A fixedState is how much of a window is used, and when it is over. In this process it
// has the windows, too.
type fixedState struct {
	window *fixedWindow
	used   int64
	left   time.Duration
	now    int64 // the clock that windows begin and end by, µs

	held []fixedHeld // its own, and those of other lengths and offsets; or nil
}

func (s *fixedState) rule() kind.Fixed { return kind.Fixed{Limit: s.window.n} }

func (s *fixedState) wait(n int64) time.Duration {
	_, res := s.rule().Decide(s.used, s.left, n)
	return res.RetryAfter
}

func (s *fixedState) take(n int64) (end int64) {
	s.used += n
	s.count(n, 0)
	return 0
}

func (s *fixedState) holds() (remaining, limit int64, reset time.Duration) {
	_, res := s.rule().Decide(s.used, s.left, 0)
	return res.Remaining, res.Limit, res.ResetAfter
}

// count counts so many units more in the windows of this process, or fewer that were
// admitted at an instant at the earliest, where that is true.
func (s *fixedState) count(units, admitted int64) {
	for i := range s.held {
		if h := &s.held[i]; units > 0 || admitted >= h.start {
			h.used = min(max(0, h.used+units), mostInFixed)
		}
	}
}

func (s *fixedState) add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	before := s.held[0].used
	s.count(min(delta, mostInFixed), s.now-microseconds(age))
	return max(s.held[0].used-before, before-s.held[0].used), nil
}

func (s *fixedState) follow(found state, granted, m int64) {
	h, n := &s.held[0], s.window.n
	if whole, ok := found.(*fixedState); ok {
		// The window of the server, or what is left of another that holds this one
		// up, which may be less: a share is never shorter than it was.
		if start := whole.now + int64(whole.left/time.Microsecond) - s.window.window; start > h.start || h.used == 0 {
			if start != h.start {
				h.used = 0
			}
			h.start = start
		}
		h.used = max(h.used, min(h.used+granted, n), min(ceil(whole.used, m), n))
		return
	}
	h.used = max(h.used, min(h.used+granted, n))
}

func (s *fixedState) owes(units, _ int64) (held, add int64) {
	held = min(units, s.held[0].used)
	return held, held
}

// A fixedHeld is a window in this process, as lua/fixed.lua keeps it.
type fixedHeld struct {
	start, used    int64 // µs since 1970, units
	window, offset int64 // of what kind it is
	limit          int64 // the largest that it was asked by
}

// begins returns the start of a window of that kind that would begin now.
func (h *fixedHeld) begins(clock int64) int64 {
	if h.offset < 0 {
		return clock
	}
	return clock - (clock-h.offset)%h.window
}

// inForce repairs h at that instant, and reports whether it is not over.
func (h *fixedHeld) inForce(clock int64) bool {
	// A clock that was put back does not bring the allowance back, and shuts
	// nobody out for longer than a window; of aligned ones the next may have begun.
	start := h.begins(clock)
	ahead := start
	if h.offset >= 0 {
		ahead += h.window
	}
	if h.start > ahead {
		h.start = start
	}
	return clock < h.start+h.window
}

func (w *fixedWindow) local(m *memory, decide func(state) (asked bool)) {
	m.update(w.key, func(e *entry, now time.Duration) {
		clock := m.clock()
		if w.offset >= 0 {
			clock = m.calendar()
		}
		old, _ := e.value.(*[]fixedHeld)
		held := []fixedHeld{{window: w.window, offset: w.offset}}
		own := &held[0]
		own.start = own.begins(clock)
		known := false
		if old != nil {
			for _, h := range *old {
				switch ok := h.inForce(clock); {
				case !ok:
				case h.window == w.window && h.offset == w.offset:
					held[0], known = h, true
				default:
					held = append(held, h)
				}
			}
		}
		own = &held[0]
		for _, h := range held[1:] { // whose units are in this one, too
			if !known && h.start >= own.start {
				own.used = max(own.used, h.used)
			}
		}
		// The own window is as full as leaves the room that the others have.
		st := fixedState{window: w, used: own.used, left: micro(own.start + own.window - clock), now: clock, held: held}
		for _, h := range held[1:] {
			if room := h.limit - h.used; w.n-st.used > room {
				st.used, st.left = w.n-room, micro(h.start+h.window-clock)
			}
		}
		before := *own
		asked := decide(&st)
		// A call that only looks never writes. A window that was refused because of others
		// holds those up, too, while it is asked for.
		if *own == before && !(asked && len(held) > 1) {
			return
		}
		own.limit = max(own.limit, w.n)
		last := int64(0)
		for _, h := range held {
			last = max(last, h.start+h.window)
		}
		e.value, e.until = &held, now+micro(last-clock)
	})
}
