package sluicehttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// tokens returns a bucket of 100 tokens that gets one per second, and the gate with it.
func tokens(t testing.TB) (*leaky.Bucket, sluice.Config) {
	b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Second, Burst: 100}))
	return b, sluice.Config{Limits: []sluice.Limit{{Name: "tokens", Unit: "tokens", Limiter: b}}}
}

func wantLeft(t testing.TB, b *leaky.Bucket, want int64) {
	t.Helper()
	if got := b.Take(0).Remaining; got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
}

// A request waits for what it costs, in order, and takes nothing if it is cancelled.
func TestConfig_Cost_TakesFromLimitsOfItsUnit(t *testing.T) {
	for _, url := range []string{"http://a.test/", "https://a.test/"} { // HTTP/1.1 and 2
		inBubble(t, func(t *testing.T) {
			b, gate := tokens(t)
			parents := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 1000}))
			gate.Parent = must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: parents}}}))
			cfg := sluicehttp.Config{Gate: gate, Cost: estimated("tokens")}
			withWorld(t, cfg, layers(sluicetest.ReadBody(), sluicetest.Reply(200, "ok")), func(w *world) {
				spend := func(ctx context.Context, n string) error {
					status, _, err := w.do(request(w, ctx, http.MethodPost, url, strings.NewReader(`{"max_tokens":`+n+`}`)))
					if err == nil && status != 200 {
						t.Errorf("status %d", status)
					}
					return err
				}
				if err := spend(bg, "90"); err != nil {
					t.Fatal(err)
				}
				wantLeft(t, b, 10)
				wantLeft(t, parents, 910)
				short, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				var wait *limits.WaitError
				if err := spend(short, "20"); !errors.As(err, &wait) || wait.Need != 10*time.Second || wait.For != "limit tokens" {
					t.Errorf("refused with %v", err)
				}
				if err := spend(bg, "20"); err != nil {
					t.Error(err)
				}
				if err := spend(bg, "101"); !errors.Is(err, limits.ErrTooLarge) {
					t.Errorf("more than the limit: %v", err)
				}
				w.wantCame(0, 10*time.Second)
				wantLeft(t, parents, 890)
				if body := string(w.srv.Record().Requests[1].Body); body != `{"max_tokens":20}` {
					t.Errorf("the server got %q", body)
				}
			})
		})
	}
}

// The body is read from a copy, up to a bound, and every attempt sends all of it.
func TestConfig_Cost_GetsTheBeginningOfTheBody(t *testing.T) {
	long := strings.Repeat("x", 1<<20) + "end"
	for _, c := range []struct {
		name string
		body func() io.Reader
		want int // bytes for Cost
		all  int
	}{
		{"none", func() io.Reader { return nil }, 0, 0},
		{"in memory", func() io.Reader { return strings.NewReader("hello") }, 5, 5},
		{"in memory, long", func() io.Reader { return strings.NewReader(long) }, 1 << 20, len(long)},
		{"of unknown length", func() io.Reader { return io.MultiReader(strings.NewReader("hello")) }, 0, 5},
	} {
		for _, noRetry := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				got := -1
				cfg := sluicehttp.Config{Retry: seconds, Cost: func(_ *http.Request, body []byte) sluice.Costs {
					got = len(body)
					if want := long[:min(c.want, len(long))]; c.want > 5 && string(body) != want {
						t.Error("another body")
					}
					return sluice.Costs{}
				}}
				inWorld(t, cfg, layers(sluicetest.ReadBody(), sluicetest.On(1, sluicetest.Status(429)), sluicetest.Reply(200, "ok")), func(w *world) {
					ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: noRetry})
					if _, _, err := w.do(request(w, ctx, http.MethodPut, "https://a.test/", c.body())); err != nil {
						t.Error(err)
					}
					if got != c.want {
						t.Errorf("Cost got %d bytes, want %d", got, c.want)
					}
					for _, r := range w.srv.Record().Requests {
						if r.BodyLen != int64(c.all) {
							t.Errorf("the server got %d bytes, want %d", r.BodyLen, c.all)
						}
					}
				})
			})
		}
	}
	// A small body without GetBody is read into memory.
	inWorld(t, sluicehttp.Config{Cost: func(_ *http.Request, body []byte) sluice.Costs {
		if string(body) != "hello" {
			t.Errorf("Cost got %q", body)
		}
		return nil
	}}, layers(sluicetest.ReadBody(), sluicetest.Reply(200, "ok")), func(w *world) {
		req := request(w, bg, http.MethodPost, "https://a.test/", io.MultiReader(strings.NewReader("hello")))
		req.ContentLength = 5
		if _, _, err := w.do(req); err != nil || string(w.srv.Record().Requests[0].Body) != "hello" {
			t.Error(err)
		}
	})
}

// closed counts how often a body is closed.
type closed struct {
	io.Reader
	n int
}

func (c *closed) Close() error { c.n++; return nil }

func TestConfig_Cost_NegativeFailsTheRequest(t *testing.T) {
	cfg := sluicehttp.Config{Cost: func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"tokens": -1} }}
	inWorld(t, cfg, layers(sluicetest.Reply(200, "ok")), func(w *world) {
		body := &closed{Reader: new(bytes.Buffer)}
		_, _, err := w.do(request(w, bg, http.MethodPost, "https://a.test/", body))
		if err == nil || !strings.Contains(err.Error(), "sluicehttp: negative cost: -1 tokens") || body.n == 0 {
			t.Errorf("%v, body closed %d times", err, body.n)
		}
		w.wantCame()
	})
}

// The amount of sluice.Cost is the n of the call, unless the request has one of its own.
func TestConfig_Cost_SetsTheCostOfTheCall(t *testing.T) {
	b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 100}))
	cfg := sluicehttp.Config{
		Gate: sluice.Config{Limits: []sluice.Limit{{Limiter: b}}},
		Cost: func(*http.Request, []byte) sluice.Costs { return sluice.Costs{sluice.Cost: 30} },
	}
	inWorld(t, cfg, layers(sluicetest.Reply(200, "ok")), func(w *world) {
		w.wantGet("https://a.test/", 200)
		wantLeft(t, b, 70)
		if _, _, err := w.get(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Cost: 5}), "https://a.test/"); err != nil {
			t.Error(err)
		}
		wantLeft(t, b, 65)
	})
}

// A throttled attempt gives back what it took, so the retry finds it. One that failed
// otherwise does not: the server may have used it.
func TestConfig_Cost_ThrottleGivesBack(t *testing.T) {
	for _, status := range []int{429, 529, 500} {
		inBubble(t, func(t *testing.T) {
			b, gate := tokens(t)
			cfg := sluicehttp.Config{Gate: gate, Cost: estimated("tokens"), Retry: seconds, Idempotent: func(*http.Request, []byte) bool { return true }}
			withWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Status(status)), sluicetest.Reply(200, "ok")), func(w *world) {
				if _, _, err := w.do(request(w, bg, http.MethodPost, "https://a.test/", strings.NewReader(`{"max_tokens":60}`))); err != nil {
					t.Fatal(err)
				}
				if status == 500 { // of the 40 that remain there are 60 after 20 s
					w.wantCame(0, 20*time.Second)
					wantLeft(t, b, 0)
					return
				}
				w.wantCame(0, time.Second)
				wantLeft(t, b, 40)
			})
		})
	}
}

// A throttle names the unit whose limit has refused the request: by what remains of each, in
// every family of headers, or by its reason.
func TestConfig_Cost_WhichUnitWasRefused(t *testing.T) {
	openAI := func(requests, tokens string) []string {
		return []string{
			"X-Ratelimit-Limit-Requests: 500", "X-Ratelimit-Remaining-Requests: " + requests, "X-Ratelimit-Reset-Requests: 1s",
			"X-Ratelimit-Limit-Tokens: 60000", "X-Ratelimit-Remaining-Tokens: " + tokens, "X-Ratelimit-Reset-Tokens: 1s",
		}
	}
	anthropic := func(requests, input, output string) (header []string) {
		for name, remaining := range map[string]string{"Requests": requests, "Input-Tokens": input, "Output-Tokens": output} {
			name = "Anthropic-Ratelimit-" + name
			header = append(header, name+"-Limit: 50000", name+"-Remaining: "+remaining, name+"-Reset: 2000-01-01T00:01:00Z")
		}
		return header
	}
	draft := func(requests, bytes string) []string {
		return []string{
			`RateLimit-Policy: "r";q=100;w=60, "b";q=5000;w=60;qu="content-bytes"`,
			`RateLimit: "r";r=` + requests + `;t=10, "b";r=` + bytes + `;t=10`,
		}
	}
	costs := sluice.Costs{"tokens": 700, "input": 200, "output": 500, "bytes": 1000}
	for name, c := range map[string]struct {
		header []string
		reason string
		want   sluice.Unit
	}{
		"OpenAI, tokens":               {openAI("400", "699"), "", "tokens"},
		"OpenAI, requests":             {openAI("0", "700"), "", sluice.Calls},
		"OpenAI, both":                 {openAI("0", "0"), "", ""},
		"OpenAI, both, and the reason": {openAI("0", "0"), "requests", sluice.Calls},
		"OpenAI, none":                 {openAI("400", "700"), "", ""},
		"OpenAI, none, and the reason": {openAI("400", "700"), "Tokens", "tokens"},
		"OpenAI, against the reason":   {openAI("400", "0"), "requests", "tokens"},
		"Anthropic, input":             {anthropic("100", "199", "500"), "", "input"},
		"Anthropic, output":            {anthropic("100", "200", "0"), "", "output"},
		"Anthropic, requests":          {anthropic("0", "200", "500"), "", sluice.Calls},
		"Anthropic, two":               {anthropic("100", "0", "0"), "", ""},
		"the draft, bytes":             {draft("50", "999"), "", "bytes"},
		"the draft, requests":          {draft("0", "1000"), "", sluice.Calls},
		"GitHub":                       {[]string{"X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 946684860"}, "", sluice.Calls},
		"Retry-After":                  {[]string{"Retry-After: 5"}, "", ""},
		"a reason alone":               {nil, "output", "output"},
		"a reason that is no unit":     {nil, "rate_limit_exceeded", ""},
	} {
		header := make(http.Header)
		for _, line := range c.header {
			key, value, _ := strings.Cut(line, ": ")
			header.Add(key, value)
		}
		said, warnings := ratelimit.Parse(429, header, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
		if c.reason != "" {
			said.Reason = c.reason
		}
		if got := sluicehttp.Exhausted(costs, said); got != c.want || len(warnings) > 0 {
			t.Errorf("%s: %q, want %q (%v)", name, got, c.want, warnings)
		}
	}
	costs = sluice.Costs{"requests": 3}
	if got := sluicehttp.Exhausted(costs, ratelimit.Info{Reason: "requests"}); got != "requests" {
		t.Errorf("requests that Config.Cost counts: %q", got)
	}
}

// The gate gets that unit, and learns its limit.
func TestConfig_Cost_LearnsTheUnitThatWasRefused(t *testing.T) {
	for _, unit := range []sluice.Unit{"tokens", "output"} {
		named := func(_ *http.Response, _ func() []byte, said *ratelimit.Info) { said.Reason = string(unit) }
		cost := func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"tokens": 30, "output": 20} }
		limit := sluicetest.Limit{Name: "limit", Count: 60, Per: time.Second, Burst: 300, Cost: func(*http.Request, []byte) int64 { return 30 }}
		inWorld(t, sluicehttp.Config{Cost: cost, Inspect: named}, layers(sluicetest.Enforce(limit), sluicetest.Reply(200, "ok")), func(w *world) {
			var wg sync.WaitGroup
			for range 60 {
				wg.Go(func() {
					if status, _, err := w.do(request(w, bg, http.MethodGet, "https://a.test/", nil)); status != 200 {
						t.Error(status, err)
					}
				})
			}
			wg.Wait()
			for s := range w.rt.Gates() {
				if s.Learned == nil || s.Learned.Unit != unit {
					t.Errorf("learned %v, want the limit of %s", s.Learned, unit)
				}
			}
		})
	}
}

// By hand, before or after the body was read, and once. Who waits leaves at once.
func TestReport_Settle_GivesBackAtOnce(t *testing.T) {
	for name, afterBody := range map[string]bool{"before the body is read": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, gate := tokens(t)
				withWorld(t, sluicehttp.Config{Gate: gate, Cost: estimated("tokens")}, layers(sluicetest.Reply(200, "ok")), func(w *world) {
					ctx, report := sluicehttp.WithReport(bg)
					if report.Settle(sluice.Costs{"tokens": 1}) {
						t.Error("settled before there was a response")
					}
					resp, err := w.client.Do(request(w, ctx, http.MethodPost, "https://a.test/", strings.NewReader(`{"max_tokens":100}`)))
					if err != nil {
						t.Fatal(err)
					}
					if afterBody {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					var wg sync.WaitGroup
					wg.Go(func() {
						if _, err := w.post(bg, llmRequest{MaxTokens: 70}); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(5 * time.Second)
					if !report.Settle(sluice.Costs{"tokens": 20}) || report.Settle(sluice.Costs{"tokens": 0}) {
						t.Error("settled not once")
					}
					wg.Wait()
					w.wantCame(0, 5*time.Second)
					wantLeft(t, b, 15)
					resp.Body.Close()
				})
			})
		})
	}
}

// Gates is what the exporters of package observe need.
func TestTransport_Gates_YieldsEachGate(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Reply(200, "ok")), func(w *world) {
		w.wantGet("https://a.test/", 200)
		w.wantGet("https://b.test/", 200)
		names := map[string]uint64{}
		for s := range w.rt.Gates() {
			names[s.Name] = s.Admitted
		}
		if len(names) != 2 || names["https://a.test"] != 1 || names["https://b.test"] != 1 {
			t.Errorf("%v", names)
		}
		for range w.rt.Gates() {
			break
		}
	})
}
