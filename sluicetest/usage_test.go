package sluicetest_test

import (
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// The body of a request in these tests is what it costs and what it really uses: "10 4".
func costs(body []byte) (cost, used int64) {
	_, _ = fmt.Sscan(string(body), &cost, &used)
	return cost, used
}

func estimate(_ *http.Request, body []byte) int64 {
	cost, _ := costs(body)
	return cost
}

// settles answers after d, and then settles the tokens.
func settles(d time.Duration) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, used := costs(body)
		time.Sleep(d)
		sluicetest.Settle(r, "tokens", used)
	}))
}

func postAt(t *testing.T, c *http.Client, at time.Duration, start time.Time, body string) *http.Response {
	t.Helper()
	time.Sleep(at - time.Since(start))
	resp, err := c.Post("http://a.test", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestEnforce_Cost(t *testing.T) {
	type call struct {
		at     time.Duration
		body   string
		status int
	}
	ok := http.StatusOK
	for _, tt := range []struct {
		name  string
		limit sluicetest.Limit
		calls []call
	}{
		{"a rate, to the nanosecond", sluicetest.Limit{Count: 10, Per: time.Second, Burst: 20}, []call{
			{0, "15", ok}, {0, "6", 429}, {0, "5", ok}, {100*ms - 1, "1", 429}, {100 * ms, "1", ok},
			{2*time.Second + 100*ms - 1, "20", 429}, {2*time.Second + 100*ms, "20", ok}}},
		{"a quota", sluicetest.Limit{Quota: 20, Window: time.Minute}, []call{
			{0, "15", ok}, {0, "6", 429}, {0, "5", ok}, {time.Minute - 1, "1", 429}, {time.Minute, "20", ok}}},
		{"nothing costs nothing", sluicetest.Limit{Quota: 1, Window: time.Minute, Count: 1, Per: time.Minute}, []call{
			{0, "1", ok}, {0, "0", ok}, {0, "-5", ok}, {0, "1", 429}}},
		{"more than fits is never let in", sluicetest.Limit{Count: 10, Per: time.Second, Burst: 20}, []call{
			{0, "21", 429}, {time.Hour, "21", 429}, {time.Hour, "20", ok}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.limit.Name, tt.limit.Cost = "tokens", estimate
				srv := sluicetest.NewServer(sluicetest.Enforce(tt.limit))
				defer srv.Close()
				c, start := srv.Client(), time.Now()
				for i, call := range tt.calls {
					if got := postAt(t, c, call.at, start, call.body).StatusCode; got != call.status {
						t.Errorf("%d: a cost of %s at %v: %d, want %d", i, call.body, call.at, got, call.status)
					}
				}
			})
		})
	}
}

// The handler and the layers between find the body whole.
func TestEnforce_CostLeavesTheBody(t *testing.T) {
	everyWay(t, func(t way) {
		echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprint(w, string(body), err)
		})
		limit := sluicetest.Limit{Name: "tokens", Quota: 100, Window: time.Hour, Cost: estimate}
		srv, c := t.serve(sluicetest.Enforce(limit, limit), sluicetest.Enforce(limit), sluicetest.Handler(echo))
		resp, err := c.Post(t.scheme+"://a.test", "", strings.NewReader("7 3"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); string(got) != "7 3<nil>" || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		if q := srv.Record().Requests[0]; string(q.Body) != "7 3" {
			t.Errorf("recorded %q", q.Body)
		}
	})
}

// What one of several limits rejects is counted by none, and the limit with the longest
// wait is the one that rejects.
func TestEnforce_SeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Enforce(
			sluicetest.Limit{Name: "requests", Count: 1, Per: time.Second, Burst: 3, HeaderStyle: sluicetest.OpenAI},
			sluicetest.Limit{Name: "tokens", Count: 10, Per: time.Second, Burst: 100, Cost: estimate, HeaderStyle: sluicetest.OpenAI, Body: `{"error":"tokens"}`, Status: 430},
		))
		defer srv.Close()
		c, start := srv.Client(), time.Now()
		for i, tt := range []struct {
			at              time.Duration
			cost            string
			refused         string
			retryAt         time.Duration
			requests, token string // remaining
			after           string // Retry-After-Ms
		}{
			{0, "90", "", 0, "2", "10", ""},
			{0, "20", "tokens rate", time.Second, "2", "10", "1000"},
			{0, "1", "", 0, "1", "9", ""},
			{0, "1", "", 0, "0", "8", ""},
			{0, "9", "requests rate", time.Second, "0", "8", "1000"}, // tokens: 100 ms
			{0, "28", "tokens rate", 2 * time.Second, "0", "8", "2000"},
			{0, "18", "requests rate", time.Second, "0", "8", "1000"}, // both: the first
			{0, "101", "tokens size", ms, "0", "8", "1"},              // OpenAI writes at least 1
			{time.Second, "18", "", 0, "0", "0", ""},
		} {
			h := postAt(t, c, tt.at, start, tt.cost).Header
			q := srv.Record().Requests[i]
			if q.ThrottledBy != tt.refused || q.RetryAt != tt.retryAt {
				t.Errorf("%d: refused %q until %v, want %q until %v", i, q.ThrottledBy, q.RetryAt, tt.refused, tt.retryAt)
			}
			got := []string{h.Get("X-Ratelimit-Remaining-Requests"), h.Get("X-Ratelimit-Remaining-Tokens"), h.Get("Retry-After-Ms")}
			if want := []string{tt.requests, tt.token, tt.after}; !reflect.DeepEqual(got, want) {
				t.Errorf("%d: %q remain, want %q", i, got, want)
			}
			json := strings.HasPrefix(tt.refused, "tokens")
			if status := map[bool]int{true: 430, false: 429}[json]; q.ThrottledBy != "" && q.Status != status {
				t.Errorf("%d: status %d, want %d", i, q.Status, status)
			}
			if (h.Get("Content-Type") == "application/json") != json {
				t.Errorf("%d: type %s", i, h.Get("Content-Type"))
			}
		}
	})
}

func TestEnforce_ABodyThatBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{
			Name: "tokens", Quota: 100, Window: time.Hour, Cost: estimate}))
		defer srv.Close()
		body := io.MultiReader(strings.NewReader("50"), brokenReader{})
		if _, err := srv.Client().Post("http://a.test", "", body); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		if q := srv.Record().Requests[0]; !q.GaveUp || q.ThrottledBy != "" || q.InFlight {
			t.Errorf("%+v", q)
		}
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// What was used less than estimated is free immediately, what was used more is owed.
func TestSettle(t *testing.T) {
	type call struct {
		at     time.Duration
		body   string
		status int
	}
	ok := http.StatusOK
	rate := sluicetest.Limit{Count: 10, Per: time.Second, Burst: 20}
	quota := sluicetest.Limit{Quota: 20, Window: time.Minute}
	for _, tt := range []struct {
		name  string
		limit sluicetest.Limit
		lasts time.Duration
		calls []call
	}{
		{"less, of a rate", rate, 0, []call{{0, "20 5", ok}, {0, "16 16", 429}, {0, "15 15", ok}, {0, "1 1", 429}}},
		{"more, of a rate", rate, 0, []call{{0, "5 30", ok}, {1100*ms - 1, "1 1", 429}, {1100 * ms, "1 1", ok}}},
		{"never below empty", rate, time.Second, []call{{0, "8 0", ok}, {time.Second, "20 20", ok}, {2 * time.Second, "11 11", 429}}},
		{"less, of a quota", quota, 0, []call{{0, "20 5", ok}, {0, "16 16", 429}, {0, "15 15", ok}, {0, "1 1", 429}}},
		{"more, of a quota", quota, 0, []call{{0, "5 30", ok}, {time.Minute - 1, "1 1", 429}, {time.Minute, "20 20", ok}}},
		{"of a window that has ended", quota, time.Minute, []call{{0, "20 0", ok}, {time.Minute, "20 20", ok}, {2*time.Minute - 1, "1 1", ok}}},
		{"beyond all numbers", rate, 0, []call{{0, "1 9223372036854775807", ok}, {time.Hour, "1 1", 429}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.limit.Name, tt.limit.Cost = "tokens", estimate
				srv := sluicetest.NewServer(sluicetest.Enforce(tt.limit), settles(tt.lasts))
				defer srv.Close()
				c, start := srv.Client(), time.Now()
				for i, call := range tt.calls {
					if got := postAt(t, c, call.at, start, call.body).StatusCode; got != call.status {
						t.Errorf("%d: a cost of %s at %v: %d, want %d", i, call.body, call.at, got, call.status)
					}
				}
			})
		})
	}
}

// The last call counts, whatever was said before.
func TestSettle_Again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []int64
		note := func(_ http.Header, s sluicetest.LimitState) { left = append(left, s.Remaining) }
		again := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, used := range []int64{12, 1e12, 0, 3} {
				sluicetest.Settle(r, "tokens", used)
			}
		}))
		srv := sluicetest.NewServer(sluicetest.Enforce(
			sluicetest.Limit{Name: "tokens", Count: 1, Per: time.Hour, Burst: 20, Cost: estimate, HeaderStyle: note},
			sluicetest.Limit{Name: "tokens", Quota: 20, Window: time.Hour, Cost: estimate, HeaderStyle: note},
		), again)
		defer srv.Close()
		for range 2 {
			postAt(t, srv.Client(), 0, time.Now(), "5")
		}
		if want := []int64{15, 15, 12, 12}; !slices.Equal(left, want) {
			t.Errorf("%d remain, want %d", left, want)
		}
	})
}

func TestSettle_Misuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		misuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mustPanic(t, "a negative number", "sluicetest: Settle: -1", func() { sluicetest.Settle(r, "tokens", -1) })
			mustPanic(t, "an unknown name", `sluicetest: Settle: no limit called "token"`, func() { sluicetest.Settle(r, "token", 1) })
		})
		srv := sluicetest.NewServer(
			sluicetest.Enforce(sluicetest.Limit{Name: "tokens", Quota: 1, Window: time.Hour}), sluicetest.Handler(misuse))
		defer srv.Close()
		if got := get(srv.Client(), "http://a.test"); got != "200 " {
			t.Error(got)
		}
	})
}

// A model of two limits that counts everything again for each request, with fractions.
type model struct {
	events []modelEvent // in order of time
	grants []modelGrant
}

type modelEvent struct {
	at              time.Duration
	requests, units int64
}

type modelGrant struct {
	at   time.Duration
	used int64
}

const (
	modelRate, modelBurst, modelPer = 7, 30, 3 * time.Second // of units
	modelCalls                      = 5                      // and of requests, in each modelPer
	modelQuota, modelWindow         = 90, 10 * time.Second
)

// level returns what is in a bucket that gains what events say and leaks rate per modelPer.
func (m *model) level(now time.Duration, rate int64, gain func(modelEvent) int64) *big.Rat {
	level, last := new(big.Rat), time.Duration(0)
	leak := func(until time.Duration) {
		level.Sub(level, big.NewRat(int64(until-last)*rate, int64(modelPer)))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
		last = until
	}
	for _, e := range m.events {
		leak(e.at)
		level.Add(level, new(big.Rat).SetInt64(gain(e)))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
	}
	leak(now)
	return level
}

// remaining returns the requests and units that may come now, cut to whole ones.
func (m *model) remaining(now time.Duration) (requests, rate, quota int64) {
	floor := func(burst int64, level *big.Rat) int64 {
		left := new(big.Rat).Sub(new(big.Rat).SetInt64(burst), level)
		if left.Sign() < 0 {
			return 0
		}
		return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
	}
	requests = floor(modelCalls, m.level(now, modelCalls, func(e modelEvent) int64 { return e.requests }))
	rate = floor(modelBurst, m.level(now, modelRate, func(e modelEvent) int64 { return e.units }))
	quota = modelQuota
	for _, g := range m.grants {
		if g.at/modelWindow == now/modelWindow {
			quota -= g.used
		}
	}
	return requests, rate, max(0, quota)
}

func (m *model) take(now time.Duration, cost int64) (allowed bool) {
	requests, rate, quota := m.remaining(now)
	if requests < 1 || cost > 0 && (rate < cost || quota < cost) {
		return false
	}
	m.events = append(m.events, modelEvent{now, 1, cost})
	m.grants = append(m.grants, modelGrant{now, cost})
	return true
}

func (m *model) settle(now time.Duration, more int64) {
	last := &m.grants[len(m.grants)-1]
	m.events = append(m.events, modelEvent{now, 0, more})
	if last.at/modelWindow == now/modelWindow {
		last.used += more
	}
}

// Random requests, settled after a random time, come to what the model says.
func TestEnforce_Model(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			m, start := &model{}, time.Now()
			left := make(map[string]int64)
			note := func(_ http.Header, s sluicetest.LimitState) { left[s.Name] = s.Remaining }
			lasts := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				cost, used := costs(body)
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				sluicetest.Settle(r, "tokens", used)
				m.settle(time.Since(start), used-cost)
			}))
			srv := sluicetest.NewServer(sluicetest.Enforce(
				sluicetest.Limit{Name: "requests", Count: modelCalls, Per: modelPer, Burst: modelCalls, HeaderStyle: note},
				sluicetest.Limit{Name: "tokens", Count: modelRate, Per: modelPer, Burst: modelBurst, Cost: estimate, HeaderStyle: note},
				sluicetest.Limit{Name: "tokens", Quota: modelQuota, Window: modelWindow, Cost: estimate,
					HeaderStyle: func(_ http.Header, s sluicetest.LimitState) { left["quota"] = s.Remaining }},
			), lasts)
			defer srv.Close()
			refused := 0
			for i := range 80 {
				time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
				cost, used := rng.Int64N(20), rng.Int64N(40)
				now := time.Since(start)
				want := m.take(now, cost)
				requests, rate, quota := m.remaining(now)
				req := httptest.NewRequest("POST", "/", strings.NewReader(fmt.Sprint(cost, " ", used)))
				rec := httptest.NewRecorder()
				srv.ServeHTTP(rec, req)
				if got := rec.Code == http.StatusOK; got != want {
					t.Fatalf("seed %d: request %d of %d at %v: let in %v, want %v", seed, i, cost, now, got, want)
				}
				if !want {
					refused++
				}
				if left["requests"] != requests || left["tokens"] != rate || left["quota"] != quota {
					t.Fatalf("seed %d: request %d of %d at %v: remain %v, want %d, %d, %d", seed, i, cost, now, left, requests, rate, quota)
				}
			}
			if refused < 10 || refused > 75 {
				t.Errorf("seed %d: %d of 80 refused, which shows little", seed, refused)
			}
		})
	}
}

// Requests and tokens, or input and output apart, in each family that has them.
func TestFamily_Units(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := func(name string, burst int64, f sluicetest.HeaderStyle) sluicetest.Limit {
			l := sluicetest.Limit{Name: name, Count: 60, Per: time.Minute, Burst: burst, HeaderStyle: f}
			if name != "requests" {
				l.Cost = estimate
			}
			return l
		}
		for _, tt := range []struct {
			limits []sluicetest.Limit
			want   string
		}{
			{[]sluicetest.Limit{limit("requests", 5, sluicetest.OpenAI), limit("tokens", 90, sluicetest.OpenAI)},
				"x-ratelimit-limit-requests: 60\nx-ratelimit-limit-tokens: 60\n" +
					"x-ratelimit-remaining-requests: 4\nx-ratelimit-remaining-tokens: 20\n" +
					"x-ratelimit-reset-requests: 1s\nx-ratelimit-reset-tokens: 1m10s"},
			{[]sluicetest.Limit{limit("input-tokens", 90, sluicetest.Anthropic), limit("output-tokens", 80, sluicetest.Anthropic)},
				"anthropic-ratelimit-input-tokens-limit: 60\nanthropic-ratelimit-input-tokens-remaining: 20\n" +
					"anthropic-ratelimit-input-tokens-reset: 2000-01-01T00:01:10Z\n" +
					"anthropic-ratelimit-output-tokens-limit: 60\nanthropic-ratelimit-output-tokens-remaining: 10\n" +
					"anthropic-ratelimit-output-tokens-reset: 2000-01-01T00:01:10Z"},
			{[]sluicetest.Limit{limit("requests", 5, sluicetest.Draft10), limit("tokens", 90, sluicetest.Draft10)},
				"ratelimit-policy: \"requests\";q=60;w=60 | \"tokens\";q=60;w=60;qu=\"tokens\"\n" +
					"ratelimit: \"requests\";r=4;t=1 | \"tokens\";r=20;t=70"},
		} {
			srv := sluicetest.NewServer(sluicetest.Enforce(tt.limits...))
			resp := postAt(t, srv.Client(), 0, time.Now(), "70")
			if got := lines(resp.Header); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
			srv.Close()
		}
	})
}

func ExampleSettle() {
	// Each request reserves as many tokens as its body says, and uses half of them.
	tokens := func(_ *http.Request, body []byte) int64 {
		n, _ := strconv.ParseInt(string(body), 10, 64)
		return n
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sluicetest.Settle(r, "tokens", tokens(r, body)/2)
	})
	srv := sluicetest.NewServer(
		sluicetest.Enforce(
			sluicetest.Limit{Name: "requests", Quota: 9, Window: time.Hour, HeaderStyle: sluicetest.OpenAI},
			sluicetest.Limit{Name: "tokens", Quota: 1000, Window: time.Hour, Cost: tokens, HeaderStyle: sluicetest.OpenAI},
		),
		sluicetest.Handler(app),
	)
	defer srv.Close()
	for _, cost := range []string{"800", "600", "400", "400"} {
		resp, err := srv.Client().Post("https://api.example.com", "text/plain", strings.NewReader(cost))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		h := resp.Header
		fmt.Println(resp.StatusCode, h.Get("X-RateLimit-Remaining-Requests"), h.Get("X-RateLimit-Remaining-Tokens"))
	}
	// Output:
	// 200 8 200
	// 200 7 0
	// 429 7 300
	// 429 7 300
}
