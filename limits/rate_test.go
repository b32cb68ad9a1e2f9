package limits_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/rates"
	"github.com/sluice-go/sluice/limits"
)

const aDay = 24 * time.Hour

func TestParseRate_ReadsCommonSpellings(t *testing.T) {
	for s, want := range map[string]limits.Rate{
		// The examples of the documentation.
		"5/s":      {Count: 5, Per: time.Second},
		"5000/h":   {Count: 5000, Per: time.Hour},
		"300/20s":  {Count: 300, Per: 20 * time.Second},
		"10/1m30s": {Count: 10, Per: 90 * time.Second},
		"1/day":    {Count: 1, Per: aDay},

		// Every unit by every name.
		"1/ns":     {Count: 1, Per: 1},
		"7/us":     {Count: 7, Per: time.Microsecond},
		"7/µs":     {Count: 7, Per: time.Microsecond},
		"7/ms":     {Count: 7, Per: time.Millisecond},
		"7/sec":    {Count: 7, Per: time.Second},
		"7/second": {Count: 7, Per: time.Second},
		"7/m":      {Count: 7, Per: time.Minute}, // a minute, not a metre or a month
		"7/min":    {Count: 7, Per: time.Minute},
		"7/minute": {Count: 7, Per: time.Minute},
		"7/hour":   {Count: 7, Per: time.Hour},
		"7/d":      {Count: 7, Per: aDay},

		// Durations as time.ParseDuration reads them.
		"5/1s":                 {Count: 5, Per: time.Second},
		"5/.5s":                {Count: 5, Per: 500 * time.Millisecond},
		"5/+2s":                {Count: 5, Per: 2 * time.Second},
		"5/24h":                {Count: 5, Per: aDay},
		"1/1h1m1s1ms1us1ns":    {Count: 1, Per: 3661001001001},
		"1000/1.000000001s":    {Count: 1000, Per: time.Second + 1},
		"9/2562047h47m16.854s": {Count: 9, Per: math.MaxInt64 - 775807},

		// Spaces around either part.
		" 5/s":             {Count: 5, Per: time.Second},
		"5/s\n":            {Count: 5, Per: time.Second},
		"5 / s":            {Count: 5, Per: time.Second},
		"\t5\u00a0/ 20s\r": {Count: 5, Per: 20 * time.Second},

		// Whole numbers as strconv reads them in base 10.
		"+5/s":  {Count: 5, Per: time.Second},
		"007/s": {Count: 7, Per: time.Second},

		// The edges.
		"1000000000/s": {Count: 1e9, Per: time.Second}, // one per nanosecond
		"9223372036854775807/2562047h47m16.854775807s": {Count: math.MaxInt64, Per: math.MaxInt64},
		"1/2562047h47m16.854775807s":                   {Count: 1, Per: math.MaxInt64},
	} {
		if got, err := limits.ParseRate(s); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestParseRate_RefusesEverythingElse(t *testing.T) {
	const (
		form   = "want a count and a period"
		count  = "the count must be"
		period = "the period must be"
	)
	for s, want := range map[string]string{
		"":          form,
		"5":         form,
		"s":         form,
		"5 s":       form,
		"5 per s":   form,
		"5\\s":      form,
		"unlimited": form, // only UnmarshalText knows it
		"/":         count,
		"/s":        count,
		" /s":       count,
		"five/s":    count,
		"s/5":       count,
		"1.5/s":     count,
		"1e3/s":     count,
		"0x5/s":     count,
		"5_000/h":   count,
		"5,000/h":   count,
		"5 000/h":   count,
		"５/s":       count,
		"--5/s":     count,
		"0/s":       count,
		"-0/s":      count,
		"-5/s":      count,

		"9223372036854775808/s":  count, // overflows
		"-9223372036854775809/s": count,
		"99999999999999999999/s": count,

		"5/":           period,
		"5/ ":          period,
		"5/0":          period,
		"5/0s":         period,
		"5/-1s":        period,
		"5/-s":         period,
		"5/1":          period,
		"5/20":         period,
		"5/S":          period,
		"5/Hour":       period,
		"5/seconds":    period,
		"5/fortnight":  period,
		"5/2d":         period, // a day is 24 h here and nothing to time.ParseDuration
		"5/1s/s":       period,
		"5//s":         period,
		"5/2 s":        period,
		"5/s\x00":      period,
		"1/9999999h":   period, // overflows
		"1/2562048h":   period,
		"5/0.1ns":      period, // rounds to nothing
		"1000000001/s": "more than one per nanosecond",
		"2/ns":         "more than one per nanosecond",
		"5/4ns":        "more than one per nanosecond",

		"9223372036854775807/d": "more than one per nanosecond",
	} {
		got, err := limits.ParseRate(s)
		switch {
		case err == nil || got != limits.Rate{}:
			t.Errorf("ParseRate(%q) = %v, %v; want an error", s, got, err)
		case !strings.HasPrefix(err.Error(), "sluice: rate ") || !strings.Contains(err.Error(), want):
			t.Errorf("ParseRate(%q): message %q, want it to say %q", s, err, want)
		}
	}
}

func TestRate_String_IsReadByParseRate(t *testing.T) {
	for want, r := range map[string]limits.Rate{
		"5/s":              {Count: 5, Per: time.Second},
		"5/m":              {Count: 5, Per: 60 * time.Second},
		"5000/h":           {Count: 5000, Per: time.Hour},
		"1/d":              {Count: 1, Per: aDay},
		"1/48h0m0s":        {Count: 1, Per: 2 * aDay},
		"2/ms":             {Count: 2, Per: time.Millisecond},
		"2/us":             {Count: 2, Per: time.Microsecond},
		"1/ns":             {Count: 1, Per: 1},
		"300/20s":          {Count: 300, Per: 20 * time.Second},
		"10/1m30s":         {Count: 10, Per: 90 * time.Second},
		"3/1.5s":           {Count: 3, Per: 1500 * time.Millisecond},
		"1000000000/s":     {Count: 1e9, Per: time.Second},
		"1/1h0m0.000001s":  {Count: 1, Per: time.Hour + time.Microsecond},
		"1/23h59m59.9999s": {Count: 1, Per: aDay - 100*time.Microsecond},
	} {
		if got := r.String(); got != want {
			t.Errorf("String of %d per %d ns = %q, want %q", r.Count, r.Per, got, want)
		}
		if got, err := limits.ParseRate(r.String()); err != nil || got != r {
			t.Errorf("ParseRate(%q) = %v, %v", r.String(), got, err)
		}
		if got := fmt.Sprint(r); got != want {
			t.Errorf("printed as %q, want %q", got, want)
		}
	}
	if got := (limits.Rate{}).String(); got != "unlimited" {
		t.Errorf("the zero Rate is %q", got)
	}
}

func TestRate_Interval_IsRoundedDownToANanosecond(t *testing.T) {
	for r, want := range map[limits.Rate]time.Duration{
		{}:                                         0,
		{Count: 1, Per: time.Second}:               time.Second,
		{Count: 10, Per: time.Second}:              100 * time.Millisecond,
		{Count: 300, Per: 20 * time.Second}:        66666666, // 66,666,666⅔
		{Count: 3, Per: time.Second}:               333333333,
		{Count: 1e9, Per: time.Second}:             1,
		{Count: 999999999, Per: time.Second}:       1, // 1.000000001
		{Count: 1, Per: math.MaxInt64}:             math.MaxInt64,
		{Count: math.MaxInt64, Per: math.MaxInt64}: 1,
	} {
		if got := r.Interval(); got != want {
			t.Errorf("Interval of %v = %v, want %v", r, got, want)
		}
	}
}

func TestRate_IsAFlag(t *testing.T) {
	parse := func(args ...string) (r limits.Rate, usage string, err error) {
		var out strings.Builder
		fs := flag.NewFlagSet("test", flag.ContinueOnError)
		fs.SetOutput(&out)
		fs.TextVar(&r, "rate", limits.Rate{Count: 5, Per: time.Second}, "calls `per` period")
		err = fs.Parse(args)
		return r, out.String(), err
	}
	for _, c := range []struct {
		args []string
		want limits.Rate
	}{
		{nil, limits.Rate{Count: 5, Per: time.Second}},
		{[]string{"-rate", "300/20s"}, limits.Rate{Count: 300, Per: 20 * time.Second}},
		{[]string{"-rate=1 / day"}, limits.Rate{Count: 1, Per: aDay}},
		{[]string{"-rate", "unlimited"}, limits.Rate{}},
	} {
		if got, _, err := parse(c.args...); err != nil || got != c.want {
			t.Errorf("%q: %v, %v; want %v", c.args, got, err, c.want)
		}
	}
	got, usage, err := parse("-rate", "5")
	if err == nil || !strings.Contains(err.Error(), `want a count and a period, such as "5/s" or "300/20s"`) {
		t.Errorf("-rate 5: %v", err)
	}
	if want := (limits.Rate{Count: 5, Per: time.Second}); got != want {
		t.Errorf("-rate 5 left %v, not the default", got)
	}
	if !strings.Contains(usage, "(default 5/s)") {
		t.Errorf("the usage does not show the default:\n%s", usage)
	}
}

func TestRate_IsTextInJSON(t *testing.T) {
	type config struct{ A, B limits.Rate }
	in := config{A: limits.Rate{Count: 300, Per: 20 * time.Second}}
	data, err := json.Marshal(in)
	if want := `{"A":"300/20s","B":"unlimited"}`; err != nil || string(data) != want {
		t.Errorf("Marshal = %s, %v; want %s", data, err, want)
	}
	var out config
	if err := json.Unmarshal(data, &out); err != nil || out != in {
		t.Errorf("Unmarshal = %v, %v", out, err)
	}
}

func TestRate_UnmarshalText_ErrorChangesNothing(t *testing.T) {
	for _, s := range []string{"", "5", "5/0s", "Unlimited", "unlimited "} {
		r := limits.Rate{Count: 7, Per: time.Hour}
		if err := r.UnmarshalText([]byte(s)); err == nil || r.Count != 7 || r.Per != time.Hour {
			t.Errorf("UnmarshalText(%q): %v, left %v", s, err, r)
		}
	}
}

// FuzzParseRate: whatever is read is a rate that a gate takes and comes back
// from its own String; every rate that is one can be written and read.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{
		"5/s", " 5000 / h", "300/20s", "1/day", "1000000000/s", "1/2562047h47m16.854775807s", "unlimited",
		"", "5", "/s", "5/", "0/s", "5/0s", "-1/-1s", "9223372036854775808/s", "1e3/s", "5/s/s", "5/µs", "5/1\u03bcs", "\xff/\xff",
	} {
		f.Add(s, int64(len(s)), int64(time.Second))
	}
	f.Add("1/ns", int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add("1/d", int64(math.MinInt64), int64(math.MinInt64))
	f.Add("2/ns", int64(1e9), int64(1e9-1))
	f.Fuzz(func(t *testing.T, s string, count, per int64) {
		parsed, err := limits.ParseRate(s)
		if err != nil {
			if parsed != (limits.Rate{}) || !strings.HasPrefix(err.Error(), "sluice: rate ") {
				t.Errorf("ParseRate(%q) = %v, %v", s, parsed, err)
			}
			parsed = limits.Rate{Count: 1, Per: 1}
		}
		for _, r := range []limits.Rate{parsed, {Count: count, Per: time.Duration(per)}} {
			valid := 0 < r.Count && r.Count <= int64(r.Per)
			back, err := limits.ParseRate(r.String())
			switch {
			case !valid && err == nil:
				t.Errorf("%q was read as %v", r.String(), back)
			case valid && (err != nil || back != r):
				t.Errorf("ParseRate(%q) = %v, %v", r.String(), back, err)
			}
			err = rates.Check(r.Count, r.Per, r.Burst)
			if r != (limits.Rate{}) && (err == nil) != valid {
				t.Errorf("Check of a rate of %d per %d ns: %v", r.Count, r.Per, err)
			}
			if valid && r.Interval() < 1 {
				t.Errorf("Interval of %v = %v", r, r.Interval())
			}
			text, err := r.MarshalText()
			if err != nil || string(text) != r.String() {
				t.Errorf("MarshalText of %v = %q, %v", r, text, err)
			}
			before := limits.Rate{Count: 7, Per: 7}
			back = before
			err = back.UnmarshalText(text)
			if want := r; err != nil {
				want = before
				if back != want || valid {
					t.Errorf("UnmarshalText(%q) = %v and left %v", text, err, back)
				}
			} else if back != want {
				t.Errorf("UnmarshalText(%q) left %v", text, back)
			}
		}
	})
}

func ExampleParseRate() {
	for _, s := range []string{"5/s", "5000/h", "300/20s", "1 / day", "5"} {
		rate, err := limits.ParseRate(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%q is %d per %v, one each %v\n", s, rate.Count, rate.Per, rate.Interval())
	}
	// Output:
	// "5/s" is 5 per 1s, one each 200ms
	// "5000/h" is 5000 per 1h0m0s, one each 720ms
	// "300/20s" is 300 per 20s, one each 66.666666ms
	// "1 / day" is 1 per 24h0m0s, one each 24h0m0s
	// sluice: rate "5": want a count and a period, such as "5/s" or "300/20s"
}

func ExampleRate_UnmarshalText() {
	var rate limits.Rate
	flags := flag.NewFlagSet("crawl", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.TextVar(&rate, "rate", limits.Rate{Count: 1, Per: time.Second}, "calls per period")

	fmt.Println(rate)
	err := flags.Parse([]string{"-rate", "5000/h"})
	fmt.Println(rate, err)
	err = flags.Parse([]string{"-rate", "unlimited"})
	fmt.Println(rate, err)
	// Output:
	// 1/s
	// 5000/h <nil>
	// unlimited <nil>
}

func TestPerSecond(t *testing.T) {
	for name, c := range map[string]struct {
		rate limits.Rate
		want string // of the interval, or "" for an error
	}{
		"10 per second":         {limits.PerSecond(10), "100ms"},
		"none per second":       {limits.PerSecond(0), ""},
		"less than none":        {limits.PerSecond(-1), ""},
		"more than a billion/s": {limits.PerSecond(1e9 + 1), ""},
	} {
		switch err := rates.Check(c.rate.Count, c.rate.Per, c.rate.Burst); {
		case (err != nil) != (c.want == ""):
			t.Errorf("%s: %v", name, err)
		case err == nil && c.rate.Interval().String() != c.want:
			t.Errorf("%s: one every %v, want %s", name, c.rate.Interval(), c.want)
		}
	}
}
