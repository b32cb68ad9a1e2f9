package ratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// A TimeForm is how a number is meant that stands for a time.
type TimeForm uint8

const (
	// Guess takes numbers below 500,000,000 for seconds from now, as nobody
	// means to wait for 15 years; below 100,000,000,000 for seconds since
	// 1970; and below 100,000,000,000,000 for milliseconds since 1970. Larger
	// ones are refused. In fields that are named after milliseconds it is
	// Millis. (A clock in a testing/synctest bubble starts at 946,684,800.)
	Guess       TimeForm = iota
	Seconds              // from now
	Millis               // from now
	Epoch                // seconds since 1970
	EpochMillis          // milliseconds since 1970
)

const (
	leastEpoch       = 500_000_000
	leastEpochMillis = 100_000_000_000
	beyondTime       = 100_000_000_000_000
)

const longestDate = 80 // bytes; those of JavaScript are long

// Wait reads value, such as one of a header field or of a body, and returns how
// long after ref that is: 0 if it has passed, 292 years if it is more. Spaces
// around value are ignored. It reads a number, whole or with decimals, as f
// says; otherwise, whatever f is,
//
//   - an HTTP date in any of the three forms of RFC 9110;
//   - a date and time as in RFC 3339, also without seconds;
//   - other dates with a numeric zone, such as those that JavaScript prints;
//   - a duration in the units of Go: "6m0s", "12ms", "2.463586755s".
//
// It returns an error if value is none of these.
func (f TimeForm) Wait(value string, ref time.Time) (time.Duration, error) {
	w, why := f.parse(trim(value))
	if why != "" {
		return 0, fmt.Errorf("ratelimit: %s: %q", why, shortened(value))
	}
	if w.instant {
		return w.after(ref), nil
	}
	return w.delta, nil
}

// A when is a time: from now, or an instant of the server's clock.
type when struct {
	delta   time.Duration
	at      time.Time
	instant bool
}

// after returns how long after ref the instant w is, 0 if it is not.
func (w *when) after(ref time.Time) time.Duration { return max(0, w.at.Sub(ref)) } // Sub saturates

func instant(t time.Time) when { return when{at: t, instant: true} }

// parse reads a time without spaces around it. If it is malformed it returns
// why.
func (f TimeForm) parse(s string) (w when, why string) {
	n, numeric, why := parseNumber(s)
	switch {
	case why == "":
		return f.of(n)
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

// of is parse for a number.
func (f TimeForm) of(n number) (w when, why string) {
	switch f {
	case Seconds:
		return when{delta: n.of(time.Second)}, ""
	case Millis:
		return when{delta: n.of(time.Millisecond)}, ""
	case Epoch:
		return instant(time.Unix(n.whole, int64(n.nano))), ""
	case EpochMillis:
		return instant(time.Unix(n.whole/1000, n.whole%1000*1e6+int64(n.nano)/1000)), ""
	}
	switch {
	case n.whole < leastEpoch:
		return Seconds.of(n)
	case n.whole < leastEpochMillis:
		return Epoch.of(n)
	case n.whole < beyondTime:
		return EpochMillis.of(n)
	}
	return when{}, whyRange
}

// Layouts of dates, by what they begin with. time.Parse also reads decimals of
// a second in all of them.
var (
	digitLayouts = []string{
		time.RFC3339,
		"2006-01-02T15:04Z07:00",    // Atlassian
		"2006-01-02T15:04:05Z0700",  // ISO 8601, basic zone
		"2006-01-02 15:04:05Z07:00", // RFC 3339 allows the space
		"2006-01-02 15:04:05 Z0700",
		"2006-01-02 15:04:05 Z07:00",
		"2 Jan 2006 15:04:05 -0700", // RFC 5322 without the day
	}
	letterLayouts = []string{
		"Mon, 2 Jan 2006 15:04:05 -0700",   // RFC 5322
		"Mon Jan 2 2006 15:04:05 GMT-0700", // JavaScript
		"Mon Jan 2 15:04:05 -0700 2006",    // Ruby
	}
)

// parseDate reads a date. Nothing it reads depends on the time zone of this
// machine.
func parseDate(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, false
	}
	layouts := letterLayouts
	if digits(s[:1]) == 1 {
		spaces := strings.IndexByte(s, ' ') >= 0
		switch {
		case strings.IndexByte(s, ',') >= 0: // time.Parse takes it for a decimal point
			return time.Time{}, false
		case !spaces && strings.IndexByte(s, '-') != 4: // cheaper than to try
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

// parseHTTPDate reads a date in any of the three forms of RFC 9110. Their zone is
// GMT.
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
	// time.Parse looks the three letters of a zone up on this machine.
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second), true
}

// parseFixdate reads the first of these forms, that of nearly every Date: it
// saves a third of the time that it takes to read a header with an epoch. It
// reads nothing that time.Parse does not, and leaves to that what is rare.
func parseFixdate(s string) (t time.Time, ok bool) {
	if len(s) != len(http.TimeFormat) || s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' ||
		s[19] != ':' || s[22] != ':' || s[25:] != " GMT" {
		return time.Time{}, false
	}
	weekday := strings.Index("Sun Mon Tue Wed Thu Fri Sat", s[:3])
	month := strings.Index("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", s[8:11])
	if weekday%4 != 0 || month%4 != 0 { // not found is -1
		return time.Time{}, false
	}
	ok = true
	two := func(i int) int {
		a, b := s[i]-'0', s[i+1]-'0'
		ok = ok && a < 10 && b < 10
		return 10*int(a) + int(b)
	}
	year, day, hour, minute, second := 100*two(12)+two(14), two(5), two(17), two(20), two(23)
	if !ok || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	t = time.Date(year, time.Month(month/4+1), day, hour, minute, second, 0, time.UTC)
	return t, t.Day() == day // 31 November is 1 December
}

// units are those of a duration, longer names before those they begin with.
var units = []struct {
	name string
	unit time.Duration
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

// parseDuration reads a duration without a sign: numbers, each with its unit.
// time.ParseDuration fails where this saturates.
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
				unit, s = u.unit, s[len(u.name):]
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
