package window

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// A snapshot is sealed as package internal/snapshot says, a Log's as a "log", a
// Counter's as a "counter".
type logState struct {
	Limit  int64         `json:"limit"`
	Window time.Duration `json:"window"`
	Taken  [][2]int64    `json:"taken"` // instants, and how many calls; oldest first
}

type counterState struct {
	Limit    int64         `json:"limit"`
	Window   time.Duration `json:"window,omitempty"`
	Calendar string        `json:"calendar,omitempty"`
	Location string        `json:"location,omitempty"`
	At       int64         `json:"at"` // when the window began or, with a calendar, an instant in it
	Used     int64         `json:"used"`
}

// Snapshot returns what the log remembers, as a small JSON object, for
// [Sliding.Restore] in another process. Calls in the window take about 25 bytes
// each, those of one instant together. Instants are noted as wall time.
func (l *Sliding) Snapshot() []byte {
	l.mu.Lock()
	t := time.Now()
	h := &l.history
	now := h.advance(t.Sub(l.epoch), l.rule.window)
	s := logState{Limit: l.rule.limit, Window: l.rule.window, Taken: make([][2]int64, h.n)}
	base := h.base
	for i := range h.n {
		r := h.run(i)
		s.Taken[i] = [2]int64{unix(t, now, r.at), r.end - base}
		base = r.end
	}
	l.mu.Unlock()
	return snapshot.Seal("log", s)
}

// Restore replaces what the log remembers by a snapshot, for a program that was
// restarted: what was taken before still counts, by the wall clock, and no
// second allowance is minted. Calls that left the window meanwhile are dropped,
// instants in the future, after the clock was put back, are now. From then on
// only the monotonic clock counts.
//
// It returns [limits.ErrSnapshot] or [limits.ErrOtherQuota], and changes nothing, if data
// is damaged, from another version or kind of limit, or if it was taken at
// another limit or window. Restore a log before it is used: what it admitted
// earlier would be forgotten.
func (l *Sliding) Restore(data []byte) error {
	s, err := snapshot.Open[logState](data, "log")
	if err != nil {
		return err
	}
	var sum int64
	last := int64(math.MinInt64)
	for _, run := range s.Taken {
		at, n := run[0], run[1]
		if at < last || n <= 0 || n > math.MaxInt64-sum {
			return snapshot.Impossible()
		}
		last, sum = at, sum+n
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if got := (rule{s.Limit, s.Window}); got != l.rule {
		return fmt.Errorf("%w: of %d per %v, not %d per %v", limits.ErrOtherQuota, got.limit, got.window, l.rule.limit, l.rule.window)
	}
	t := time.Now()
	h := history{}
	now := h.advance(max(t.Sub(l.epoch), l.history.last), l.rule.window)
	for _, run := range s.Taken {
		if age := snapshot.Age(t, run[0]); age < l.rule.window {
			h.note(now-age, l.rule.limit, run[1])
		}
	}
	l.history = h
	return nil
}

// Snapshot returns what the counter remembers, as a small JSON object, for
// [Fixed.Restore] in another process.
func (c *Fixed) Snapshot() []byte {
	c.mu.Lock()
	t := time.Now()
	now, wall := t.Sub(c.epoch), t.UnixNano()
	s := stateOf(c.quota)
	switch f := &c.state; {
	case f.over(now, wall, &c.quota):
		s.At = wall
	case c.quota.Calendar == 0:
		s.At, s.Used = unix(t, now, f.from), f.used
	default:
		s.At, s.Used = max(wall, f.start), f.used
	}
	c.mu.Unlock()
	return snapshot.Seal("counter", s)
}

// Restore replaces what the counter remembers by a snapshot, for a program that
// was restarted: what was used of the present window before still counts, by the
// wall clock, and no second allowance is minted. A window that is over by now
// does not count, one that has not begun yet, after the clock was put back,
// does: for as long as it is long at most.
//
// It returns [limits.ErrSnapshot] or [limits.ErrOtherQuota], and changes nothing, if data is
// damaged, from another version or kind of limit, or if it was taken at another
// limit or with other windows; locations are compared by name. Restore a counter
// before it is used: what it admitted earlier would be forgotten.
func (c *Fixed) Restore(data []byte) error {
	s, err := snapshot.Open[counterState](data, "counter")
	if err != nil {
		return err
	}
	if s.Used < 0 {
		return snapshot.Impossible()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	own := stateOf(c.quota)
	own.At, own.Used = s.At, s.Used
	if s != own {
		return fmt.Errorf("%w: of %v, not %v", limits.ErrOtherQuota, s, own)
	}
	t := time.Now()
	now := t.Sub(c.epoch)
	c.state = fixed{}
	if s.Used > 0 {
		c.state.begin(now, s.At, &c.quota)
		if c.quota.Calendar == 0 {
			c.state.from = now - snapshot.Age(t, s.At)
		}
		c.state.used = s.Used
	}
	return nil
}

// stateOf returns q as it is noted, with nothing used.
func stateOf(q Quota) counterState {
	s := counterState{Limit: q.Limit, Window: q.Window}
	if q.Calendar != 0 {
		s.Calendar, s.Location = q.Calendar.String(), q.Location.String() // of nil: UTC
	}
	return s
}

func (s counterState) String() string {
	if s.Calendar == "" {
		return fmt.Sprintf("%d per %v", s.Limit, s.Window)
	}
	return fmt.Sprintf("%d per %s in %s", s.Limit, s.Calendar, s.Location)
}

// unix returns the monotonic instant at as Unix time, t being now.
func unix(t time.Time, now, at time.Duration) int64 {
	return int64(sat.Sub(time.Duration(t.UnixNano()), sat.Sub(now, at)))
}
