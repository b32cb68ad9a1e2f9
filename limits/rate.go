package limits

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/rates"
)

// A Rate is a number of calls, or of units of cost, that may start per period, and the number that
// may start together. The zero Rate stands for no limit; a Rate that has only a Burst is an error.
//
// 1 per second and 60 per minute are the same rate.
type Rate struct {
	Count int64         // at least 1
	Per   time.Duration // positive, and Count at most one per nanosecond

	// Burst is the number that may start together after an idle time, including the first one. 0
	// means 1: never closer than an interval. A pacer and a gate begin with none of it saved up, a
	// leaky.Bucket with all of it.
	Burst int64
}

// PerSecond returns the rate of count per second, without a burst: PerSecond(10) is one call every
// 100 ms. A count ≤ 0 makes an invalid rate: see [Rate].
func PerSecond(count int64) Rate { return Rate{Count: count, Per: time.Second} }

// units are the periods that have a name, longest first.
var units = []struct {
	names []string
	per   time.Duration
}{
	{[]string{"d", "day"}, 24 * time.Hour},
	{[]string{"h", "hour"}, time.Hour},
	{[]string{"m", "min", "minute"}, time.Minute},
	{[]string{"s", "sec", "second"}, time.Second},
	{[]string{"ms"}, time.Millisecond},
	{[]string{"us", "µs"}, time.Microsecond},
	{[]string{"ns"}, time.Nanosecond},
}

// ParseRate reads a rate such as "5/s", "5000/h", "300/20s", "10/1m30s", "1/day" or "10/s burst 5":
// a whole number, a slash, and a unit (ns, us, ms, s or sec, m or min, h, d; also second, minute,
// hour, day) or a duration as [time.ParseDuration] reads it. Both must be positive, at most one per
// nanosecond. Spaces around each part are ignored.
func ParseRate(s string) (Rate, error) {
	count, per, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, fmt.Errorf(`sluice: rate %q: want a count and a period, such as "5/s" or "300/20s"`, s)
	}
	var r Rate
	var err error
	if r.Count, err = strconv.ParseInt(strings.TrimSpace(count), 10, 64); err != nil {
		return Rate{}, fmt.Errorf("sluice: rate %q: the count must be a whole number", s)
	}
	per, burst, ok := strings.Cut(per, "burst")
	if ok {
		if r.Burst, err = strconv.ParseInt(strings.TrimSpace(burst), 10, 64); err != nil || r.Burst <= 0 {
			return Rate{}, fmt.Errorf("sluice: rate %q: the burst must be a positive whole number", s)
		}
	}
	if r.Per, err = parsePeriod(strings.TrimSpace(per)); err != nil {
		return Rate{}, fmt.Errorf("sluice: rate %q: the period must be a unit such as s or h, or a duration such as 20s", s)
	}
	if err := rates.Check(r.Count, r.Per, r.Burst); err != nil {
		return Rate{}, fmt.Errorf("sluice: %w", err)
	}
	return r, nil
}

func parsePeriod(s string) (time.Duration, error) {
	for _, u := range units {
		for _, name := range u.names {
			if s == name {
				return u.per, nil
			}
		}
	}
	return time.ParseDuration(s)
}

// String returns the rate in the form that ParseRate reads: "5/s", "300/20s burst 10".
// The zero Rate is "unlimited".
func (r Rate) String() string {
	if r == (Rate{}) {
		return "unlimited"
	}
	period := r.Per.String()
	for _, u := range units {
		if u.per == r.Per {
			period = u.names[0]
			break
		}
	}
	if r.Burst == 0 {
		return fmt.Sprintf("%d/%s", r.Count, period)
	}
	return fmt.Sprintf("%d/%s burst %d", r.Count, period, r.Burst)
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with ParseRate, and reads
// "unlimited" as the zero Rate. With [flag.TextVar] it makes a flag of a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == "unlimited" {
		*r = Rate{}
		return nil
	}
	parsed, err := ParseRate(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}

// Interval returns the time from one call to the next, rounded down to a
// nanosecond; 0 for the zero Rate.
func (r Rate) Interval() time.Duration {
	if r.Count == 0 {
		return 0
	}
	return r.Per / time.Duration(r.Count)
}
