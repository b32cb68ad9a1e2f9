package sluice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/schedule"
)

// A Rate is how many calls, or how much cost, may go per period: a count and a
// period, as the documentation of most APIs gives it. The zero Rate stands for
// no limit.
//
// The period matters for nothing but the ratio: 1 per second and 60 per minute
// are the same rate and, without a burst, the same even spacing.
type Rate struct {
	Count int64
	Per   time.Duration
}

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

// ParseRate reads a rate as people write it: "5/s", "5000/h", "300/20s",
// "10/1m30s", "1/day". Before the slash stands a whole number, after it a unit
// (ns, us, ms, s or sec, m or min, h, d; also second, minute, hour, day) or a
// duration as [time.ParseDuration] reads it. Both must be positive, at most
// one per nanosecond. Spaces around either part are ignored.
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
	if r.Per, err = parsePeriod(strings.TrimSpace(per)); err != nil {
		return Rate{}, fmt.Errorf("sluice: rate %q: the period must be a unit such as s or h, or a duration such as 20s", s)
	}
	if err := schedule.CheckRate(r.Count, r.Per); err != nil {
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

// String returns the rate in the form that ParseRate reads: "5/s", "300/20s".
// The zero Rate is "unlimited".
func (r Rate) String() string {
	if r == (Rate{}) {
		return "unlimited"
	}
	for _, u := range units {
		if u.per == r.Per {
			return fmt.Sprintf("%d/%s", r.Count, u.names[0])
		}
	}
	return fmt.Sprintf("%d/%v", r.Count, r.Per)
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
