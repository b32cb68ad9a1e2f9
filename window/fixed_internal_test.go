package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

const sec = time.Second

// A clock is a wall clock that is set at times, and the monotonic one.
type clock struct {
	now  time.Duration
	wall time.Time
}

func (c *clock) pass(d time.Duration) { c.now += d; c.wall = c.wall.Add(d) }
func (c *clock) set(d time.Duration)  { c.wall = c.wall.Add(d) }

// fixedModel is a limit of fixed windows that is slow and obvious: all grants in a slice,
// recounted, the days made by time.Date.
type fixedModel struct {
	q      *Quota
	window *modelWindow
	all    []*modelWindow
	grants []grant
}

type modelWindow struct {
	from       time.Duration
	start, end time.Time // with a calendar
}

type grant struct {
	n      int64
	at     time.Duration
	window *modelWindow
}

// edges uses time.Date and is right where midnight exists, once, and clocks
// change by whole hours.
func edges(c Calendar, t time.Time) (start, end time.Time) {
	y, m, d := t.Date()
	midnight := func(m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, t.Location()) }
	switch c {
	case Minute:
		start = t.Add(-time.Duration(t.Second())*sec - time.Duration(t.Nanosecond()))
		return start, start.Add(time.Minute)
	case Hour:
		start = t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*sec - time.Duration(t.Nanosecond()))
		return start, start.Add(time.Hour)
	case Day:
		return midnight(m, d), midnight(m, d+1)
	case Week:
		for midnight(m, d).Weekday() != time.Monday {
			d--
		}
		return midnight(m, d), midnight(m, d+7)
	}
	return midnight(m, 1), midnight(m+1, 1)
}

func (m *fixedModel) over(c clock) bool {
	w := m.window
	switch {
	case w == nil:
		return true
	case m.q.Calendar == 0:
		return m.used(c) == 0 || c.now-w.from >= m.q.Window
	case !c.wall.Before(w.end):
		return true
	}
	return c.wall.Before(w.start) && c.now-w.from >= w.end.Sub(w.start)
}

func (m *fixedModel) used(c clock) (sum int64) {
	for _, g := range m.grants {
		if g.window == m.window {
			sum += g.n
		}
	}
	return sum
}

// left is the first of the instants at which anything can end at which it has.
func (m *fixedModel) left(c clock) time.Duration {
	w := m.window
	if m.q.Calendar == 0 {
		return w.from + m.q.Window - c.now
	}
	byWall, byLength := w.end.Sub(c.wall), w.from+w.end.Sub(w.start)-c.now
	if byLength < byWall && byLength >= 0 {
		if then := (clock{c.now + byLength, c.wall.Add(byLength)}); m.over(then) {
			return byLength
		}
	}
	return byWall
}

func (m *fixedModel) add(c clock, n int64) {
	if m.over(c) {
		m.window = &modelWindow{from: c.now}
		if m.q.Calendar != 0 {
			m.window.start, m.window.end = edges(m.q.Calendar, c.wall)
		}
		m.all = append(m.all, m.window)
	}
	m.grants = append(m.grants, grant{n, c.now, m.window})
}

func (m *fixedModel) take(c clock, limit, n int64) limits.Result {
	res := limits.Result{Limit: limit}
	used := int64(0)
	if !m.over(c) {
		used = m.used(c)
	}
	switch {
	case n > limit:
		res.RetryAfter = limits.Never
	case n == 0:
	case used+n > limit:
		res.RetryAfter = min(m.left(c), limits.Never-1)
	default:
		m.add(c, n)
		used += n
	}
	res.Remaining = max(0, limit-used)
	if used > 0 {
		res.ResetAfter = m.left(c)
	}
	return res
}

// giveBack takes n off the newest grants of the window, if it was in force age
// ago already.
func (m *fixedModel) giveBack(c clock, n int64, age time.Duration) {
	if m.over(c) || m.window.from > c.now-age {
		return
	}
	for i := len(m.grants) - 1; i >= 0 && m.grants[i].window == m.window; i-- {
		back := min(n, m.grants[i].n)
		m.grants[i].n -= back
		n -= back
	}
}

// FuzzFixed runs a random history, in which the clock is set at times, against a
// rule and its model and compares every answer. As long as the clock was not set, no day has more than the limit.
func FuzzFixed(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 3, 0, 2, 4, 3, 0, 1, 4, 9, 0, 3})
	f.Add([]byte{3, 1, 2, 7, 0, 3, 4, 8, 0, 3, 4, 8, 0, 3, 4, 9, 0, 3}) // days of Berlin in spring
	f.Add([]byte{3, 2, 1, 9, 0, 3, 5, 8, 0, 1, 4, 7, 0, 1, 5, 3, 0, 2, 4, 8, 0, 3})
	f.Add([]byte{5, 3, 3, 1, 0, 2, 6, 12, 0, 1, 4, 10, 0, 1, 2, 1, 3, 8, 0, 1, 7, 0})
	zones := []*time.Location{time.UTC, mustLoad(f, "Europe/Berlin"), mustLoad(f, "America/New_York"), mustLoad(f, "Asia/Kolkata")}
	begins := []time.Time{
		time.Date(2024, 5, 2, 12, 0, 0, 0, time.UTC),
		time.Date(2024, 3, 30, 21, 59, 59, 999999999, time.UTC),
		time.Date(2024, 10, 27, 0, 30, 0, 0, time.UTC),
		time.Date(2024, 12, 31, 23, 59, 0, 1, time.UTC),
	}
	times := []time.Duration{
		0, 1, sec, 59 * sec, time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour,
		11*time.Hour + 59*time.Minute, 24 * time.Hour, 25 * time.Hour, 7 * 24 * time.Hour, 40 * 24 * time.Hour, 400 * 24 * time.Hour,
	}
	limits := []int64{3, 1, 5, 100}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 300 {
			t.Skip("long enough")
		}
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		q := &Quota{Calendar: Calendar(next(6))}
		if q.Calendar == 0 {
			q.Window = 10 * time.Minute
		}
		q.Location = zones[next(len(zones))]
		limit := limits[next(len(limits))]
		c := clock{wall: begins[next(len(begins))].In(q.Location)}
		q.Limit = limit
		rule, err := q.fixed()
		if err != nil {
			t.Skip(err)
		}
		var s kind.FixedState
		m := fixedModel{q: q}
		perDay := map[time.Time]int64{}
		for honest := true; len(data) > 0; {
			op := next(8)
			name := fmt.Sprintf("%v, limit %d, %v: op %d", q, limit, c.wall, op)
			wall := c.wall.UnixNano()
			switch op {
			case 0, 1:
				n := int64(next(5))
				got, want := rule.Take(&s, c.now, wall, n), m.take(c, limit, n)
				if got != want {
					t.Fatalf("%s: take %d: %+v, model says %+v", name, n, got, want)
				}
				if honest && got.Allowed() && q.Calendar != 0 {
					start, _ := edges(q.Calendar, c.wall)
					if perDay[start] += n; perDay[start] > limit {
						t.Fatalf("%s: %d since %v", name, perDay[start], start)
					}
				}
			case 2:
				n := int64(next(5))
				age := times[next(len(times))]
				if i := len(m.grants) - 1 - next(10); age > sec && i >= 0 { // its own
					g := m.grants[i]
					n, age = min(n, g.n), c.now-g.at
					if q.Calendar != 0 && g.window == m.window && !m.over(c) {
						start, _ := edges(q.Calendar, c.wall)
						perDay[start] -= n
					}
				} else {
					honest = honest && n == 0
				}
				rule.Adjust(&s, c.now, wall, -n, age)
				m.giveBack(c, n, age)
			case 3:
				n := int64(next(9))
				rule.Adjust(&s, c.now, wall, n, 0)
				if n > 0 {
					m.add(c, n)
				}
			case 4:
				c.pass(times[next(len(times))])
			case 5:
				c.set(-times[next(len(times))])
				honest = false
			case 6:
				c.set(times[next(len(times))])
				honest = false
			case 7:
				limit = limits[next(len(limits))]
				rule.Limit = limit
				honest = false
			}
			if got, want := rule.Take(&s, c.now, c.wall.UnixNano(), 0), m.take(c, limit, 0); got != want {
				t.Fatalf("%s: peek %+v, model says %+v", name, got, want)
			}
		}
		for i, w := range m.all { // whatever the clocks: a length apart, or the wall clock has passed an edge
			if i > 0 && q.Calendar == 0 && w.from-m.all[i-1].from < q.Window && !emptied(&m, m.all[i-1]) {
				t.Fatalf("windows begin at %v and %v", m.all[i-1].from, w.from)
			}
		}
	})
}

// emptied reports whether all grants of w were given back.
func emptied(m *fixedModel, w *modelWindow) bool {
	var sum int64
	for _, g := range m.grants {
		if g.window == w {
			sum += g.n
		}
	}
	return sum == 0
}
