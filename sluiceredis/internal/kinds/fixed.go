package kinds

import (
	"time"

	"github.com/sluice-go/sluice/limits"
)

// MostFixed is the largest limit of a fixed window, and of a semaphore: a script
// counts with 16 digits.
const MostFixed = 1_000_000_000_000_000

// A Fixed is a fixed window.
type Fixed struct {
	limit, window, offset int64 // µs; an offset of −1 means anchored
	tag                   string
	args                  [3]string
}

// NewFixed returns a window of that many units; an aligned one begins at multiples of
// window since 1970, offset later. The numbers must be possible.
func NewFixed(limit int64, window time.Duration, aligned bool, offset time.Duration) *Fixed {
	us, off := Microseconds(window), int64(-1)
	if aligned {
		off = (int64(offset/time.Microsecond)%us + us) % us
	}
	return newFixed(limit, us, off)
}

func newFixed(limit, window, offset int64) *Fixed {
	w := &Fixed{limit: limit, window: window, offset: offset, args: [3]string{Format(limit), Format(window), Format(offset)}}
	w.tag = w.args[0] + " " + w.args[1] + " " + w.args[2]
	return w
}

func (w *Fixed) Kind() Kind            { return FixedKind }
func (w *Fixed) Tag() string           { return w.tag }
func (w *Fixed) Limit() int64          { return w.limit }
func (w *Fixed) Most() int64           { return w.limit }
func (w *Fixed) AtOnce() int64         { return unlimited }
func (w *Fixed) Each() int64           { return 1 }
func (w *Fixed) Cost(n int64) string   { return Format(n) }
func (w *Fixed) Counts() time.Duration { return Micro(w.window) }

func (w *Fixed) Args(args []string, _ string) []string { return append(args, w.args[:]...) }

func (w *Fixed) State(found []int64, now int64, _ *Room) State {
	return &FixedState{window: w, Used: found[1], Left: Micro(found[2]), now: now}
}

func (w *Fixed) Correction(delta int64, age time.Duration, _ int64) (add, arg int64, err error) {
	return min(delta, MostFixed), Microseconds(age), nil
}

func (w *Fixed) Share(m int64) Rule {
	if m < 1 || w.limit < m {
		return nil
	}
	return newFixed(w.limit/m, w.window, w.offset)
}

// A FixedState is the used part of a window, and when it ends.
type FixedState struct {
	window *Fixed
	Used   int64
	Left   time.Duration
	now    int64 // the clock that windows begin and end by, µs
}

func (s *FixedState) Wait(n int64) time.Duration {
	switch limit := s.window.limit; {
	case n == 0:
		return 0
	case n > limit:
		return limits.Never
	case s.Used > limit-n:
		return min(s.Left, limits.Never-1)
	}
	return 0
}

func (s *FixedState) Take(n int64) (end int64) {
	s.Used += n
	return 0
}

func (s *FixedState) Holds() (remaining, limit int64, reset time.Duration) {
	if s.Used > 0 {
		reset = s.Left
	}
	return max(0, s.window.limit-s.Used), s.window.limit, reset
}

// A fixedUnits is a window of a process, as lua/fixed.lua keeps it.
type fixedUnits struct {
	start, used    int64 // µs since 1970, units
	window, offset int64 // its kind
	limit          int64 // the largest that it was asked by
}

// begins returns the start of a window of that kind that would begin now.
func (u *fixedUnits) begins(clock int64) int64 {
	if u.offset < 0 {
		return clock
	}
	return clock - (clock-u.offset)%u.window
}

// inForce repairs u at that time, and reports whether it has not ended.
func (u *fixedUnits) inForce(clock int64) bool {
	// A clock that was put back does not bring the allowance back, and prolongs the
	// window by no more than its length. Of aligned windows the next may have begun.
	start := u.begins(clock)
	ahead := start
	if u.offset >= 0 {
		ahead += u.window
	}
	if u.start > ahead {
		u.start = start
	}
	return clock < u.start+u.window
}

// A FixedHeld is the state of a key in a process: its own window, and those of other
// lengths and offsets.
type FixedHeld struct {
	FixedState
	units  []fixedUnits // its own is the first
	kept   []fixedUnits // the last kept state, because nothing is kept of a call that only looks
	one    [2][1]fixedUnits
	before fixedUnits // its own, when it was opened
	at     time.Duration
	until  time.Duration
}

func (w *Fixed) Open(old Held, now time.Duration, c *Clock) Held {
	clock := c.Server()
	if w.offset >= 0 {
		clock = c.Calendar()
	}
	h, _ := old.(*FixedHeld)
	if h == nil {
		h = new(FixedHeld)
	}
	if h.units == nil {
		h.units, h.kept = h.one[0][:0], h.one[1][:0]
	}
	h.FixedState, h.at = FixedState{window: w, now: clock}, now
	first := fixedUnits{window: w.window, offset: w.offset}
	first.start = first.begins(clock)
	h.units = append(h.units[:0], first)
	known := false
	for _, u := range h.kept {
		switch ok := u.inForce(clock); {
		case !ok:
		case u.window == w.window && u.offset == w.offset:
			h.units[0], known = u, true
		default:
			h.units = append(h.units, u)
		}
	}
	own := &h.units[0]
	for _, u := range h.units[1:] { // whose units are in this one, too
		if !known && u.start >= own.start {
			own.used = max(own.used, u.used)
		}
	}
	h.before = *own
	// The own window is as full as leaves the room that the others have.
	h.Used, h.Left = own.used, Micro(own.start+own.window-clock)
	for _, u := range h.units[1:] {
		if room := u.limit - u.used; w.limit-h.Used > room {
			h.Used, h.Left = w.limit-room, Micro(u.start+u.window-clock)
		}
	}
	return h
}

// Close keeps nothing of a call that only looks. A window that was rejected because of
// others delays those as well, while it is asked for.
func (h *FixedHeld) Close(asked bool) (keep bool) {
	own := &h.units[0]
	if *own == h.before && !(asked && len(h.units) > 1) {
		return false
	}
	own.limit = max(own.limit, h.window.limit)
	last := int64(0)
	for _, u := range h.units {
		last = max(last, u.start+u.window)
	}
	h.until = h.at + Micro(last-h.now)
	h.units, h.kept = h.kept, h.units
	return true
}

func (h *FixedHeld) Until() time.Duration { return h.until }

func (h *FixedHeld) Take(n int64) (end int64) {
	h.Used += n
	h.count(n, 0)
	return 0
}

// count counts so many units more in all windows, or fewer that were admitted at a time at the
// earliest, where that is true.
func (h *FixedHeld) count(units, admitted int64) {
	for i := range h.units {
		if u := &h.units[i]; units > 0 || admitted >= u.start {
			u.used = min(max(0, u.used+units), MostFixed)
		}
	}
}

func (h *FixedHeld) Add(delta int64, age time.Duration, _ int64) (made int64, err error) {
	before := h.units[0].used
	h.count(min(delta, MostFixed), h.now-Microseconds(age))
	return max(h.units[0].used-before, before-h.units[0].used), nil
}

func (h *FixedHeld) Follow(found State, granted, m int64) {
	own, n := &h.units[0], h.window.limit
	if whole, ok := found.(*FixedState); ok {
		// The window of the server, or the rest of another that delays this one, which may be
		// less: a share is never shorter than it was.
		if start := whole.now + int64(whole.Left/time.Microsecond) - h.window.window; start > own.start || own.used == 0 {
			if start != own.start {
				own.used = 0
			}
			own.start = start
		}
		own.used = max(own.used, min(own.used+granted, n), min(Ceil(whole.Used, m), n))
		return
	}
	own.used = max(own.used, min(own.used+granted, n))
}

func (h *FixedHeld) Owes(units, _ int64) (held, add int64) {
	held = min(units, h.units[0].used)
	return held, held
}

func (h *FixedHeld) Reset() { *h = FixedHeld{} }
