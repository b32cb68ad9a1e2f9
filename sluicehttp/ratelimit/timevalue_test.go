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

func TestWait(t *testing.T) {
	bad := time.Duration(-1)
	for _, tt := range []struct {
		form  TimeForm
		value string
		want  time.Duration
	}{
		{Guess, "120", 2 * time.Minute},
		{Guess, " 120\t", 2 * time.Minute},
		{Guess, "1795262460", time.Minute},
		{Guess, "1795262460123.456", time.Minute + 123456*time.Microsecond},
		{Guess, "100000000000000", bad},
		{Seconds, "1795262460", 1795262460 * time.Second},
		{Seconds, "999999999999999999", sat.Max},
		{Seconds, "0.000000001", 1},
		{Millis, "1795262460", 1795262460 * time.Millisecond},
		{Millis, "0.0000019", 1},
		{Epoch, "5", 0},
		{Epoch, "1795262400.000000001", 1},
		{Epoch, "999999999999999999", sat.Max},
		{EpochMillis, "1795262400001.5", 1500 * time.Microsecond},
		{EpochMillis, "999999999999999999", sat.Max},
		{99, "120", 2 * time.Minute}, // as Guess

		// Whatever the form, all that has a unit or is a date.
		{Millis, "2s", 2 * time.Second},
		{Millis, "Sat, 21 Nov 2026 12:02:00 GMT", 2 * time.Minute},
		{Seconds, "2026-11-21T12:02:00Z", 2 * time.Minute},

		{Guess, "2.463586755s", 2463586755},
		{Guess, "1h1m1s1ms1us1ns", 3661001001001},
		{Guess, "1µs", 1000},                                         // micro sign
		{Guess, "1μs", 1000},                                         // Greek letter
		{Guess, "0.1ns", 0},                                          // cut off
		{Guess, "2562047h47m16.854775807s", sat.Max},                 // just so
		{Guess, "2562047h2562047h", sat.Max},                         // no sum wraps
		{Guess, "2562048h", sat.Max},                                 // time.ParseDuration fails here
		{Guess, strings.Repeat("0", 17) + "1s", time.Second},         // 18 digits
		{Guess, strings.Repeat("0", 18) + "1s", bad},                 // 19
		{Guess, strings.Repeat("1s", 32), 32 * time.Second},          // 64 bytes
		{Guess, strings.Repeat("1s", 33), bad},                       // more
		{Guess, "1d", bad},                                           // no unit of Go
		{Guess, "1s ", time.Second},                                  // trimmed
		{Guess, "1s 1s", bad},                                        // not in between
		{Guess, "", bad},                                             // nothing
		{Guess, "-1s", bad},                                          // no sign
		{Guess, "Sun, 06 Nov 1994 08:49:37 GMT", 0},                  // has passed
		{Guess, "Fri, 31 Dec 9999 23:59:59 GMT", sat.Max},            // 292 years are the most
		{Guess, "Sat, 21 Nov 2026 12:02:00 CET", bad},                // GMT it must be
		{Guess, "Saturday, 21-Nov-26 12:02:00 CET", bad},             // here, too
		{Guess, "Sat, 31 Nov 2026 12:02:00 GMT", bad},                // not in November
		{Guess, "Tue, 29 Feb 2028 12:00:00 GMT", 465 * 24 * 3600e9},  // a leap year
		{Guess, "Wed, 29 Feb 2027 12:00:00 GMT", bad},                // none
		{Guess, "Sat, 21 Nov 2026 24:00:00 GMT", bad},                // no such hour
		{Guess, "sat, 21 nov 2026 12:02:00 GMT", 2 * time.Minute},    // as time.Parse has it
		{Guess, "2026-11-21T12:02:00.000000001Z", 2*time.Minute + 1}, // decimals
		{Guess, "2026-11-21T12:02:00,5Z", bad},                       // not with a comma
		{Guess, "2026-11-21T12:02:00", bad},                          // no zone
		{Guess, "2026-11-21 12:02:00Z", 2 * time.Minute},             // RFC 3339 allows it
		{Guess, "2026-11-21 12:02:00 UTC", bad},                      // a name is no numeric zone
		{Guess, "Sat, 21 Nov 2026 13:02:00 +0100", 2 * time.Minute},  // as in mail
		{Guess, "21 Nov 2026 13:02:00 +0100", 2 * time.Minute},       // the same
		{Guess, "Sat Nov 21 13:02:00 +0100 2026", 2 * time.Minute},   // Ruby
		{Guess, "Sat Nov 21 2026 13:02:42 GMT+0100", 162 * time.Second},
		{Guess, "Sat Nov 21 2026 13:02:42 GMT+0100 (CET)", 162 * time.Second},
		{Guess, "Sat Nov 21 2026 13:02:42 GMT+0100 (" + strings.Repeat("x", 44) + ")", 162 * time.Second}, // 80 bytes
		{Guess, "Sat Nov 21 2026 13:02:42 GMT+0100 (" + strings.Repeat("x", 45) + ")", bad},               // 81
	} {
		got, err := tt.form.Wait(tt.value, arrival)
		if err != nil {
			got = bad
			if !strings.HasPrefix(err.Error(), "ratelimit: ") {
				t.Errorf("%q: the error says %q", tt.value, err)
			}
		}
		if got != tt.want {
			t.Errorf("%d.Wait(%q) = %d, %v; want %d", tt.form, tt.value, got, err, tt.want)
		}
	}
}

// What is read of a date must not depend on the zone of this machine, where "CET"
// may be known, or GMT be something else.
func TestWaitInAnotherZone(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("GMT", 3600), time.FixedZone("CET", 3600)} {
		time.Local = zone
		if got, err := Guess.Wait("Saturday, 21-Nov-26 12:02:00 GMT", arrival); got != 2*time.Minute || err != nil {
			t.Errorf("%v: got %v, %v", zone, got, err)
		}
		if got, err := Guess.Wait("Saturday, 21-Nov-26 12:02:00 CET", arrival); err == nil {
			t.Errorf("%v: got %v", zone, got)
		}
	}
}

// parseFixdate must say what time.Parse does, or nothing: for any second, and for
// any date with one byte changed.
func TestFixdate(t *testing.T) {
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
func TestSkewIsCorrected(t *testing.T) {
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
func TestTooMuchSkewIsNot(t *testing.T) {
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
func TestMonotonic(t *testing.T) {
	header := http.Header{"Retry-After": {"60"}, "X-Ratelimit-Reset": {"30"}}
	s, _ := Parse(429, header, time.Now())
	for _, at := range []time.Time{s.RetryAt, s.Limits[0].ResetAt} {
		if !strings.Contains(at.String(), "m=+") {
			t.Errorf("%v has no monotonic reading", at)
		}
	}
}
