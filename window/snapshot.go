package window

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// Snapshots are sealed by package internal/snapshot, as "sliding" and "fixed".
type slidingState struct {
	Limit  int64         `json:"limit"`
	Window time.Duration `json:"window"`
	Taken  [][2]int64    `json:"taken"` // times, and the number of units; oldest first
}

type fixedState struct {
	Limit    int64         `json:"limit"`
	Window   time.Duration `json:"window,omitempty"`
	Calendar string        `json:"calendar,omitempty"`
	Location string        `json:"location,omitempty"`
	At       int64         `json:"at"` // when the window began or, with a calendar, a time in it
	Used     int64         `json:"used"`
}

// Snapshot returns the units in the window, as a JSON object, for [Counter.Restore] in another
// process: of a sliding window about 25 bytes for each call. Times are wall time.
func (c *Counter) Snapshot() []byte {
	c.lock()
	kind, state := c.units.snapshot()
	c.mu.Unlock()
	return snapshot.Seal(kind, state)
}

// Restore replaces the units in the window by a snapshot, by the wall clock. Units that have left
// the window since, or whose window has ended, are dropped. After the clock was put back they may
// lie in the future: calls in a sliding window then become now, and a fixed window applies for at
// most its own length. Restore a Counter before it is used: units allowed earlier would be
// discarded.
//
// Restore returns [limits.ErrSnapshot], and changes nothing, if data is damaged, from another version
// or kind of limit, or of another quota; locations are compared by name.
func (c *Counter) Restore(data []byte) error {
	c.mustBeMade()
	restore, err := c.units.open(data)
	if err != nil {
		return err
	}
	c.lock()
	defer c.mu.Unlock()
	return restore()
}

func (l *sliding) snapshot() (string, any) {
	t := time.Now()
	now := l.rule.Advance(&l.state, t.Sub(l.epoch))
	s := slidingState{Limit: l.rule.Limit, Window: l.rule.Window, Taken: make([][2]int64, 0, l.state.Len())}
	for at, n := range l.state.All() {
		s.Taken = append(s.Taken, [2]int64{unix(t, now, at), n})
	}
	return "sliding", s
}

func (l *sliding) open(data []byte) (func() error, error) {
	s, err := snapshot.Open[slidingState](data, "sliding")
	if err != nil {
		return nil, err
	}
	var sum int64
	last := int64(math.MinInt64)
	for _, run := range s.Taken {
		at, n := run[0], run[1]
		if at < last || n <= 0 || n > math.MaxInt64-sum {
			return nil, snapshot.Impossible()
		}
		last, sum = at, sum+n
	}
	return func() error { return l.restore(s) }, nil
}

func (l *sliding) restore(s slidingState) error {
	if s.Limit != l.rule.Limit || s.Window != l.rule.Window {
		return fmt.Errorf("%w: quota of %d per %v, not %d per %v", limits.ErrSnapshot, s.Limit, s.Window, l.rule.Limit, l.rule.Window)
	}
	t := time.Now()
	now := l.rule.Advance(&l.state, t.Sub(l.epoch)) // not before times already seen
	l.state = kind.SlidingState{}
	l.rule.Advance(&l.state, now)
	for _, run := range s.Taken {
		if age := snapshot.Age(t, run[0]); age < l.rule.Window {
			l.rule.Record(&l.state, now-age, run[1])
		}
	}
	return nil
}

func (f *fixed) snapshot() (string, any) {
	t := time.Now()
	now, wall := t.Sub(f.epoch), t.UnixNano()
	s := stateOf(f.quota)
	switch {
	case f.rule.Over(&f.state, now, wall):
		s.At = wall
	case f.quota.Per == "":
		s.At, s.Used = unix(t, now, f.state.From), f.state.Used
	default:
		s.At, s.Used = max(wall, f.state.Start), f.state.Used
	}
	return "fixed", s
}

func (f *fixed) open(data []byte) (func() error, error) {
	s, err := snapshot.Open[fixedState](data, "fixed")
	if err != nil {
		return nil, err
	}
	if s.Used < 0 {
		return nil, snapshot.Impossible()
	}
	return func() error { return f.restore(s) }, nil
}

func (f *fixed) restore(s fixedState) error {
	own := stateOf(f.quota)
	own.At, own.Used = s.At, s.Used
	if s != own {
		return fmt.Errorf("%w: quota of %v, not %v", limits.ErrSnapshot, s, own)
	}
	t := time.Now()
	now := t.Sub(f.epoch)
	f.state = kind.FixedState{}
	if s.Used > 0 {
		f.rule.Begin(&f.state, now, s.At)
		if f.quota.Per == "" {
			f.state.From = now - snapshot.Age(t, s.At)
		}
		f.state.Used = s.Used
	}
	return nil
}

// stateOf returns q as it is noted, with nothing used.
func stateOf(q Quota) fixedState {
	s := fixedState{Limit: q.Limit, Window: q.Window}
	if q.Per != "" {
		s.Calendar, s.Location = string(q.Per), q.Location.String() // of nil: UTC
	}
	return s
}

func (s fixedState) String() string {
	if s.Calendar == "" {
		return fmt.Sprintf("%d per %v", s.Limit, s.Window)
	}
	return fmt.Sprintf("%d per %s in %s", s.Limit, s.Calendar, s.Location)
}

// unix returns the monotonic time at as Unix time, t being now.
func unix(t time.Time, now, at time.Duration) int64 {
	return int64(sat.Sub(time.Duration(t.UnixNano()), sat.Sub(now, at)))
}
