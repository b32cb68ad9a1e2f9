package ratelimit

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// A number without a unit is guessed by its size: a number of seconds up to 15 years, an
// epoch in seconds, or an epoch in milliseconds. (The clock of a testing/synctest bubble
// starts at 946,684,800.)
const (
	leastEpoch       = 500_000_000
	leastEpochMillis = 100_000_000_000
	beyondTime       = 100_000_000_000_000
)

const longestDate = 80 // bytes; those of JavaScript are long

// A when is a time from now, or an instant on the clock of the server.
type when struct {
	delta   time.Duration
	at      time.Time
	instant bool
	rounded bool // it is in whole seconds
}

// after returns how long after ref the instant w is, or 0.
func (w *when) after(ref time.Time) time.Duration { return max(0, w.at.Sub(ref)) } // Sub saturates

func instant(t time.Time) when {
	return when{at: t, instant: true, rounded: t.Nanosecond() == 0}
}

// parseTime reads a time without spaces around it: a number, which is milliseconds from now
// or guessed; a date in one of the forms of RFC 9110, RFC 3339 or some others; or a
// duration in the units of Go. If s is malformed, it returns why.
func parseTime(s string, millis bool) (w when, why string) {
	n, numeric, why := parseNumber(s)
	switch {
	case why == "":
		return timeOf(n, millis)
	case numeric:
		return when{}, why
	case len(s) > longestDate:
		return when{}, whyNoTime
	}
	if t, ok := parseDate(s); ok {
		return instant(t), ""
	}
	if d, ok := parseDuration(s); ok {
		return when{delta: d}, ""
	}
	return when{}, whyNoTime
}

// timeOf is parseTime for a number.
func timeOf(n number, millis bool) (w when, why string) {
	switch {
	case millis:
		return when{delta: n.of(time.Millisecond)}, ""
	case n.whole < leastEpoch:
		return when{delta: n.of(time.Second), rounded: n.nano == 0}, ""
	case n.whole < leastEpochMillis:
		return instant(time.Unix(n.whole, int64(n.nano))), ""
	case n.whole < beyondTime:
		w = instant(time.Unix(n.whole/1000, n.whole%1000*1e6+int64(n.nano)/1000))
		w.rounded = false // 000 in one of a thousand
		return w, ""
	}
	return when{}, whyRange
}

// Layouts of dates that begin with a digit or a letter. time.Parse accepts decimals of a
// second in all of them.
var (
	digitLayouts = []string{
		time.RFC3339,
		"2006-01-02T15:04Z07:00",    // Atlassian
		"2006-01-02T15:04:05Z0700",  // ISO 8601, basic zone
		"2006-01-02 15:04:05Z07:00", // RFC 3339 allows the space
		"2006-01-02 15:04:05 Z0700",
		"2006-01-02 15:04:05 Z07:00",
		"2 Jan 2006 15:04:05 -0700",    // RFC 5322 without the day
		"2006-Jan-2 15:04:05-0700 MST", // WSO2
	}
	letterLayouts = []string{
		"Mon, 2 Jan 2006 15:04:05 -0700",   // RFC 5322
		"Mon Jan 2 2006 15:04:05 GMT-0700", // JavaScript
		"Mon Jan 2 15:04:05 -0700 2006",    // Ruby
	}
)

// parseDate reads a date. The result does not depend on the local time zone.
func parseDate(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, false
	}
	layouts := letterLayouts
	if digits(s[:1]) == 1 {
		spaces := strings.IndexByte(s, ' ') >= 0
		switch {
		case strings.IndexByte(s, ',') >= 0: // which time.Parse accepts as a decimal point
			return time.Time{}, false
		case !spaces && strings.IndexByte(s, '-') != 4: // cheaper than trying
			return time.Time{}, false
		case !spaces:
			s = strings.ToUpper(s) // RFC 3339 allows t and z
		}
		layouts = digitLayouts
	} else if t, ok := parseHTTPDate(s); ok {
		return t, true
	}
	if i := strings.Index(s, " ("); i > 0 && strings.HasSuffix(s, ")") {
		s = s[:i] // JavaScript: the name of the zone
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseHTTPDate reads a date in one of the three forms of RFC 9110, in GMT, or in the form of
// parseFixdate with UTC.
func parseHTTPDate(s string) (time.Time, bool) {
	if t, ok := parseFixdate(s); ok {
		return t, true
	}
	if len(s) > longestDate {
		return time.Time{}, false
	}
	t, err := http.ParseTime(s)
	if err != nil || t.Location() != time.UTC && !strings.HasSuffix(s, " GMT") {
		return time.Time{}, false
	}
	// time.Parse uses the local meaning of the three letters of a zone.
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second), true
}

// parseFixdate reads the preferred form, which saves a third of the time for a header with
// an epoch. It accepts nothing that time.Parse does not, except UTC in place of GMT: that is
// time.RFC1123 of a Go server, such as sethvargo/go-limiter.
func parseFixdate(s string) (t time.Time, ok bool) {
	if len(s) != len(http.TimeFormat) || s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' ||
		s[19] != ':' || s[22] != ':' || s[25:] != " GMT" && s[25:] != " UTC" {
		return time.Time{}, false
	}
	month, days := monthOf(s[8:11])
	if month == 0 || !isWeekday(s[:3]) {
		return time.Time{}, false
	}
	ok = true
	two := func(i int) int {
		a, b := s[i]-'0', s[i+1]-'0'
		ok = ok && a < 10 && b < 10
		return 10*int(a) + int(b)
	}
	year, day, hour, minute, second := 100*two(12)+two(14), two(5), two(17), two(20), two(23)
	if month == time.February && (year%4 != 0 || year%100 == 0 && year%400 != 0) {
		days = 28
	}
	if !ok || day < 1 || day > days || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC), true
}

// monthOf returns the month of an abbreviation, 0 if it is none, and the most days it has.
func monthOf(name string) (m time.Month, days int) {
	switch name {
	case "Jan":
		return time.January, 31
	case "Feb":
		return time.February, 29
	case "Mar":
		return time.March, 31
	case "Apr":
		return time.April, 30
	case "May":
		return time.May, 31
	case "Jun":
		return time.June, 30
	case "Jul":
		return time.July, 31
	case "Aug":
		return time.August, 31
	case "Sep":
		return time.September, 30
	case "Oct":
		return time.October, 31
	case "Nov":
		return time.November, 30
	case "Dec":
		return time.December, 31
	}
	return 0, 0
}

func isWeekday(name string) bool {
	switch name {
	case "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat":
		return true
	}
	return false
}

// units are the units of a duration, longer names before their prefixes.
var units = []struct {
	name   string
	length time.Duration
}{
	{"ns", time.Nanosecond},
	{"us", time.Microsecond},
	{"µs", time.Microsecond}, // micro sign
	{"μs", time.Microsecond}, // Greek letter
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"m", time.Minute},
	{"h", time.Hour},
}

// parseDuration reads a duration without a sign: numbers, each with a unit. Unlike
// time.ParseDuration it saturates.
func parseDuration(s string) (d time.Duration, ok bool) {
	if len(s) > longestNumber {
		return 0, false
	}
	for s != "" {
		i := digits(s)
		if i < len(s) && s[i] == '.' {
			i += 1 + digits(s[i+1:])
		}
		n, _, why := parseNumber(s[:i])
		if why != "" {
			return 0, false
		}
		s = s[i:]
		unit := time.Duration(0)
		for _, u := range units {
			if strings.HasPrefix(s, u.name) {
				unit, s = u.length, s[len(u.name):]
				break
			}
		}
		if unit == 0 {
			return 0, false
		}
		d, ok = sat.Add(d, n.of(unit)), true
	}
	return d, ok
}

// trim returns s without spaces and tabs around it.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
