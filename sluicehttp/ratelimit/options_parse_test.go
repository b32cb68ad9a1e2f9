package ratelimit

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// fields makes a header of "Name: value" lines.
func fields(lines ...string) http.Header {
	header := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	return header
}

func in(d time.Duration) time.Time { return arrival.Add(d) }

func amount(s string) Amount {
	n, _, why := parseNumber(s)
	if why != "" {
		panic(why)
	}
	return n.amount()
}

// What the vectors do not have: units, windows, partitions, sources, words.
func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		want   Info
	}{
		{"GitHub", 403, fields("X-RateLimit-Limit: 5000", "X-RateLimit-Used: 5000", "X-RateLimit-Remaining: 0",
			"X-RateLimit-Reset: 1795264200", "X-RateLimit-Resource: core"),
			Info{Throttled: true, RetryAt: in(30 * time.Minute), RetrySource: "X-Ratelimit-Reset", Limits: []Limit{{
				Name: "core", Max: amountOf(5000), Used: amountOf(5000), Remaining: amountOf(0),
				ResetAt: in(30 * time.Minute), Rounding: time.Second, Source: "X-Ratelimit-Reset"}}}},
		{"GitHub's other API counts points", 200, fields("X-RateLimit-Remaining: 7", "X-RateLimit-Resource: graphql"),
			Info{Limits: []Limit{{Name: "graphql", Unit: "points", Remaining: amountOf(7), Source: "X-Ratelimit-Remaining"}}}},
		{"GitHub refuses, but not by the limit it shows", 429, fields("X-RateLimit-Remaining: 7", "X-RateLimit-Resource: core", "X-RateLimit-Reset: 30"),
			Info{Throttled: true, Floor: time.Minute, Limits: []Limit{{Name: "core", Remaining: amountOf(7), ResetAt: in(30 * time.Second), Rounding: time.Second, Source: "X-Ratelimit-Reset"}}}},
		{"GitHub refuses, perhaps for another reason", 403, fields("X-RateLimit-Remaining: 7", "X-GitHub-Request-Id: 1:2:3"),
			Info{Floor: time.Minute, Limits: []Limit{{Remaining: amountOf(7), Source: "X-Ratelimit-Remaining"}}}},
		{"GitHub refuses by a limit it shows", 429, fields("X-RateLimit-Remaining-A: 7", "X-RateLimit-Remaining: 0", "X-RateLimit-Resource: core"),
			Info{Throttled: true, Limits: []Limit{
				{Name: "a", Unit: "a", Remaining: amountOf(7), Source: "X-Ratelimit-Remaining-A"},
				{Name: "core", Remaining: amountOf(0), Source: "X-Ratelimit-Remaining"}}}},
		{"GitHub fails", 500, fields("X-RateLimit-Remaining: 7", "X-RateLimit-Resource: core"),
			Info{Limits: []Limit{{Name: "core", Remaining: amountOf(7), Source: "X-Ratelimit-Remaining"}}}},
		{"GitLab", 429, fields("RateLimit-Limit: 600", "RateLimit-Observed: 5", "RateLimit-Remaining: 595", "RateLimit-Reset: 1795262460"),
			Info{Throttled: true, Floor: time.Minute, Limits: []Limit{{
				Max: amountOf(600), Used: amountOf(5), Remaining: amountOf(595), ResetAt: in(time.Minute), Rounding: time.Second, Source: "Ratelimit-Reset"}}}},
		{"GitLab says when", 429, fields("RateLimit-Observed: 5", "RateLimit-Remaining: 595", "Retry-After: 9"),
			Info{Throttled: true, RetryAt: in(9 * time.Second), RetrySource: "Retry-After", Limits: []Limit{{
				Max: amountOf(600), Used: amountOf(5), Remaining: amountOf(595), Source: "Ratelimit-Remaining"}}}},
		{"somebody else", 429, fields("RateLimit-Limit: 600", "RateLimit-Remaining: 595"),
			Info{Throttled: true, Limits: []Limit{{Max: amountOf(600), Remaining: amountOf(595), Source: "Ratelimit-Limit"}}}},
		{"GitLab's date", 200, fields("RateLimit-Remaining: 595", "RateLimit-ResetTime: Sat, 21 Nov 2026 12:01:00 GMT"),
			Info{Limits: []Limit{{Remaining: amountOf(595), ResetAt: in(time.Minute), Rounding: time.Second, Source: "Ratelimit-Resettime"}}}},
		{"Discord", 429, fields("Retry-After: 65", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1470173023.123",
			"X-RateLimit-Reset-After: 64.57", "X-RateLimit-Bucket: abcd1234", "X-RateLimit-Scope: user"),
			Info{Throttled: true, RetryAt: in(65 * time.Second), RetrySource: "Retry-After", Bucket: "abcd1234", Scope: "user", Limits: []Limit{{
				Max: amountOf(10), Remaining: amountOf(0), ResetAt: in(64570 * time.Millisecond), Source: "X-Ratelimit-Reset-After"}}}},
		{"Discord, all calls", 429, fields("Retry-After: 65", "X-RateLimit-Global: True"),
			Info{Throttled: true, RetryAt: in(65 * time.Second), RetrySource: "Retry-After", Global: true}},
		{"not all calls", 429, fields("X-RateLimit-Global: false"), Info{Throttled: true}},
		{"Atlassian", 429, fields("Retry-After: 60", "RateLimit-Reason: jira-burst-based"),
			Info{Throttled: true, RetryAt: in(time.Minute), RetrySource: "Retry-After", Reason: "jira-burst-based"}},
		{"Amazon", 200, fields("x-amzn-RateLimit-Limit: 0.5"), Info{Rate: limits.Rate{Count: 1, Per: 2 * time.Second}}},
		{"Amazon, slow", 200, fields("x-amzn-RateLimit-Limit: 0.0167"), Info{Rate: limits.Rate{Count: 167, Per: 10000 * time.Second}}},
		{"Shopify", 200, fields("X-Shopify-Shop-Api-Call-Limit: 32.5 / 40"),
			Info{Limits: []Limit{{Unit: "requests", Max: amountOf(40), Used: amount("32.5"), Remaining: amount("7.5"), Source: "X-Shopify-Shop-Api-Call-Limit"}}}},
		{"Fastly", 200, fields("Fastly-RateLimit-Remaining: 987", "Fastly-RateLimit-Reset: 1795262460"),
			Info{Limits: []Limit{{Name: "fastly", Remaining: amountOf(987), ResetAt: in(time.Minute), Rounding: time.Second, Source: "Fastly-Ratelimit-Reset"}}}},
		{"Brevo", 429, fields("X-Sib-RateLimit-Limit: 100", "X-Sib-RateLimit-Remaining: 0", "X-Sib-RateLimit-Reset: 60"),
			Info{Throttled: true, RetryAt: in(time.Minute), RetrySource: "X-Sib-Ratelimit-Reset", Limits: []Limit{{
				Name: "sib", Max: amountOf(100), Remaining: amountOf(0), ResetAt: in(time.Minute), Rounding: time.Second, Source: "X-Sib-Ratelimit-Reset"}}}},
		{"Bokio", 429, fields("Bokio-RateLimit-Limit: 200", "Bokio-RateLimit-Remaining: 0", "Bokio-RateLimit-RetryAfter: 7"),
			Info{Throttled: true, RetryAt: in(7 * time.Second), RetrySource: "Bokio-Ratelimit-Retryafter", Limits: []Limit{{
				Name: "bokio", Max: amountOf(200), Remaining: amountOf(0), Source: "Bokio-Ratelimit-Limit"}}}},
		{"a vendor's Retry-After", 429, fields("Acme-RateLimit-Retry-After: 7", "Acme-Rate-Limit-Remaining: 3", "Acme-Rate-Limit-Reset-After: 9"),
			Info{Throttled: true, RetryAt: in(7 * time.Second), RetrySource: "Acme-Ratelimit-Retry-After", Limits: []Limit{{
				Name: "acme", Remaining: amountOf(3), ResetAt: in(9 * time.Second), Rounding: time.Second, Source: "Acme-Rate-Limit-Reset-After"}}}},
		{"Sentry", 200, fields("X-Sentry-Rate-Limit-Limit: 40", "X-Sentry-Rate-Limit-Remaining: 39", "X-Sentry-Rate-Limit-Reset: 1795262460"),
			Info{Limits: []Limit{{Name: "sentry", Max: amountOf(40), Remaining: amountOf(39), ResetAt: in(time.Minute), Rounding: time.Second, Source: "X-Sentry-Rate-Limit-Reset"}}}},
		{"a gateway and the server behind it", 200, fields("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "Acme-RateLimit-Limit: 100", "Acme-RateLimit-Remaining: 99"),
			Info{Limits: []Limit{
				{Max: amountOf(5), Remaining: amountOf(4), Source: "X-Ratelimit-Limit"},
				{Name: "acme", Max: amountOf(100), Remaining: amountOf(99), Source: "Acme-Ratelimit-Limit"}}}},
		{"HubSpot", 200, fields("X-HubSpot-RateLimit-Daily: 250000", "X-HubSpot-RateLimit-Daily-Remaining: 249999", "X-HubSpot-RateLimit-Secondly: 19"),
			Info{Limits: []Limit{
				{Name: "daily", Unit: "requests", Max: amountOf(250000), Remaining: amountOf(249999), Window: 24 * time.Hour, Source: "X-Hubspot-Ratelimit-Daily"},
				{Name: "secondly", Unit: "requests", Max: amountOf(19), Window: time.Second, Source: "X-Hubspot-Ratelimit-Secondly"}}}},
		{"HubSpot, ten seconds", 200, fields("X-HubSpot-RateLimit-Max: 110", "X-HubSpot-RateLimit-Remaining: 108", "X-HubSpot-RateLimit-Interval-Milliseconds: 10000"),
			Info{Limits: []Limit{{Name: "hubspot", Max: amountOf(110), Remaining: amountOf(108), Window: 10 * time.Second, Source: "X-Hubspot-Ratelimit-Max"}}}},
		{"HighLevel", 200, fields("X-RateLimit-Max: 100", "X-RateLimit-Remaining: 42", "X-RateLimit-Interval-Milliseconds: 10000"),
			Info{Limits: []Limit{{Max: amountOf(100), Remaining: amountOf(42), Window: 10 * time.Second, Source: "X-Ratelimit-Max"}}}},
		{"Crossref", 200, fields("X-Rate-Limit-Limit: 50", "X-Rate-Limit-Interval: 1s"),
			Info{Limits: []Limit{{Max: amountOf(50), Window: time.Second, Source: "X-Rate-Limit-Limit"}}}},
		{"Crossref, without a unit", 200, fields("X-Rate-Limit-Limit: 50", "X-Rate-Limit-Interval: 60"),
			Info{Limits: []Limit{{Max: amountOf(50), Window: time.Minute, Source: "X-Rate-Limit-Limit"}}}},
		{"Trello", 200, fields("X-Rate-Limit-Api-Token-Max: 100", "X-Rate-Limit-Api-Token-Remaining: 97", "X-Rate-Limit-Api-Token-Interval-Ms: 10000", "X-Rate-Limit-Api-Key-Max: 300"),
			Info{Limits: []Limit{
				{Name: "api-key", Unit: "requests", Max: amountOf(300), Source: "X-Rate-Limit-Api-Key-Max"},
				{Name: "api-token", Unit: "requests", Max: amountOf(100), Remaining: amountOf(97), Window: 10 * time.Second, Source: "X-Rate-Limit-Api-Token-Max"}}}},
		{"only an interval", 200, fields("X-RateLimit-Interval: 1s"), Info{}},
		{"Kong", 200, fields("X-RateLimit-Limit-Minute: 60", "X-RateLimit-Limit-Hour: 600", "X-RateLimit-Remaining-Second: 1", "X-RateLimit-Remaining-Month: 3"),
			Info{Limits: []Limit{
				{Name: "hour", Unit: "requests", Max: amountOf(600), Window: time.Hour, Source: "X-Ratelimit-Limit-Hour"},
				{Name: "minute", Unit: "requests", Max: amountOf(60), Window: time.Minute, Source: "X-Ratelimit-Limit-Minute"},
				{Name: "month", Unit: "requests", Remaining: amountOf(3), Source: "X-Ratelimit-Remaining-Month"},
				{Name: "second", Unit: "requests", Remaining: amountOf(1), Window: time.Second, Source: "X-Ratelimit-Remaining-Second"}}}},
		{"Anthropic", 200, fields("Anthropic-RateLimit-Input-Tokens-Remaining: 5", "Anthropic-RateLimit-Requests-Remaining: 6"),
			Info{Limits: []Limit{
				{Name: "input-tokens", Unit: "tokens", Remaining: amountOf(5), Source: "Anthropic-Ratelimit-Input-Tokens-Remaining"},
				{Name: "requests", Unit: "requests", Remaining: amountOf(6), Source: "Anthropic-Ratelimit-Requests-Remaining"}}}},
		{"Linear", 200, fields("X-RateLimit-Complexity-Remaining: 5"),
			Info{Limits: []Limit{{Name: "complexity", Unit: "complexity", Remaining: amountOf(5), Source: "X-Ratelimit-Complexity-Remaining"}}}},
		{"draft 10", 200, fields(`RateLimit: "a";r=0;t=10;pk=:eA==:`, `RateLimit-Policy: "a";q=100;w=60;qu="content-bytes";pk=:eA==:`),
			Info{Limits: []Limit{{Name: "a", Unit: "bytes", Max: amountOf(100), Remaining: amountOf(0), Window: time.Minute,
				ResetAt: in(10 * time.Second), Rounding: time.Second, Partition: "x", Source: "Ratelimit"}}}},
		{"draft 10: a policy for every partition", 200, fields(`RateLimit: "a";r=1;pk=:eA==:, "a";r=2;pk=:eQ==:`, `RateLimit-Policy: "a";q=100;w=60`),
			Info{Limits: []Limit{
				{Name: "a", Unit: "requests", Max: amountOf(100), Remaining: amountOf(1), Window: time.Minute, Partition: "x", Source: "Ratelimit"},
				{Name: "a", Unit: "requests", Max: amountOf(100), Remaining: amountOf(2), Window: time.Minute, Partition: "y", Source: "Ratelimit"}}}},
		{"draft 10: the partition stands in the policy alone", 200, fields(`RateLimit: "a";r=1`, `RateLimit-Policy: "a";q=100;w=60;pk=:eA==:`),
			Info{Limits: []Limit{{Name: "a", Unit: "requests", Max: amountOf(100), Remaining: amountOf(1), Window: time.Minute, Source: "Ratelimit"}}}},
		{"draft 10: two partitions", 200, fields(`RateLimit: "a";r=1;pk=:eQ==:`, `RateLimit-Policy: "a";q=100;w=60;pk=:eA==:`),
			Info{Limits: []Limit{
				{Name: "a", Unit: "requests", Max: amountOf(100), Window: time.Minute, Partition: "x", Source: "Ratelimit-Policy"},
				{Name: "a", Remaining: amountOf(1), Partition: "y", Source: "Ratelimit"}}}},
		{"draft 10: a policy for one partition, and one for others", 200, fields(`RateLimit: "a";r=1;pk=:eA==:`, `RateLimit-Policy: "a";q=100;pk=:eA==:, "a";q=50`),
			Info{Limits: []Limit{
				{Name: "a", Unit: "requests", Max: amountOf(50), Source: "Ratelimit-Policy"},
				{Name: "a", Unit: "requests", Max: amountOf(100), Remaining: amountOf(1), Partition: "x", Source: "Ratelimit"}}}},
		{"draft 10: calls in flight", 200, fields(`RateLimit-Policy: "p";q=10;qu="concurrent-requests", "q";q=10;qu="request", "r";q=10;qu="furlongs"`),
			Info{Limits: []Limit{
				{Name: "p", Unit: "concurrent", Max: amountOf(10), Source: "Ratelimit-Policy"},
				{Name: "q", Unit: "requests", Max: amountOf(10), Source: "Ratelimit-Policy"},
				{Name: "r", Unit: "furlongs", Max: amountOf(10), Source: "Ratelimit-Policy"}}}},
		{"draft 10: a wait beyond all times", 429, fields(`RateLimit: "a";r=0;t=999999999999999`),
			Info{Throttled: true, RetryAt: in(1<<63 - 1), RetrySource: "Ratelimit", Limits: []Limit{{
				Name: "a", Remaining: amountOf(0), ResetAt: in(1<<63 - 1), Rounding: time.Second, Source: "Ratelimit"}}}},
		{"draft 07", 200, fields("RateLimit: limit=100, remaining=-1, reset=30", "RateLimit-Policy: 1000;w=3600, 100;w=60"),
			Info{Limits: []Limit{
				{Unit: "requests", Max: amountOf(100), Window: time.Minute, ResetAt: in(30 * time.Second), Rounding: time.Second, Source: "Ratelimit"},
				{Unit: "requests", Max: amountOf(1000), Window: time.Hour, Source: "Ratelimit-Policy"}}}},
		{"draft 06: the policy says the maximum", 200, fields("RateLimit-Remaining: 5", "RateLimit-Policy: 100;w=60"),
			Info{Limits: []Limit{{Unit: "requests", Max: amountOf(100), Remaining: amountOf(5), Window: time.Minute, Source: "Ratelimit-Remaining"}}}},
		{"draft 03: the window of the maximum in force", 200, fields("RateLimit-Limit: 10, 50;w=60, 10;w=1, 1000;w=3600"),
			Info{Limits: []Limit{{Max: amountOf(10), Window: time.Second, Source: "Ratelimit-Limit"}}}},
		{"draft 03: any window", 200, fields("RateLimit-Limit: 10, 50;w=60, 1000;w=3600"),
			Info{Limits: []Limit{{Max: amountOf(10), Window: time.Minute, Source: "Ratelimit-Limit"}}}},
		{"draft 03: unknown", 200, fields("RateLimit-Limit: -1", "RateLimit-Remaining: 999.5"),
			Info{Limits: []Limit{{Remaining: amount("999.5"), Source: "Ratelimit-Remaining"}}}},
		{"two families add up", 200, fields("RateLimit-Limit: 10", "RateLimit-Remaining: 5", "X-RateLimit-Limit: 10", "X-RateLimit-Reset: 30"),
			Info{Limits: []Limit{{Max: amountOf(10), Remaining: amountOf(5), ResetAt: in(30 * time.Second), Rounding: time.Second, Source: "X-Ratelimit-Reset"}}}},
		{"the next slot", 200, fields("X-RateLimit-Remaining: 0", "X-RateLimit-Next: 1795262405"),
			Info{Limits: []Limit{{Remaining: amountOf(0), ResetAt: in(5 * time.Second), Rounding: time.Second, Source: "X-Ratelimit-Next"}}}},
		{"a cache", 200, fields("Age: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Scope: user", "x-amzn-RateLimit-Limit: 5"),
			Info{FromCache: true}},
		{"a cache, and nothing of ours", 200, fields("Age: 1"), Info{FromCache: true}},
		{"a cache that has just fetched", 200, fields("Age: 0"), Info{}},
		{"no header", 429, nil, Info{Throttled: true}},
		{"no values", 200, http.Header{"X-Ratelimit-Limit": nil, "Retry-After": {}, "Ratelimit": {""}, "Age": nil}, Info{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Status, tt.want.Arrived = tt.status, arrival
			got, warnings := Parse(tt.status, tt.header, arrival)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v\nwarnings %v", got, tt.want, warnings)
			}
		})
	}
}

// What a reset may be too late by: servers round up, and a Date is rounded down.
func TestLimit_Rounding(t *testing.T) {
	const s = time.Second
	date := "Date: " + arrival.UTC().Format(http.TimeFormat)
	epoch := arrival.Unix() + 30
	for _, tt := range []struct {
		header http.Header
		want   time.Duration
	}{
		{fields("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"), s},
		{fields("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30.000"), s},
		{fields("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 29.5"), 0},
		{fields("X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 30s"), 0},
		{fields(`RateLimit: "a";r=0;t=30`), s},
		{fields("RateLimit: limit=5, remaining=0, reset=30"), s},
		{fields("X-RateLimit-Remaining: 0", fmt.Sprint("X-RateLimit-Reset: ", epoch)), s}, // the local clock
		{fields("X-RateLimit-Remaining: 0", fmt.Sprint("X-RateLimit-Reset: ", epoch), date), 2 * s},
		{fields("X-RateLimit-Remaining: 0", fmt.Sprint("X-RateLimit-Reset: ", epoch, ".25"), date), s},
		{fields("X-RateLimit-Remaining: 0", fmt.Sprint("X-RateLimit-Reset: ", 1000*epoch), date), s},
		{fields("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+arrival.Add(30*s).Format(time.RFC3339), date), 2 * s},
		{fields("RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"), s}, // of two families
		{fields("X-RateLimit-Remaining: 0"), 0},
	} {
		got, _ := Parse(200, tt.header, arrival.Add(250*time.Millisecond))
		if len(got.Limits) != 1 || got.Limits[0].Rounding != tt.want {
			t.Errorf("%v: %+v; want a rounding of %v", tt.header, got.Limits, tt.want)
		}
	}
}

func TestInfo_PauseUntil(t *testing.T) {
	const empty, full = `"a";r=0;t=10`, `"a";r=1;t=10`
	for _, tt := range []struct {
		status int
		header http.Header
		want   time.Duration // negative: no pause
		source string
	}{
		{200, fields("RateLimit: " + empty), 10 * time.Second, "Ratelimit"},
		{404, fields("RateLimit: " + empty), 10 * time.Second, "Ratelimit"},
		{500, fields("RateLimit: " + empty), 10 * time.Second, "Ratelimit"},
		{200, fields("RateLimit: " + full), -1, ""},
		{200, fields("RateLimit: " + empty + `, "b";r=0;t=20, "c";r=1;t=30`), 20 * time.Second, "Ratelimit"},
		{200, fields("RateLimit: " + empty + `, "b";r=0;t=5`), 10 * time.Second, "Ratelimit"},
		{200, fields("RateLimit: "+empty, `RateLimit-Policy: "a";q=8;qu="concurrent-requests"`), -1, ""}, // room comes back with a call
		{429, fields("RateLimit: "+empty, `RateLimit-Policy: "a";q=8;qu="concurrent-requests"`), 10 * time.Second, "Ratelimit"},
		{200, fields("RateLimit: "+empty, "Age: 5"), -1, ""},
		{200, fields("X-RateLimit-Remaining: 0"), -1, ""}, // until when?
		{429, fields("RateLimit: " + full), -1, ""},       // backoff
		{429, fields("RateLimit: "+empty, "Retry-After: 5"), 5 * time.Second, "Retry-After"},
		{500, fields("RateLimit: "+empty, "Retry-After: 5"), 10 * time.Second, "Ratelimit"},
		{500, fields("Retry-After: 5"), -1, ""}, // only for this call
		{503, fields("Retry-After: 5"), 5 * time.Second, "Retry-After"},
		{301, fields("RateLimit: " + empty), -1, ""}, // the draft warns of it
		{301, fields("RateLimit: "+empty, "Retry-After: 5"), 5 * time.Second, "Retry-After"},
		{304, fields("RateLimit: " + empty), 10 * time.Second, "Ratelimit"}, // no redirect
	} {
		s, _ := Parse(tt.status, tt.header, arrival)
		at, source := s.PauseUntil()
		want := time.Time{}
		if tt.want >= 0 {
			want = in(tt.want)
		}
		if !at.Equal(want) || source != tt.source {
			t.Errorf("%d %v: got %v %q, want %v %q", tt.status, tt.header, at, source, want, tt.source)
		}
	}
}

func TestOptions(t *testing.T) {
	parse := func(o Options, lines ...string) Info {
		t.Helper()
		s, _ := Parse(429, fields(lines...), arrival, o)
		return s
	}
	wait := func(s Info, want time.Duration) {
		t.Helper()
		if got := s.RetryAt.Sub(arrival); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	wait(parse(Options{Millis: []string{"retry-AFTER"}}, "Retry-After: 1500"), 1500*time.Millisecond)
	wait(parse(Options{Millis: []string{"Retry-After"}}, "X-Retry-After: 1500"), 1500*time.Second)
	wait(parse(Options{Millis: []string{"Retry-After"}}, "Retry-After: 2s"), 2*time.Second)
	wait(parse(Options{Millis: []string{"X-RateLimit-Reset-Tokens"}}, "X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 5"), 5*time.Millisecond)
	s := parse(Options{CacheMarkers: []string{"X-From-Cache", "X-Other"}}, "x-from-cache: 1", "X-RateLimit-Remaining: 0")
	if !s.FromCache || len(s.Limits) > 0 {
		t.Errorf("marked by a cache: got %+v", s)
	}
	s = parse(Options{CacheMarkers: []string{"X-From-Cache"}}, "X-RateLimit-Remaining: 0")
	if s.FromCache || len(s.Limits) != 1 {
		t.Errorf("not marked by a cache: got %+v", s)
	}
}

func TestParse_Warnings(t *testing.T) {
	long := strings.Repeat("1", 4097)
	for _, tt := range []struct {
		status int
		header http.Header
		want   []string // fields, or all of a warning
	}{
		{200, fields("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 5"), nil},
		{200, fields("X-RateLimit-Limit: -1", "X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 0"), nil},
		{200, fields("X-RateLimit-Limit: -2"), []string{`X-Ratelimit-Limit: not a number: "-2"`}},
		{200, fields("X-RateLimit-Used: -1"), []string{`X-Ratelimit-Used: not a number: "-1"`}},
		{200, fields("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 10"), []string{`X-Ratelimit-Limit: more remains than the limit: "10"`}},
		{200, fields("X-Ms-RateLimit-Remaining-Subscription-Reads: 0"), nil}, // there never is one
		{200, fields("X-Shopify-Shop-Api-Call-Limit: 40/40"), nil},
		{200, fields("X-HubSpot-RateLimit-Daily: 10", "X-HubSpot-RateLimit-Daily-Remaining: 0"), nil},
		{200, fields("X-RateLimit-Remaining: 0"), []string{`X-Ratelimit-Remaining: nothing remains, but there is no reset`}},
		{429, fields("X-RateLimit-Remaining: 0"), nil},
		{429, fields("Retry-After: soon"), []string{`Retry-After: not a time: "soon"`}},
		{200, fields("Retry-After: soon"), nil}, // not read
		{429, fields("Retry-After: 99999999999999999999"), []string{`Retry-After: out of range: "99999999999999999999"`}},
		{429, fields("Retry-After-Ms: soon", "Retry-After: 5"), []string{"Retry-After-Ms"}},
		{429, fields("Retry-After-Ms: 5", "Retry-After: soon"), nil}, // not read
		{429, fields("Retry-After: 5", "Retry-After: 6"), nil},       // the longest, as it should
		{429, fields("X-Should-Retry: perhaps"), []string{`X-Should-Retry: neither true nor false: "perhaps"`}},
		{429, fields("X-RateLimit-Global: perhaps"), []string{`X-Ratelimit-Global: neither true nor false: "perhaps"`}},
		{200, fields("Grpc-Retry-Pushback-Ms: -1"), nil},
		{200, fields("Grpc-Retry-Pushback-Ms: -2"), []string{"Grpc-Retry-Pushback-Ms"}},
		{200, fields("X-RateLimit-Limit: 5", "X-RateLimit-Limit: 6"), []string{`X-Ratelimit-Limit: more than one value: only the first is read: "6"`}},
		{200, fields("X-RateLimit-Reset: 5", "X-RateLimit-Reset: 6"), []string{"X-Ratelimit-Reset"}},
		{200, fields("X-RateLimit-Reset: 5", "X-RateLimit-Reset-After: 5"), nil},
		{200, fields("X-RateLimit-Interval: 5", "X-RateLimit-Interval: 6"), []string{"X-Ratelimit-Interval"}},
		{200, fields("X-RateLimit-Interval: 0"), []string{`X-Ratelimit-Interval: not the length of a window: "0"`}},
		{200, fields("X-RateLimit-Interval: 1795262460"), []string{`X-Ratelimit-Interval: not the length of a window: "1795262460"`}},
		{200, fields("X-RateLimit-Interval: soon"), []string{`X-Ratelimit-Interval: not a time: "soon"`}},
		{200, fields("X-RateLimit-Limit: 5", "X-Rate-Limit-Limit: 6"), []string{"X-Rate-Limit-Limit"}},
		{200, fields("X-RateLimit-Limit: 5", "X-Rate-Limit-Limit: 5"), nil},
		{200, fields("RateLimit-Limit: 5", "X-RateLimit-Limit: 6"), []string{"X-Ratelimit-Limit: ignored: it contradicts Ratelimit-Limit"}},
		{200, fields(`RateLimit: "a";r=5,`), []string{`Ratelimit: not a structured field: "\"a\";r=5,"`}},
		{200, fields(`RateLimit: a=5`), []string{`Ratelimit: not a structured field: "a=5"`}},
		{200, fields(`RateLimit: limit=a`), []string{`Ratelimit: of the wrong type: "limit"`}},
		{200, fields(`RateLimit: limit`), []string{`Ratelimit: of the wrong type: "limit"`}},
		{200, fields(`RateLimit: reset=-1`), []string{`Ratelimit: of the wrong type: "reset"`}},
		{200, fields(`RateLimit: reset=999999999999999`), []string{`Ratelimit: out of range: "reset"`}},
		{200, fields(`RateLimit: "a";r=-1, ("b")`), []string{
			`Ratelimit: with a parameter of the wrong type, or out of range: "\"a\";r=-1"`, `Ratelimit: of the wrong type: "(\"b\")"`}},
		{200, fields(`RateLimit: "a";r=5, "a";r=6`), []string{"Ratelimit: ignored: it contradicts Ratelimit"}},
		{200, fields(`RateLimit: garbage`), []string{`Ratelimit: says nothing: "garbage"`}},
		{200, fields(`RateLimit-Policy: -5`), []string{"Ratelimit-Policy"}},
		{200, fields(`RateLimit-Limit: a=b`), []string{"Ratelimit-Limit"}},
		{200, fields(`RateLimit-Limit: "a"`), []string{"Ratelimit-Limit"}},
		{200, fields("X-Shopify-Shop-Api-Call-Limit: 40"), []string{"X-Shopify-Shop-Api-Call-Limit"}},
		{200, fields("X-Shopify-Shop-Api-Call-Limit: 1/40", "X-Shopify-Shop-Api-Call-Limit: 2/40"), []string{"X-Shopify-Shop-Api-Call-Limit"}},
		{200, fields("X-Ms-RateLimit-Remaining-Reads: many"), []string{"X-Ms-Ratelimit-Remaining-Reads"}},
		{200, fields("X-Ms-RateLimit-Remaining-Reads: -1"), nil},
		{200, fields("x-amzn-RateLimit-Limit: 0"), []string{"X-Amzn-Ratelimit-Limit"}},
		{200, fields("x-amzn-RateLimit-Limit: many"), []string{"X-Amzn-Ratelimit-Limit"}},
		{200, fields("x-amzn-RateLimit-Limit: 5", "x-amzn-RateLimit-Limit: 6"), []string{"X-Amzn-Ratelimit-Limit"}},
		{429, fields("Date: today", "Retry-After: 5"), nil}, // not read
		{429, fields("Date: today", "Retry-After: 1795262460"), []string{`Date: not a time: "today"`}},
		{429, fields("Date: Tue, 24 Nov 2026 12:00:00 GMT", "Retry-After: 1795262460"), []string{"Date"}},
		{429, fields("Retry-After: " + long), []string{`Retry-After: too long: "` + long[:64] + `"`}},
		{429, fields("X-RateLimit-Bucket: " + long[:65]), []string{"X-Ratelimit-Bucket"}},
		{429, fields("X-RateLimit-Bucket: a", "X-RateLimit-Bucket: b"), []string{"X-Ratelimit-Bucket"}},
	} {
		_, warnings := Parse(tt.status, tt.header, arrival)
		ok := len(warnings) == len(tt.want)
		for i := 0; ok && i < len(warnings); i++ {
			ok = warnings[i].Field == tt.want[i] || warnings[i].String() == tt.want[i]
		}
		if !ok {
			t.Errorf("%d %.200v:\ngot  %v\nwant %v", tt.status, tt.header, warnings, tt.want)
		}
	}
}

// Whatever is sent, the work and the answer are bounded.
func TestParse_Bounds(t *testing.T) {
	header := http.Header{}
	for i := range 100 {
		header.Set(fmt.Sprintf("X-RateLimit-Limit-Unit%02d", i), "5")
		header.Add("Retry-After", fmt.Sprint(i))
	}
	s, warnings := Parse(429, header, arrival)
	if len(s.Limits) != 31 || s.Limits[30].Name != "unit30" {
		t.Errorf("100 fields: got %d limits, want Retry-After and the first 31", len(s.Limits))
	}
	if got := s.RetryAt.Sub(arrival); got != 63*time.Second {
		t.Errorf("100 values: got %v, want the longest of the first 64", got)
	}
	if len(warnings) != 2 {
		t.Errorf("got warnings %v, want two", warnings)
	}
	header = http.Header{"Retry-After": header["Retry-After"][:65]}
	if s, _ := Parse(429, header, arrival); s.RetryAt.Sub(arrival) != 63*time.Second {
		t.Errorf("65 values: got %v, want the longest of the first 64", s.RetryAt.Sub(arrival))
	}

	var items, pairs, bad []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`"p%03d";r=%d;q=%d`, i, i, i))
		pairs = append(pairs, fmt.Sprintf(`"p%03d";%d`, i, i))
		bad = append(bad, fmt.Sprintf(`"p%03d";r=-1;q=-1`, i))
	}
	for name, list := range map[string][]string{"RateLimit": items, "RateLimit-Policy": items, "X-Ms-RateLimit-Remaining-Resource": pairs} {
		s, warnings := Parse(429, fields(name+": "+strings.Join(list, ",")), arrival)
		if len(s.Limits) != 64 || !strings.Contains(s.Limits[63].Name, "p063") || len(warnings) != 1 {
			t.Errorf("%s: got %d limits, warnings %v", name, len(s.Limits), warnings)
		}
	}
	_, warnings = Parse(200, fields("RateLimit: "+strings.Join(bad, ","), "RateLimit-Policy: "+strings.Join(bad, ",")), arrival)
	if len(warnings) != mostWarnings {
		t.Errorf("got %d warnings, want %d", len(warnings), mostWarnings)
	}
	for _, size := range []int{4096, 4097, 100 << 10} {
		s, _ := Parse(429, fields("Retry-After: "+strings.Repeat(" ", size-1)+"5"), arrival)
		if read := !s.RetryAt.IsZero(); read != (size <= 4096) {
			t.Errorf("%d bytes: read is %v", size, read)
		}
	}
}

func TestParse_ReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		for name, header := range map[string]http.Header{
			"ordinary": ordinary(), "github": github(), "openai": openai(), "ietf": ietf(),
			"more than a few": manyLimits(20), "only Retry-After": fields("Retry-After: 5"), "only Age": fields("Age: 5"), "empty": nil,
		} {
			for _, status := range []int{200, 429} {
				want, wantWarnings := Parse(status, header, time.Now())
				got, warnings := Parse(status, header, time.Time{})
				now := got.Arrived
				got.Arrived = want.Arrived
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(warnings, wantWarnings) {
					t.Errorf("%s, %d: got %+v, want %+v", name, status, got, want)
				}
				silent := name == "ordinary" || name == "only Age" || name == "empty"
				if now.IsZero() != silent || !silent && !now.Equal(time.Now()) {
					t.Errorf("%s, %d: arrived at %v", name, status, now)
				}
			}
		}
	})
}

// manyLimits are n fields, each of another limit.
func manyLimits(n int) http.Header {
	h := http.Header{}
	for i := range n {
		h.Set(fmt.Sprintf("X-RateLimit-Limit-L%d", i), "5")
	}
	return h
}

func TestParse_Allocations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		most   float64
	}{{"none of ours", ordinary(), 0}, {"one family", github(), 1}} {
		got := testing.AllocsPerRun(100, func() { Parse(200, tt.header, arrival) })
		if got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}
