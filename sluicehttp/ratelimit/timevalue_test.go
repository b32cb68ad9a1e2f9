package ratelimit

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// waitFor returns how long after arrival the time in s is.
func waitFor(s string, millis bool) (time.Duration, string) {
	w, why := parseTime(trim(s), millis)
	if w.instant {
		return w.after(arrival), why
	}
	return w.delta, why
}

func TestParseTime(t *testing.T) {
	bad := time.Duration(-1)
	for _, tt := range []struct {
		millis bool
		value  string
		want   time.Duration
	}{
		{false, "120", 2 * time.Minute},
		{false, " 120\t", 2 * time.Minute},
		{false, "1795262460", time.Minute},
		{false, "1795262460123.456", time.Minute + 123456*time.Microsecond},
		{false, "100000000000000", bad},
		{true, "1795262460", 1795262460 * time.Millisecond},
		{true, "999999999999999999", sat.Max},
		{false, "499999999", 499999999 * time.Second},
		{false, "0.000000001", 1},
		{false, "500000000", 0}, // an epoch that has passed
		{false, "1795262400.000000001", 1},
		{false, "1795262400001.5", 1500 * time.Microsecond},
		{true, "0.0000019", 1},

		// Durations and dates are read as they are.
		{true, "2s", 2 * time.Second},
		{true, "Sat, 21 Nov 2026 12:02:00 GMT", 2 * time.Minute},

		{false, "2.463586755s", 2463586755},
		{false, "1h1m1s1ms1us1ns", 3661001001001},
		{false, "1µs", 1000},                                         // micro sign
		{false, "1μs", 1000},                                         // Greek letter
		{false, "0.1ns", 0},                                          // cut off
		{false, "2562047h47m16.854775807s", sat.Max},                 // just so
		{false, "2562047h2562047h", sat.Max},                         // no sum wraps
		{false, "2562048h", sat.Max},                                 // time.ParseDuration fails here
		{false, strings.Repeat("0", 17) + "1s", time.Second},         // 18 digits
		{false, strings.Repeat("0", 18) + "1s", bad},                 // 19
		{false, strings.Repeat("1s", 32), 32 * time.Second},          // 64 bytes
		{false, strings.Repeat("1s", 33), bad},                       // more
		{false, "1d", bad},                                           // no unit of Go
		{false, "1s ", time.Second},                                  // trimmed
		{false, "1s 1s", bad},                                        // not in between
		{false, "", bad},                                             // nothing
		{false, "-1s", bad},                                          // no sign
		{false, "Sun, 06 Nov 1994 08:49:37 GMT", 0},                  // has passed
		{false, "Fri, 31 Dec 9999 23:59:59 GMT", sat.Max},            // 292 years are the most
		{false, "Sat, 21 Nov 2026 12:02:00 CET", bad},                // GMT it must be
		{false, "Sat, 21 Nov 2026 12:02:00 UTC", 2 * time.Minute},    // or time.RFC1123, as Go servers write
		{false, "sat, 21 nov 2026 12:02:00 UTC", bad},                // but in no other way
		{false, "Sat, 21 Nov 2026 12:02:00 utc", bad},                // the same
		{false, "Saturday, 21-Nov-26 12:02:00 CET", bad},             // here, too
		{false, "Sat, 31 Nov 2026 12:02:00 GMT", bad},                // not in November
		{false, "Tue, 29 Feb 2028 12:00:00 GMT", 465 * 24 * 3600e9},  // a leap year
		{false, "Wed, 29 Feb 2027 12:00:00 GMT", bad},                // none
		{false, "Sat, 21 Nov 2026 24:00:00 GMT", bad},                // no such hour
		{false, "sat, 21 nov 2026 12:02:00 GMT", 2 * time.Minute},    // as time.Parse has it
		{false, "2026-11-21T12:02:00.000000001Z", 2*time.Minute + 1}, // decimals
		{false, "2026-11-21T12:02:00,5Z", bad},                       // not with a comma
		{false, "2026-11-21T12:02:00", bad},                          // no zone
		{false, "2026-11-21 12:02:00Z", 2 * time.Minute},             // RFC 3339 allows it
		{false, "2026-11-21 12:02:00 UTC", bad},                      // a name is no numeric zone
		{false, "Sat, 21 Nov 2026 13:02:00 +0100", 2 * time.Minute},  // as in mail
		{false, "21 Nov 2026 13:02:00 +0100", 2 * time.Minute},       // the same
		{false, "Sat Nov 21 13:02:00 +0100 2026", 2 * time.Minute},   // Ruby
		{false, "Sat Nov 21 2026 13:02:42 GMT+0100", 162 * time.Second},
		{false, "Sat Nov 21 2026 13:02:42 GMT+0100 (CET)", 162 * time.Second},
		{false, "Sat Nov 21 2026 13:02:42 GMT+0100 (" + strings.Repeat("x", 44) + ")", 162 * time.Second}, // 80 bytes
		{false, "Sat Nov 21 2026 13:02:42 GMT+0100 (" + strings.Repeat("x", 45) + ")", bad},               // 81
	} {
		got, why := waitFor(tt.value, tt.millis)
		if why != "" {
			got = bad
		}
		if got != tt.want {
			t.Errorf("%q, %v: %d, %s; want %d", tt.value, tt.millis, got, why, tt.want)
		}
	}
}

// What is read of a date must not depend on the zone of this machine, where "CET"
// may be known, or GMT be something else.
func TestParseTime_LocalZone(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("GMT", 3600), time.FixedZone("CET", 3600)} {
		time.Local = zone
		if got, why := waitFor("Saturday, 21-Nov-26 12:02:00 GMT", false); got != 2*time.Minute || why != "" {
			t.Errorf("%v: got %v, %v", zone, got, why)
		}
		if got, why := waitFor("Saturday, 21-Nov-26 12:02:00 CET", false); why == "" {
			t.Errorf("%v: got %v", zone, got)
		}
	}
}

// parseFixdate must say what time.Parse does, or nothing: for any second, and for
// any date with one byte changed.
func TestParseFixdate(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		at := time.Unix(rng.Int64N(253402300800), 0).UTC() // before the year 10000
		s := at.Format(http.TimeFormat)
		if got, ok := parseFixdate(s); !ok || got != at {
			t.Fatalf("%q: got %v, %v", s, got, ok)
		}
		b := []byte(s)
		b[rng.IntN(len(b))] = "0123456789 :,AaFSGTz\xff"[rng.IntN(21)]
		got, ok := parseFixdate(string(b))
		if want, err := time.Parse(http.TimeFormat, string(b)); ok && (err != nil || !got.Equal(want)) {
			t.Fatalf("%q: got %v, time.Parse %v, %v", b, got, want, err)
		}
	}
}

// However wrong the local clock is, an epoch and a date are as far away as the
// server says. In a bubble it is the year 2000: an epoch is as small as it will
// ever be.
func TestParse_ClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, -time.Hour, -time.Second, 0, time.Second, time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			server := func() time.Time { return time.Now().Add(skew) }
			reset := server().Add(90 * time.Second)
			header := http.Header{}
			header.Set("Date", server().UTC().Format(http.TimeFormat))
			header.Set("X-RateLimit-Remaining", "0")
			header.Set("X-RateLimit-Reset", number{whole: reset.Unix()}.String())
			began := time.Now()
			s, warnings := Parse(429, header, began)
			if len(warnings) > 0 {
				t.Errorf("skew %v: %v", skew, warnings)
			}
			time.Sleep(time.Until(s.RetryAt))
			if late := server().Sub(reset); late != 0 || time.Since(began) != 90*time.Second {
				t.Errorf("skew %v: back %v after the reset", skew, late)
			}
		})
	}
}

// More than 24 hours are no skew: somebody's clock is simply wrong, or the Date
// is somebody else's.
func TestParse_ClockSkewOfMoreThanADay(t *testing.T) {
	for _, skew := range []time.Duration{-24*time.Hour - time.Second, 24*time.Hour + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			header := http.Header{}
			header.Set("Date", now.Add(skew).UTC().Format(http.TimeFormat))
			header.Set("Retry-After", now.Add(time.Minute).UTC().Format(http.TimeFormat))
			s, warnings := Parse(429, header, now)
			if got := s.RetryAt.Sub(now); got != time.Minute {
				t.Errorf("skew %v: got %v", skew, got)
			}
			if len(warnings) != 1 || warnings[0].Field != "Date" {
				t.Errorf("skew %v: got warnings %v", skew, warnings)
			}
		})
	}
}

// Outside of a bubble an instant has a monotonic reading, by which to wait.
func TestParse_KeepsTheMonotonicReading(t *testing.T) {
	header := http.Header{"Retry-After": {"60"}, "X-Ratelimit-Reset": {"30"}}
	s, _ := Parse(429, header, time.Now())
	for _, at := range []time.Time{s.RetryAt, s.Limits[0].ResetAt} {
		if !strings.Contains(at.String(), "m=+") {
			t.Errorf("%v has no monotonic reading", at)
		}
	}
}
