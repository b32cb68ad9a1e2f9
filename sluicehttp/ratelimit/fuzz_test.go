package ratelimit

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// names of the table, others that it means, and some that are nearly read.
var fieldNames = func() (all []string) {
	for _, n := range names {
		for _, n := range n.spellings() {
			field, _ := n.instance()
			all = append(all, http.CanonicalHeaderKey(field))
		}
	}
	return append(append(all,
		"X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests", "X-RateLimit-Requests-Limit",
		"X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute",
		"Anthropic-RateLimit-Requests-Limit", "Anthropic-RateLimit-Requests-Remaining", "Anthropic-RateLimit-Requests-Reset",
		"X-HubSpot-RateLimit-Daily-Remaining", "X-Ms-RateLimit-Remaining-Reads", "X-Ms-RateLimit-Remaining-Resource"), unread...)
}()

var unread = []string{"Date", "X-GitHub-Request-Id", "X-RateLimit", "X-RateLimit-", "X-RateLimit-Limit-", "-RateLimit--Limit", "Retry", "Content-Length"}

// Values that some field reads, and bad ones.
var values = []string{
	"0", "1", "5", "60", "100", "999.0", "0.5", "1500", "1795262460", "1795262460000", "99999999999", "99999999999999999999", "9223372037",
	"-1", "-5", "+3", "1e3", "0x10", "NaN", "1,5", "abc", "120;comment", "", " ", "\t7 ", "1s", "6m0s", "2562048h", "1d",
	"Sat, 21 Nov 2026 12:02:00 GMT", "Sat, 21 Nov 2026 12:02:00 UTC", "Saturday, 21-Nov-26 12:02:00 GMT", "Sat Nov 21 12:02:00 2026", "Thu, 19 Nov 2026 12:02:00 GMT",
	"2026-11-21T12:02Z", "2026-11-21T12:02:00.5+01:00", "Sat Nov 21 2026 13:02:42 GMT+0100 (Central European Standard Time)",
	`"a";r=0;t=10`, `"a";r=5;pk=:eA==:`, `"a";q=10;w=60`, `"a";q=10;qu="concurrent-requests"`, `"b";r=-1, "a";r=1`, "quota;t=1", `"a";r=5,`,
	"limit=100, remaining=0, reset=30", "100;w=60", "10, 10;w=1, 600;w=60", "32/40", "40/40", "a/b;197,a/c;1297",
	"true", "false", "core", "graphql", "shared",
}

// check looks for what must hold of every header.
func check(t *testing.T, status int, header http.Header, now time.Time) {
	t.Helper()
	fail := func(what string, s, want Info) {
		t.Helper()
		t.Errorf("%s\nstatus %d, now %v, header %q\ngot  %+v\nwant %+v", what, status, now, header, s, want)
	}
	s, warnings := Parse(status, header, now)
	if len(warnings) > mostWarnings {
		t.Errorf("%d warnings", len(warnings))
	}
	for range 3 { // a map is in another order each time
		if again, w := Parse(status, header, now); !reflect.DeepEqual(again, s) || !reflect.DeepEqual(w, warnings) {
			fail("not the same twice", again, s)
		}
	}

	// Waits are in [0, the longest duration]: Sub would saturate, Before does not.
	waits := func(at time.Time) bool { return at.IsZero() || !at.Before(now) && !at.After(now.Add(math.MaxInt64)) }
	if !waits(s.RetryAt) {
		fail("RetryAt is out of range", s, s)
	}
	for i, l := range s.Limits {
		if !waits(l.ResetAt) || l.Source == "" || l.Window < 0 || !l.NextAt.IsZero() && (l.NextAt.Before(now) || l.NextAt.After(l.ResetAt)) {
			fail(fmt.Sprintf("limit %d is out of range", i), s, s)
		}
		if i > 0 && (s.Limits[i-1].Name > l.Name || s.Limits[i-1].Name == l.Name && s.Limits[i-1].Partition > l.Partition) {
			fail("limits are not in order", s, s)
		}
	}
	if (s.RetrySource == "") != s.RetryAt.IsZero() {
		fail("RetryAt and RetrySource do not agree", s, s)
	}
	if at, _ := s.PauseUntil(); !waits(at) {
		fail("PauseUntil is out of range", s, s)
	}

	// Unknown fields change nothing.
	more := maps.Clone(header)
	if more == nil {
		more = http.Header{}
	}
	for _, name := range []string{"X-Unknown", "Ratelimits", "X-Ratelimit", "Retry", "X-Ratelimit-Foo", "Limit", "X-Rate", "Foo-Ratelimit-Status"} {
		if _, ok := more[name]; !ok {
			more[name] = []string{"5", `"a";r=0;t=10`}
		}
	}
	if with, _ := Parse(status, more, now); !reflect.DeepEqual(with, s) {
		fail("an unknown field changes the result", with, s)
	}

	// Garbage in a family that is not there changes nothing.
	if len(header) > 4 {
		return // lest there are too many fields
	}
	garbage := []string{"garbage!", "-5", `"a";r=-1;q=-1`, "1/2/3", "\xff"}[len(header)]
	for _, name := range fieldNames {
		if k, _ := classify(name); name == "X-GitHub-Request-Id" || k.part == grpcPushback && k.family == retryAfter ||
			k.family <= xPlain && k.family >= plain && (k.part == resource || k.part == bucket || k.part == scope || k.part == reason) {
			continue // where any word says something
		}
		there := slices.ContainsFunc(slices.Collect(maps.Keys(header)), func(key string) bool { return strings.EqualFold(key, name) })
		if there {
			continue
		}
		more := maps.Clone(header)
		if more == nil {
			more = http.Header{}
		}
		more[http.CanonicalHeaderKey(name)] = []string{garbage}
		if with, _ := Parse(status, more, now); !reflect.DeepEqual(with, s) {
			fail("garbage in "+name+" changes the result", with, s)
		}
	}
}

// FuzzParse takes a header as lines of "Name: value".
func FuzzParse(f *testing.F) {
	f.Add(429, "Retry-After: 5", int64(0))
	for i, v := range values {
		f.Add(200+i%4*100, fieldNames[i%len(fieldNames)]+": "+v+"\nX-RateLimit-Reset: "+v, int64(i))
	}
	f.Fuzz(func(t *testing.T, status int, lines string, seconds int64) {
		header := http.Header{}
		for line := range strings.Lines(lines) {
			name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if ok {
				header[name] = append(header[name], value) // in any spelling
			}
		}
		const year3000 = 32503680000
		check(t, status, header, time.Unix(seconds%year3000, 0))
	})
}

// The same for headers made of names and values that mean something.
func TestParse_RandomHeaders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	statuses := []int{200, 301, 304, 403, 404, 429, 500, 503}
	for range 800 {
		header := http.Header{}
		for range rng.IntN(6) {
			name := fieldNames[rng.IntN(len(fieldNames))]
			for range 1 + rng.IntN(5)/4 {
				header.Add(name, values[rng.IntN(len(values))])
			}
		}
		check(t, statuses[rng.IntN(len(statuses))], header, arrival)
		if t.Failed() {
			return
		}
	}
}

// The short way to the order of reading agrees with comparing.
func TestInOrder_AgreesWithCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	short := 0
	for range 5000 {
		var fields []knownField
		seen := map[string]bool{}
		for range rng.IntN(9) {
			key := fieldNames[rng.IntN(len(fieldNames))]
			if rng.IntN(2) == 0 {
				key = http.CanonicalHeaderKey(key)
			}
			if k, read := classify(key); read && !seen[key] && len(fields) < few {
				seen[key] = true
				fields = append(fields, knownField{key, nil, k})
			}
		}
		order := make([]uint8, len(fields))
		inOrder(fields, order)
		var got []string
		for _, i := range order {
			got = append(got, fields[i].key)
		}
		if !slices.ContainsFunc(fields, func(f knownField) bool { return f.family >= perUnit }) {
			short++
		}
		slices.SortFunc(fields, func(f, g knownField) int { return f.compare(&g) })
		for i := range fields {
			if got[i] != fields[i].key {
				t.Fatalf("got %q, want %+v", got, fields)
			}
		}
	}
	if short < 500 {
		t.Errorf("the short way was tried %d times", short)
	}
}

// Names are read in whatever case they are spelled.
func TestParse_NamesInAnyCase(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	plain := func(s Info) Info {
		s.RetrySource = strings.ToLower(s.RetrySource)
		for i := range s.Limits {
			s.Limits[i].Source = strings.ToLower(s.Limits[i].Source)
		}
		return s
	}
	for range 1000 {
		header, small := http.Header{}, http.Header{}
		for range rng.IntN(8) {
			name, value := fieldNames[rng.IntN(len(fieldNames))], values[rng.IntN(len(values))]
			header.Add(name, value)
			small[strings.ToLower(name)] = append(small[strings.ToLower(name)], value)
		}
		a, _ := Parse(429, header, arrival)
		b, _ := Parse(429, small, arrival)
		if !reflect.DeepEqual(plain(a), plain(b)) {
			t.Fatalf("%q\ngot %+v\nin lower case %+v", header, a, b)
		}
	}
}

// Each name is found by its letters.
func TestKnownField_Classify(t *testing.T) {
	for _, name := range fieldNames {
		for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name), http.CanonicalHeaderKey(name)} {
			if _, read := classify(spelled); read == slices.Contains(unread, name) {
				t.Errorf("%s: read is %v", spelled, read)
			}
		}
	}
	for _, tt := range []struct{ name, unit string }{
		{"X-RateLimit-Limit-Requests", "requests"},
		{"X-RateLimit-Limit-Project-Tokens", "project-tokens"},
		{"X-RateLimit-Project-Tokens-Limit", "project-tokens"},
		{"X-Rate-Limit-Reset-Day", "day"},
		{"X-RateLimit-Reset-After-Day", "day"},
		{"Anthropic-RateLimit-Input-Tokens-Reset", "input-tokens"},
		{"A-RateLimit-B-Limit", "b"},
		{"A-RateLimit-Limit", "a"},
		{"X-A-Rate-Limit-Remaining", "x-a"},
		{"X-HubSpot-RateLimit-Secondly", "secondly"},
		{"X-HubSpot-RateLimit-Secondly-Remaining", "secondly"},
		{"X-Ms-RateLimit-Remaining-Subscription-Reads", "subscription-reads"},
		{"X-RateLimit-Limit-" + strings.Repeat("u", longestName-len("X-RateLimit-Limit-")), strings.Repeat("u", longestName-len("X-RateLimit-Limit-"))},
	} {
		k, read := classify(tt.name)
		if f := (knownField{key: tt.name, kind: k}); !read || f.unit() != tt.unit {
			t.Errorf("%s: got unit %q, want %q", tt.name, f.unit(), tt.unit)
		}
	}
	for _, name := range []string{"", "R", "Ratelimi", "Ratelimits", "X-Ratelimit-Limit-" + strings.Repeat("u", longestName),
		"Ratelimit-Limit-Minute", "Some-Vendor-Ratelimit--Limit", "-Ratelimit-Limit", "Acme-Ratelimiter-Limit", "Acmeratelimit-Limit",
		"X-Ms-Ratelimit-Remaining-", "X-Rapid-Limit", "X-Ratelimit-Status", "Server-Timing-Etc-Etc", "Transfer-Encoding", "Content-Security-Policy-Limit"} {
		if k, read := classify(name); read {
			t.Errorf("%s is read: %+v", name, k)
		}
	}
}
