package window

import (
	"math"
	"testing"
	"time"
)

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

		// The same instant is another day elsewhere.
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
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Beirut", "Africa/Monrovia"} {
		loc := mustLoad(t, zone)
		for c := Day; c <= Month; c++ {
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
	for c := Minute; c <= Month; c++ {
		for _, at := range []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1} {
			if start, end := c.bounds(at, nil); start > at || end <= at {
				t.Errorf("the %v of %d goes from %d to %d", c, at, start, end)
			}
		}
	}
}

func TestCalendar_String(t *testing.T) {
	for c, want := range map[Calendar]string{0: "no calendar", Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month", 6: "Calendar(6)", -1: "Calendar(-1)"} {
		if got := c.String(); got != want {
			t.Errorf("Calendar(%d) is %q, want %q", int(c), got, want)
		}
	}
}
