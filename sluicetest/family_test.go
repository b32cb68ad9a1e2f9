package sluicetest_test

import (
	"net/http"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// lines returns a header as sorted lines in lower case names, without those that
// net/http adds.
func lines(h http.Header) string {
	var all []string
	for name, values := range h {
		switch name {
		case "Date", "Content-Length", "Content-Type", "X-Content-Type-Options":
		default:
			all = append(all, strings.ToLower(name)+": "+strings.Join(values, " | "))
		}
	}
	sort.Strings(all)
	return strings.Join(all, "\n")
}

// In the bubble it is 2000-01-01 00:00:00 UTC, 946684800, when the server is
// made. The first request comes 1.25 s later, the second, which is rejected, 0.1 s
// after it.
func TestFamily(t *testing.T) {
	quota := sluicetest.Limit{Quota: 1, Window: time.Minute}
	rate := sluicetest.Limit{Count: 2, Per: 5 * time.Second}
	calls := sluicetest.Limit{Concurrency: 1}
	for _, tt := range []struct {
		name        string
		family      sluicetest.HeaderStyle
		limit       sluicetest.Limit
		first, then string
	}{
		{"none", nil, quota, "", ""},
		{"RetryAfter", sluicetest.RetryAfter, quota, "", "retry-after: 59"},
		{"RetryAfter of a rate", sluicetest.RetryAfter, rate, "", "retry-after: 3"},
		{"RetryAfter of an unknown wait", sluicetest.RetryAfter, calls, "", "retry-after: 1"},
		{"GitHub", sluicetest.GitHub, quota,
			"x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 946684860\nx-ratelimit-resource: default\nx-ratelimit-used: 1",
			"x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 946684860\nx-ratelimit-resource: default\nx-ratelimit-used: 1"},
		{"OpenAI", sluicetest.OpenAI, rate,
			"x-ratelimit-limit-requests: 2\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 2.5s",
			"retry-after-ms: 2400\nretry-after: 3\nx-ratelimit-limit-requests: 2\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 2.4s"},
		{"OpenAI of a burst", sluicetest.OpenAI, sluicetest.Limit{Count: 2, Per: 5 * time.Second, Burst: 2},
			"x-ratelimit-limit-requests: 2\nx-ratelimit-remaining-requests: 1\nx-ratelimit-reset-requests: 2.5s",
			"x-ratelimit-limit-requests: 2\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 4.9s"},
		{"Anthropic", sluicetest.Anthropic, quota,
			"anthropic-ratelimit-requests-limit: 1\nanthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2000-01-01T00:01:00Z",
			"anthropic-ratelimit-requests-limit: 1\nanthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2000-01-01T00:01:00Z\nretry-after: 59"},
		{"Draft10", sluicetest.Draft10, quota,
			"ratelimit-policy: \"default\";q=1;w=60\nratelimit: \"default\";r=0;t=59",
			"ratelimit-policy: \"default\";q=1;w=60\nratelimit: \"default\";r=0;t=59"},
		{"Draft10 of a concurrency", sluicetest.Draft10, calls,
			"ratelimit-policy: \"default\";q=1;qu=\"concurrent-requests\"\nratelimit: \"default\";r=0",
			"ratelimit-policy: \"default\";q=1;qu=\"concurrent-requests\"\nratelimit: \"default\";r=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := tt.limit
				limit.HeaderStyle = tt.family
				// The first is answered late, so that the second meets it.
				srv := sluicetest.NewServer(sluicetest.Enforce(limit), sluicetest.Delay(time.Second))
				defer srv.Close()
				c := srv.Client()
				time.Sleep(1250 * ms)
				first := make(chan http.Header)
				go func() {
					resp, err := c.Get("http://a.test")
					if err != nil {
						t.Error(err)
					}
					resp.Body.Close()
					first <- resp.Header
				}()
				time.Sleep(100 * ms)
				resp, err := c.Get("http://a.test")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if got := lines(<-first); got != tt.first {
					t.Errorf("first\n%s\nwant\n%s", got, tt.first)
				}
				refused := tt.limit.Burst < 2
				if got := lines(resp.Header); (resp.StatusCode == 429) != refused || got != tt.then {
					t.Errorf("then %d\n%s\nwant\n%s", resp.StatusCode, got, tt.then)
				}
			})
		})
	}
}

// With something left the reset is that of the whole limit, with nothing left that of one request.
func TestDraft10_ResetOfABurst(t *testing.T) {
	s := sluicetest.LimitState{Name: "x", Limit: 9, Window: time.Minute, Remaining: 1, Reset: 50 * time.Second}
	for _, want := range []string{`"x";r=1;t=50`, `"x";r=0;t=10`} {
		h := make(http.Header)
		sluicetest.Draft10(h, s)
		if got := h.Get("RateLimit"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.Remaining, s.Wait = 0, 9500*ms
	}
}

func TestStanding_WaitIsTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{
			Count: 1, Per: time.Hour, Quota: 1, Window: time.Minute}))
		defer srv.Close()
		statusAt(t, srv.Client(), "http://a.test", 5*time.Second, 5*time.Second)
		if at := srv.Record().Requests[1].RetryAt; at != time.Hour+5*time.Second {
			t.Errorf("RetryAt is %v", at)
		}
	})
}

func TestStanding_TightestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []sluicetest.LimitState
		srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{
			Name: "x", Count: 10, Per: time.Second, Burst: 2, Quota: 4, Window: time.Minute, Concurrency: 9,
			HeaderStyle: func(_ http.Header, s sluicetest.LimitState) { seen = append(seen, s) },
		}))
		defer srv.Close()
		start := time.Now()
		statusAt(t, srv.Client(), "http://a.test", 0, 0, 0, 250*ms, 250*ms, 450*ms)
		rate := func(remaining int64, reset, wait time.Duration, refused bool) sluicetest.LimitState {
			return sluicetest.LimitState{Name: "x", Unit: "requests", Limit: 10, Window: time.Second, Remaining: remaining, Reset: reset, Wait: wait, Throttled: refused}
		}
		want := []sluicetest.LimitState{
			rate(1, 100*ms, 0, false), rate(0, 200*ms, 100*ms, false), rate(0, 200*ms, 100*ms, true),
			rate(1, 100*ms, 0, false),
			// The rate would let another in after 100 ms, but the quota is used up.
			rate(0, 200*ms, time.Minute-250*ms, false),
			{Name: "x", Unit: "requests", Limit: 4, Window: time.Minute, Reset: time.Minute - 450*ms, Wait: time.Minute - 450*ms, Throttled: true},
		}
		at := []time.Duration{0, 0, 0, 250 * ms, 250 * ms, 450 * ms}
		if len(seen) != len(want) {
			t.Fatalf("%d standings", len(seen))
		}
		for i, got := range seen {
			if !got.Now.Equal(start.Add(at[i])) {
				t.Errorf("%d: the clock says %v", i, got.Now)
			}
			got.Now = time.Time{}
			if got != want[i] {
				t.Errorf("%d: %+v\n want %+v", i, got, want[i])
			}
		}
	})
}

// Two limits make two items of one list; the name is where the provider has it.
func TestFamily_LimitName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := func(name string, quota int64, f sluicetest.HeaderStyle) sluicetest.Layer {
			return sluicetest.Enforce(sluicetest.Limit{Name: name, Quota: quota, Window: time.Hour, HeaderStyle: f})
		}
		for _, tt := range []struct {
			family sluicetest.HeaderStyle
			want   string
		}{
			{sluicetest.Draft10, "ratelimit-policy: \"burst\";q=5;w=3600 | \"tokens\";q=7;w=3600\n" +
				"ratelimit: \"burst\";r=4;t=3600 | \"tokens\";r=6;t=3600"},
			{sluicetest.OpenAI, "x-ratelimit-limit-burst: 5\nx-ratelimit-limit-tokens: 7\n" +
				"x-ratelimit-remaining-burst: 4\nx-ratelimit-remaining-tokens: 6\n" +
				"x-ratelimit-reset-burst: 1h0m0s\nx-ratelimit-reset-tokens: 1h0m0s"},
			{sluicetest.Anthropic, "anthropic-ratelimit-burst-limit: 5\nanthropic-ratelimit-burst-remaining: 4\n" +
				"anthropic-ratelimit-burst-reset: 2000-01-01T01:00:00Z\n" +
				"anthropic-ratelimit-tokens-limit: 7\nanthropic-ratelimit-tokens-remaining: 6\n" +
				"anthropic-ratelimit-tokens-reset: 2000-01-01T01:00:00Z"},
			{sluicetest.GitHub, "x-ratelimit-limit: 7\nx-ratelimit-remaining: 6\nx-ratelimit-reset: 946688400\n" +
				"x-ratelimit-resource: tokens\nx-ratelimit-used: 1"},
		} {
			srv := sluicetest.NewServer(limit("burst", 5, tt.family), limit("tokens", 7, tt.family))
			resp, err := srv.Client().Get("http://a.test")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := lines(resp.Header); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
			srv.Close()
		}
	})
}
