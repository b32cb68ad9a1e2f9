package window

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/testkit/built"
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

// fixedModel is a limit of fixed windows that is slow and obvious: all admits in a slice,
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
	case m.q.Per == "":
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

// left is the first of the time at which anything can end at which it has.
func (m *fixedModel) left(c clock) time.Duration {
	w := m.window
	if m.q.Per == "" {
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
		if m.q.Per != "" {
			m.window.start, m.window.end = edges(m.q.Per, c.wall)
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

// giveBack takes n off the newest admits of the window, if it was in force age
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
		q := &Quota{Per: []Calendar{"", Minute, Hour, Day, Week, Month}[next(6)]}
		if q.Per == "" {
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
				if honest && got.Allowed() && q.Per != "" {
					start, _ := edges(q.Per, c.wall)
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
					if q.Per != "" && g.window == m.window && !m.over(c) {
						start, _ := edges(q.Per, c.wall)
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
			if i > 0 && q.Per == "" && w.from-m.all[i-1].from < q.Window && !emptied(&m, m.all[i-1]) {
				t.Fatalf("windows begin at %v and %v", m.all[i-1].from, w.from)
			}
		}
	})
}

// emptied reports whether all admits of w were returned.
func emptied(m *fixedModel, w *modelWindow) bool {
	var sum int64
	for _, g := range m.grants {
		if g.window == w {
			sum += g.n
		}
	}
	return sum == 0
}

// # Calendars

func mustLoad(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestCalendar_Bounds(t *testing.T) {
	const zoned = "2006-01-02 15:04:05 -0700"
	for _, c := range []struct {
		zone       string
		calendar   Calendar
		at         string
		start, end string
	}{
		{"UTC", Minute, "2024-02-29 23:59:59 +0000", "2024-02-29 23:59:00 +0000", "2024-03-01 00:00:00 +0000"},
		{"UTC", Hour, "2024-02-29 23:00:00 +0000", "2024-02-29 23:00:00 +0000", "2024-03-01 00:00:00 +0000"},
		{"UTC", Day, "1969-12-31 23:59:59 +0000", "1969-12-31 00:00:00 +0000", "1970-01-01 00:00:00 +0000"},
		{"UTC", Minute, "1969-12-31 23:59:59 +0000", "1969-12-31 23:59:00 +0000", "1970-01-01 00:00:00 +0000"},
		{"UTC", Week, "2024-01-01 00:00:00 +0000", "2024-01-01 00:00:00 +0000", "2024-01-08 00:00:00 +0000"}, // a Monday
		{"UTC", Week, "2023-12-31 23:59:59 +0000", "2023-12-25 00:00:00 +0000", "2024-01-01 00:00:00 +0000"}, // a Sunday
		{"UTC", Month, "2024-12-31 12:00:00 +0000", "2024-12-01 00:00:00 +0000", "2025-01-01 00:00:00 +0000"},
		{"UTC", Month, "2024-01-31 12:00:00 +0000", "2024-01-01 00:00:00 +0000", "2024-02-01 00:00:00 +0000"},

		// The same time is another day elsewhere.
		{"Asia/Kolkata", Day, "2024-05-05 18:30:00 +0000", "2024-05-06 00:00:00 +0530", "2024-05-07 00:00:00 +0530"},
		{"Asia/Kolkata", Hour, "2024-05-06 10:59:59 +0530", "2024-05-06 10:00:00 +0530", "2024-05-06 11:00:00 +0530"},
		{"Pacific/Kiritimati", Day, "2024-05-05 10:00:00 +0000", "2024-05-06 00:00:00 +1400", "2024-05-07 00:00:00 +1400"},

		// 23 and 25 hours.
		{"Europe/Berlin", Day, "2024-03-31 12:00:00 +0200", "2024-03-31 00:00:00 +0100", "2024-04-01 00:00:00 +0200"},
		{"Europe/Berlin", Day, "2024-10-27 12:00:00 +0100", "2024-10-27 00:00:00 +0200", "2024-10-28 00:00:00 +0100"},
		{"Europe/Berlin", Week, "2024-10-27 12:00:00 +0100", "2024-10-21 00:00:00 +0200", "2024-10-28 00:00:00 +0100"},
		{"Europe/Berlin", Month, "2024-10-31 12:00:00 +0100", "2024-10-01 00:00:00 +0200", "2024-11-01 00:00:00 +0100"},
		{"Europe/Berlin", Hour, "2024-10-27 02:30:00 +0200", "2024-10-27 02:00:00 +0200", "2024-10-27 02:00:00 +0100"}, // struck twice: two windows
		{"Europe/Berlin", Hour, "2024-10-27 02:30:00 +0100", "2024-10-27 02:00:00 +0100", "2024-10-27 03:00:00 +0100"},
		{"Europe/Berlin", Hour, "2024-03-31 01:30:00 +0100", "2024-03-31 01:00:00 +0100", "2024-03-31 03:00:00 +0200"}, // and the next one left out

		// Where Time.ZoneBounds returns an end in the past.
		{"Europe/Berlin", Day, "2040-12-31 12:00:00 +0100", "2040-12-31 00:00:00 +0100", "2041-01-01 00:00:00 +0100"},
		{"America/St_Johns", Hour, "2040-12-30 20:45:00 -0330", "2040-12-30 20:00:00 -0330", "2040-12-30 21:00:00 -0330"},
		{"America/St_Johns", Hour, "2039-12-31 20:15:00 -0330", "2039-12-31 20:00:00 -0330", "2039-12-31 21:00:00 -0330"},

		// Midnight does not exist.
		{"America/Sao_Paulo", Day, "2018-11-03 23:59:59 -0300", "2018-11-03 00:00:00 -0300", "2018-11-04 01:00:00 -0200"},
		{"America/Sao_Paulo", Day, "2018-11-04 01:00:00 -0200", "2018-11-04 01:00:00 -0200", "2018-11-05 00:00:00 -0200"},
		// 24:00 is put back to 23:00: the day has that hour twice.
		{"America/Sao_Paulo", Day, "2018-02-17 23:30:00 -0300", "2018-02-17 00:00:00 -0200", "2018-02-18 00:00:00 -0300"},
		// 01:00 is put back to 00:00: midnight is struck twice, the first one counts.
		{"America/Havana", Day, "2023-11-05 00:30:00 -0500", "2023-11-05 00:00:00 -0400", "2023-11-06 00:00:00 -0500"},
		{"America/Havana", Day, "2023-11-04 23:59:59 -0400", "2023-11-04 00:00:00 -0400", "2023-11-05 00:00:00 -0400"},
		// 00:01 was put back to 23:01: a day began, and its eve came again. It has begun.
		{"America/St_Johns", Day, "1999-10-30 23:30:00 -0330", "1999-10-31 00:00:00 -0230", "1999-11-01 00:00:00 -0330"},
		{"America/St_Johns", Day, "1999-10-30 23:30:00 -0230", "1999-10-30 00:00:00 -0230", "1999-10-31 00:00:00 -0230"},
		// 30 December 2011 was left out.
		{"Pacific/Apia", Day, "2011-12-29 23:59:59 -1000", "2011-12-29 00:00:00 -1000", "2011-12-31 00:00:00 +1400"},
		{"Pacific/Apia", Day, "2011-12-31 00:00:00 +1400", "2011-12-31 00:00:00 +1400", "2012-01-01 00:00:00 +1400"},
		// 02:00 is put back by half an hour: windows of an hour and of half of one.
		{"Australia/Lord_Howe", Hour, "2024-04-07 01:45:00 +1100", "2024-04-07 01:00:00 +1100", "2024-04-07 01:30:00 +1030"},
		{"Australia/Lord_Howe", Hour, "2024-04-07 01:45:00 +1030", "2024-04-07 01:30:00 +1030", "2024-04-07 02:00:00 +1030"},
	} {
		loc := mustLoad(t, c.zone)
		at, err := time.Parse(zoned, c.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end := c.calendar.bounds(at.UnixNano(), loc)
		show := func(n int64) string { return time.Unix(0, n).In(loc).Format(zoned) }
		if show(start) != c.start || show(end) != c.end {
			t.Errorf("%s, %v of %s: from %s to %s, want %s to %s", c.zone, c.calendar, c.at, show(start), show(end), c.start, c.end)
		}
	}
}

// The windows of a calendar follow one another without gaps and each contains
// what it is the window of, wherever clocks do strange things.
func TestCalendar_Bounds_CoverAllOfTime(t *testing.T) {
	built.SkipRaced(t)
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Beirut", "Africa/Monrovia"} {
		loc := mustLoad(t, zone)
		for _, c := range []Calendar{Day, Week, Month} {
			at := time.Date(1996, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
			stop := time.Date(2041, 2, 1, 0, 0, 0, 0, time.UTC).UnixNano()
			_, at = c.bounds(at, loc)
			for at < stop {
				start, end := c.bounds(at, loc)
				if start != at || end <= at {
					t.Fatalf("%s: the %v after one that ended at %v goes from %v to %v", zone, c, time.Unix(0, at).In(loc), time.Unix(0, start).In(loc), time.Unix(0, end).In(loc))
				}
				for _, in := range []int64{start + (end-start)/3, end - 1} {
					if s, e := c.bounds(in, loc); s != start || e != end {
						t.Fatalf("%s: %v is in the %v from %v to %v and not in the one from %v", zone, time.Unix(0, in).In(loc), c, time.Unix(0, s).In(loc), time.Unix(0, e).In(loc), time.Unix(0, start).In(loc))
					}
				}
				at = end
			}
		}
		for _, c := range []Calendar{Minute, Hour} {
			for _, year := range []int{1972, 1999, 2024} {
				at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
				stop := at + int64(366*24*time.Hour)
				if c == Minute { // around all changes of the clock of that year
					for t0 := time.Unix(0, at).In(loc); t0.UnixNano() < stop; t0 = t0.Add(time.Hour) {
						if offset(t0) != offset(t0.Add(time.Hour)) {
							cover(t, c, loc, t0.UnixNano(), t0.Add(time.Hour).UnixNano())
						}
					}
					continue
				}
				cover(t, c, loc, at, stop)
			}
		}
	}
}

func cover(t *testing.T, c Calendar, loc *time.Location, at, stop int64) {
	t.Helper()
	for _, at = c.bounds(at, loc); at < stop; {
		start, end := c.bounds(at, loc)
		in, last := c.bounds(end-1, loc)
		if start != at || end <= at || in != start || last != end {
			t.Fatalf("%v: the %v at %v goes from %v to %v", loc, c, time.Unix(0, at).In(loc), time.Unix(0, start).In(loc), time.Unix(0, end).In(loc))
		}
		at = end
	}
}

func TestCalendar_Bounds_AtTheEndOfTime(t *testing.T) {
	for _, c := range []Calendar{Minute, Hour, Day, Week, Month} {
		for _, at := range []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1} {
			if start, end := c.bounds(at, nil); start > at || end <= at {
				t.Errorf("the %v of %d goes from %d to %d", c, at, start, end)
			}
		}
	}
}
