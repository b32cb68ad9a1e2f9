package window

import (
	"math"
	"sort"
	"time"
)

// A Calendar is where fixed windows begin: see [NewFixed].
type Calendar string

const (
	Minute Calendar = "minute" // every minute
	Hour   Calendar = "hour"   // each hour
	Day    Calendar = "day"    // 00:00
	Week   Calendar = "week"   // Monday, 00:00
	Month  Calendar = "month"  // the first, 00:00
)

func (c Calendar) valid() bool {
	switch c {
	case Minute, Hour, Day, Week, Month:
		return true
	}
	return false
}

// # Where does a day begin?
//
// At 00:00, says time.Date; but that hour need not exist. In São Paulo clocks
// went from 23:59:59 to 01:00:00 on 4 November 2018, and time.Date returns 23:00
// of the day before. In Havana midnight is struck twice in autumn, and in Apia
// 30 December 2011 was left out altogether.
//
// So a day, week or month begins at the first time at which the local clock
// shows its first midnight or anything later. Between two changes of the clock
// local time is a time plus an offset, so it is enough to look at each of
// these stretches around midnight. A day is then 23, 24 or 25 hours long, or
// whatever the place has decreed, and the days cover all of time.
//
// Hours and minutes are cut at changes of the clock instead: the hour that is
// struck twice is two windows, not one of two hours.

// bounds returns the window of c that contains the time at, in nanoseconds
// of Unix time like the result: from start up to but not including end.
func (c Calendar) bounds(at int64, loc *time.Location) (start, end int64) {
	if loc == nil {
		loc = time.UTC
	}
	t := time.Unix(0, at).In(loc)
	switch c {
	case Minute:
		return clockBounds(t, 60)
	case Hour:
		return clockBounds(t, 3600)
	}
	// Where the clock was put back across midnight its date is the date of a day
	// that has ended; hence the loop.
	from, to := c.days(t, 0)
	for i := 1; !firstShown(to, loc).After(t); i++ {
		from, to = c.days(t, i)
	}
	return nanos(firstShown(from, loc)), nanos(firstShown(to, loc))
}

// days returns the midnights at which the i-th window of c after the one of t's
// date begins and ends, as a clock in UTC shows them.
func (c Calendar) days(t time.Time, i int) (from, to time.Time) {
	y, m, d := t.Date()
	days, months := 1, 0
	switch c {
	case Week:
		d -= (int(t.Weekday()) + 6) % 7 // back to Monday
		days = 7
	case Month:
		d, days, months = 1, 0, 1
	}
	midnight := func(i int) time.Time {
		return time.Date(y, m+time.Month(i*months), d+i*days, 0, 0, 0, 0, time.UTC)
	}
	return midnight(i), midnight(i + 1)
}

// firstShown returns the first time at which clocks at loc show what a clock
// in UTC shows at shown, or more.
//
// Changes of the clock are searched for here, without Time.ZoneBounds: on 31 December of
// leap years, where the rule at the end of a time zone's file applies, that returns an end
// in the past (golang/go#81583).
func firstShown(shown time.Time, loc *time.Location) time.Time {
	t := shown.In(loc)
	t = t.Add(-offset(t) - 25*time.Hour) // no place has ever moved that far
	for {
		next := t.Add(stride)
		if offset(t) != offset(next) {
			next = change(t, next)
		}
		first := shown.Add(-offset(t)).In(loc)
		if first.Before(t) {
			first = t // skipped by a change of the clock
		}
		if first.Before(next) {
			return first
		}
		t = next
	}
}

// A stride is less than lies between two changes of the clock anywhere.
const stride = 4 * time.Hour

// offset returns the local time at t, minus UTC.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// change returns when the offset at a, a whole second, changes to that at b.
func change(a, b time.Time) time.Time {
	old := offset(a)
	seconds := sort.Search(int(b.Sub(a)/time.Second), func(i int) bool {
		return offset(a.Add(time.Duration(i)*time.Second)) != old
	})
	return a.Add(time.Duration(seconds) * time.Second)
}

// clockBounds returns the window of so many seconds that contains t, on the
// local clock, cut where that changes.
func clockBounds(t time.Time, seconds int64) (start, end int64) {
	t = time.Unix(t.Unix(), 0).In(t.Location()) // a whole second
	into := (t.Unix() + int64(offset(t)/time.Second)) % seconds
	if into < 0 {
		into += seconds
	}
	from := t.Add(-time.Duration(into) * time.Second)
	to := from.Add(time.Duration(seconds) * time.Second)
	if offset(from) != offset(t) {
		from = change(from, t)
	}
	if offset(to) != offset(t) {
		to = change(t, to)
	}
	return nanos(from), nanos(to)
}

// nanos is t.UnixNano(), saturating: the last window before the year 2262 has
// no end in an int64.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return t.UnixNano()
}
