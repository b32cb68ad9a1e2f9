package sluicehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
	"github.com/sluice-go/sluice/sluicetest"
)

// A fakeLLM is a server that limits requests and tokens by buckets that refill
// continuously, sends its headers in the way of OpenAI, and streams. A request says in its
// body what it will really take, and how long that lasts.
type fakeLLM struct {
	requests, tokens fakeBucket
	lag              func(n int) time.Duration // before a request is counted, and before its header is sent
	late             bool                      // sends the header at the end
	returns          bool                      // counts max_tokens, and gives back what is too much at the end
	sizes            bool                      // publishes the size of a bucket, not the amount per minute
	anthropic        bool                      // the headers of Anthropic, and tokens are those of output, counted at the end

	mu               sync.Mutex
	n, refused, used int
	last             time.Time // when a request was let in
}

type fakeBucket struct {
	perMinute, burst, level float64
	at                      time.Time
}

func (b *fakeBucket) advance(now time.Time) {
	if !b.at.IsZero() {
		b.level = min(b.burst, b.level+now.Sub(b.at).Seconds()*b.perMinute/60)
	} else {
		b.level = b.burst
	}
	b.at = now
}

func (b *fakeBucket) reset() time.Duration {
	return time.Duration(math.Ceil((b.burst-b.level)/b.perMinute*60*1000)) * time.Millisecond
}

type llmRequest struct {
	MaxTokens int64   `json:"max_tokens"`
	Real      int64   `json:"real"`
	Seconds   float64 `json:"seconds"`
	Pad       string  `json:"pad,omitempty"`
}

func (s *fakeLLM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req llmRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.n++
	var lag time.Duration
	if s.lag != nil {
		lag = s.lag(s.n)
	}
	s.mu.Unlock()
	time.Sleep(lag)
	took := s.take(w.Header(), &req)
	time.Sleep(lag)
	if !took {
		http.Error(w, `{"error":{"message":"Rate limit reached"}}`, http.StatusTooManyRequests)
		return
	}
	if !s.late {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, "data: {\"delta\":\"hello\"}\n\n")
		w.(http.Flusher).Flush()
	}
	select {
	case <-time.After(time.Duration(req.Seconds * float64(time.Second))):
	case <-r.Context().Done():
	}
	if s.late {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[],"usage":{"total_tokens":%d}}`, req.Real)
	} else {
		fmt.Fprintf(w, "data: {\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", req.Real)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.advance(time.Now())
	if s.anthropic {
		s.tokens.level -= float64(req.Real)
	} else if s.returns {
		s.tokens.level += float64(req.MaxTokens - req.Real)
	}
}

// take counts a request and writes the headers.
func (s *fakeLLM) take(h http.Header, req *llmRequest) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.requests.advance(now)
	s.tokens.advance(now)
	need := float64(req.Real)
	if s.anthropic {
		need = 0
	} else if s.returns {
		need = float64(req.MaxTokens)
	}
	ok = s.requests.level >= 1 && s.tokens.level >= need
	if ok {
		s.requests.level--
		s.tokens.level -= need
		s.used += int(req.Real)
		s.last = now
	} else {
		s.refused++
		wait := max((1-s.requests.level)/s.requests.perMinute, (need-s.tokens.level)/s.tokens.perMinute) * 60
		h.Set("Retry-After-Ms", strconv.Itoa(int(math.Ceil(wait*1000))))
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait))))
	}
	for name, b := range map[string]*fakeBucket{"Requests": &s.requests, "Tokens": &s.tokens} {
		limit := b.perMinute
		if s.sizes {
			limit = b.burst
		}
		if s.anthropic {
			if name == "Tokens" {
				name = "Output-Tokens"
			}
			h.Set("Anthropic-Ratelimit-"+name+"-Limit", strconv.Itoa(int(limit)))
			h.Set("Anthropic-Ratelimit-"+name+"-Remaining", strconv.Itoa(int(max(0, b.level))))
			h.Set("Anthropic-Ratelimit-"+name+"-Reset", now.Add(b.reset()+time.Second-1).UTC().Format(time.RFC3339))
			continue
		}
		h.Set("X-Ratelimit-Limit-"+name, strconv.Itoa(int(limit)))
		h.Set("X-Ratelimit-Remaining-"+name, strconv.Itoa(int(max(0, b.level))))
		h.Set("X-Ratelimit-Reset-"+name, b.reset().String())
	}
	return ok
}

// estimated is the cost of a request to a fakeLLM.
func estimated(units ...sluice.Unit) func(*http.Request, []byte) sluice.Costs {
	return func(_ *http.Request, body []byte) sluice.Costs {
		var req llmRequest
		_ = json.Unmarshal(body, &req)
		costs := make(sluice.Costs)
		for _, unit := range units {
			costs[unit] = req.MaxTokens
		}
		return costs
	}
}

// totalTokens reads the usage of a response of a fakeLLM.
func totalTokens(unit sluice.Unit) func(*http.Response, []byte, sluice.Costs) {
	return func(_ *http.Response, part []byte, used sluice.Costs) {
		var answer struct {
			Usage *struct {
				Total int64 `json:"total_tokens"`
			} `json:"usage"`
		}
		if json.Unmarshal(part, &answer) == nil && answer.Usage != nil {
			used[unit] = answer.Usage.Total
		}
	}
}

// post sends req and reads the answer to its end.
func (w *world) post(ctx context.Context, req llmRequest) (status int, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return 0, err
	}
	r := request(w, ctx, http.MethodPost, "https://llm.test/v1", strings.NewReader(string(body)))
	resp, err := w.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// jitter is a lag of 5 to 35 ms that differs from request to request.
func jitter(n int) time.Duration { return time.Duration(5+n*7%31) * time.Millisecond }

// With nothing configured but the cost, a batch meets a limit of tokens as well as one of
// requests: hardly anything is refused, and hardly any token is left unused.
func TestConfig_Cost_HonorsPublishedLimits(t *testing.T) {
	for _, c := range []struct {
		name      string
		requests  fakeBucket
		tokens    fakeBucket
		late      bool
		anthropic bool
		returns   bool
		sizes     bool
		estimate  float64 // of what is really used
		least     float64 // of what the server would allow
		refused   int     // if more than 2
	}{
		{name: "tokens", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, estimate: 1.5, least: 0.97},
		{name: "tokens, bucket of a minute", requests: fakeBucket{perMinute: 500, burst: 500}, tokens: fakeBucket{perMinute: 60_000, burst: 60_000}, estimate: 1.5, least: 0.90}, // 92 to 96.5 by the order in which calls that end at once are seen,
		{name: "tokens, header at the end", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, late: true, estimate: 1.5, least: 0.85},
		{name: "tokens, estimate far too high", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, estimate: 8, least: 0.94},
		{name: "tokens, which are given back", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, returns: true, estimate: 1.5, least: 0.95}, // of the first 10,000 a third is reserved for nothing,
		{name: "tokens, sizes", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, sizes: true, estimate: 1.5, least: 0.97},
		{name: "tokens, estimate too low", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, estimate: 0.8, least: 0.95, refused: 20},
		{name: "requests", requests: fakeBucket{perMinute: 120, burst: 20}, tokens: fakeBucket{perMinute: 600_000, burst: 100_000}, estimate: 1.5, least: 0.97},
		{name: "output tokens", requests: fakeBucket{perMinute: 500, burst: 83}, tokens: fakeBucket{perMinute: 60_000, burst: 10_000}, anthropic: true, estimate: 1.5, least: 0.85},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func() (share float64, refused int) {
				srv := &fakeLLM{requests: c.requests, tokens: c.tokens, late: c.late, returns: c.returns, sizes: c.sizes, anthropic: c.anthropic, lag: jitter}
				cfg := sluicehttp.Config{Cost: estimated("tokens"), Usage: totalTokens("tokens")}
				if c.anthropic {
					cfg = sluicehttp.Config{Cost: estimated("output"), Usage: totalTokens("output")}
				}
				inWorld(t, cfg, layers(sluicetest.Handler(srv)), func(w *world) {
					const calls = 300
					work := make(chan int)
					var wg sync.WaitGroup
					for range 64 {
						wg.Go(func() {
							for n := range work {
								actual := 100 + n*37%400
								at, err := w.post(w.Context(), llmRequest{
									MaxTokens: int64(c.estimate * float64(actual)), Real: int64(actual), Seconds: 2 + float64(n%9),
								})
								if err != nil || at != http.StatusOK {
									t.Errorf("call %d: %d, %v", n, at, err)
								}
							}
						})
					}
					for n := range calls {
						work <- n
					}
					close(work)
					wg.Wait()
					last := srv.last.Sub(w.start)
					ideal := max((float64(srv.used)-c.tokens.burst)/c.tokens.perMinute, (calls-c.requests.burst)/c.requests.perMinute) * 60
					share, refused = ideal/last.Seconds(), srv.refused
					t.Logf("%d tokens in %v, ideal %.1f s: %.1f %%, %d refused", srv.used, last, ideal, share*100, srv.refused)
				})
				return share, refused
			}
			// With estimates that are too low, the order of the callers, which is chance, makes one run of fifty miss:
			// then the mean of five is judged.
			share, refused := run()
			if share < c.least || refused > max(2, c.refused) {
				for range 4 {
					more, denied := run()
					share, refused = share+more, refused+denied
				}
				share, refused = share/5, refused/5
			}
			if share < c.least {
				t.Errorf("%.1f %% of what the server allows, want %.0f", share*100, c.least*100)
			}
			if refused > max(2, c.refused) {
				t.Errorf("%d refused", refused)
			}
		})
	}
}

// windowed answers with what remains of a window of two minutes for 10 requests, and refuses
// more with 403, as GitHub does.
func windowed(lag time.Duration) []sluicetest.Layer {
	return layers(
		sluicetest.Delay(lag),
		sluicetest.Enforce(sluicetest.Limit{Quota: 10, Window: 2 * time.Minute, Status: http.StatusForbidden, HeaderStyle: sluicetest.GitHub}),
		sluicetest.Delay(lag), sluicetest.Reply(200, "ok"),
	)
}

// one is the cost of a request that takes nothing else.
func one(*http.Request, []byte) sluice.Costs { return nil }

// Calls in flight never exceed what remains, so a window ends without a refusal.
func TestConfig_Cost_InFlightNeverExceedsWhatRemains(t *testing.T) {
	inWorld(t, sluicehttp.Config{Cost: one, Inspect: inspect.GitHub}, windowed(40*ms), func(w *world) {
		var wg sync.WaitGroup
		for range 35 {
			wg.Go(func() { w.wantGet("https://a.test/", 200) })
		}
		wg.Wait()
		r := w.srv.Record()
		if r.Throttled() > 0 {
			t.Errorf("%d refused", r.Throttled())
		}
		// One alone; when it has shown what remains the other nine together, and then a
		// window each two minutes and the time that a response takes.
		want := map[time.Duration]int{0: 1, 80 * ms: 9, 120_160 * ms: 10, 240_240 * ms: 10, 360_320 * ms: 5}
		for at, n := range want {
			got := 0
			for _, a := range r.Arrivals() {
				if a == at {
					got++
				}
			}
			if got != n {
				t.Errorf("%d requests at %v, want %d: %v", got, at, n, r.Arrivals())
			}
		}
	})
}

// Without limits in the first response nothing is held up. A response that says nothing
// because the server failed shows nothing.
func TestConfig_Cost_FirstCallShowsTheLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		first sluicetest.Layer
		want  []time.Duration
	}{
		{"none", sluicetest.Reply(200, "ok"), []time.Duration{0, 50 * ms, 50 * ms, 50 * ms}},
		{"failed", sluicetest.Status(500), []time.Duration{0, 50 * ms, 100 * ms, 100 * ms, 1050 * ms}},
		{"cut", sluicetest.Cut(), []time.Duration{0, 50 * ms, 100 * ms, 100 * ms, 1050 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := layers(sluicetest.Delay(50*ms), sluicetest.On(1, c.first), sluicetest.Reply(200, "ok"))
			inWorld(t, sluicehttp.Config{Cost: one, Retry: seconds}, l, func(w *world) {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { w.wantGet("https://a.test/", 200) })
				}
				wg.Wait()
				w.wantCame(c.want...)
			})
		})
	}
}

// Until there is a response, or the last request is canceled, one starts every 100 ms.
func TestConfig_Cost_FirstCallThatHangs(t *testing.T) {
	for _, c := range []struct {
		name   string
		cancel time.Duration
		want   []time.Duration
	}{
		{"hangs", time.Hour, []time.Duration{0, 100 * ms, 200 * ms, 200 * ms}},
		{"is cancelled", 30 * ms, []time.Duration{0, 30 * ms, 130 * ms, 130 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := layers(sluicetest.First(2, sluicetest.Delay(100*time.Hour)), sluicetest.Reply(200, "ok"))
			inWorld(t, sluicehttp.Config{Cost: one}, l, func(w *world) {
				ctx, cancel := context.WithCancel(bg)
				time.AfterFunc(c.cancel, cancel)
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { _, _, _ = w.get(ctx, "https://a.test/") })
					synctest.Wait()
					if c.cancel < time.Minute { // only the first one is
						ctx = bg
					}
				}
				time.Sleep(time.Minute)
				w.wantCame(c.want...)
				cancel()
				w.srv.Close() // for those that hang
				wg.Wait()
			})
		})
	}
}

// A window that began anew, and of which responses say nothing any more, holds nobody up:
// also not if there are no responses at all.
func TestConfig_Cost_ForgetsWindowsOfWhichNothingIsSaid(t *testing.T) {
	for name, then := range map[string]sluicetest.Layer{"responses": sluicetest.Reply(200, "ok"), "none": sluicetest.Garbage("what?\r\n\r\n")} {
		t.Run(name, func(t *testing.T) {
			first := sluicetest.On(1, sluicetest.Reply(200, "ok", `RateLimit-Policy: "p";q=3;w=60`, `RateLimit: "p";r=0;t=60`))
			cfg := sluicehttp.Config{Cost: one, Retry: sluice.RetryPolicy{Attempts: 1}}
			inWorld(t, cfg, layers(first, sluicetest.Delay(time.Second), then), func(w *world) {
				w.wantGet("https://a.test/", 200)
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { _, _, _ = w.get(bg, "https://a.test/") })
				}
				wg.Wait()
				w.wantCame(0, 60*time.Second, 60*time.Second, 60*time.Second, 61*time.Second, 61*time.Second, 61*time.Second, 61*time.Second, 61*time.Second)
			})
		})
	}
}

// shows answers all requests with headers about a limit.
func shows(headers ...string) []sluicetest.Layer {
	return layers(sluicetest.Reply(200, "ok", headers...))
}

// spend sends a request that costs n tokens, and returns when it left.
func (w *world) spend(ctx context.Context, n int64) (time.Duration, error) {
	_, err := w.post(ctx, llmRequest{MaxTokens: n})
	r := w.srv.Record().Requests
	return r[len(r)-1].Arrived, err
}

// Input and output are limited apart, and a call takes from both or from none.
func TestConfig_Cost_MatchesUnitsOfHeaders(t *testing.T) {
	for unit, headers := range map[sluice.Unit][]string{
		"tokens": {"X-Ratelimit-Limit-Tokens: 60", "X-Ratelimit-Remaining-Tokens: 10", "X-Ratelimit-Reset-Tokens: 50s"},
		"input":  {"Anthropic-Ratelimit-Input-Tokens-Limit: 60", "Anthropic-Ratelimit-Input-Tokens-Remaining: 10", "Anthropic-Ratelimit-Input-Tokens-Reset: 2000-01-01T00:00:50Z"},
		"output": {"Anthropic-Ratelimit-Output-Tokens-Limit: 60", "Anthropic-Ratelimit-Output-Tokens-Remaining: 10", "Anthropic-Ratelimit-Output-Tokens-Reset: 2000-01-01T00:00:50Z"},
		"bytes":  {`RateLimit-Policy: "b";q=60;w=60;qu="content-bytes"`, `RateLimit: "b";r=10;t=50`},
		"points": {`RateLimit-Policy: "p";q=60;w=60;qu="points"`, `RateLimit: "p";r=10;t=50`},
	} {
		t.Run(string(unit), func(t *testing.T) {
			cost := estimated(unit)
			inWorld(t, sluicehttp.Config{Cost: cost}, shows(headers...), func(w *world) {
				if at, err := w.spend(bg, 1); at != 0 || err != nil {
					t.Fatal(at, err)
				}
				// 10 remain, and the rest comes one per second, or for a window at its end.
				want := 20 * time.Second
				if unit == "bytes" || unit == "points" {
					want = 50 * time.Second
				}
				if unit == "output" {
					want += time.Second // the response did not count the output of the first one
				}
				if at, err := w.spend(bg, 30); at != want || err != nil {
					t.Errorf("30 left at %v, %v; want %v", at, err, want)
				}
			})
			// What counts nothing of it does not wait.
			none := func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"other": 1000} }
			inWorld(t, sluicehttp.Config{Cost: none}, shows(headers...), func(w *world) {
				for range 20 {
					if at, err := w.spend(bg, 30); at != 0 || err != nil {
						t.Fatal(at, err)
					}
				}
			})
		})
	}
}

// A call that cannot leave before its deadline is refused, with the reason; one that is
// cancelled takes nothing, and the next one leaves.
func TestConfig_Cost_PublishedLimitDeadlineAndCancel(t *testing.T) {
	headers := []string{"X-Ratelimit-Limit-Tokens: 60", "X-Ratelimit-Remaining-Tokens: 10", "X-Ratelimit-Reset-Tokens: 50s"}
	inWorld(t, sluicehttp.Config{Cost: estimated("tokens")}, shows(headers...), func(w *world) {
		if _, err := w.spend(bg, 1); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		_, err := w.post(short, llmRequest{MaxTokens: 30})
		var wait *limits.WaitError
		if !errors.As(err, &wait) || wait.For != "limit of the server" || w.now() != 0 {
			t.Errorf("after %v: %v", w.now(), err)
		}
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		first, second := make(chan error), make(chan time.Duration, 1)
		go func() {
			_, err := w.post(ctx, llmRequest{MaxTokens: 30})
			first <- err
		}()
		synctest.Wait()
		go func() {
			at, _ := w.spend(bg, 10)
			second <- at
		}()
		time.Sleep(3 * time.Second)
		if len(second) > 0 {
			t.Error("a smaller call left first")
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if at := <-second; at != 3*time.Second {
			t.Errorf("left at %v", at)
		}
	})
}

// A wait for a published limit that is longer than MaxServerWait ends the call at once, and all
// that wait behind it, and the report says when to come back. So it is with a limit of a unit that
// no call is known to take.
func TestConfig_Cost_PublishedLimitBeyondMaxServerWait(t *testing.T) {
	for name, headers := range map[string][]string{
		"window":       {"X-Ratelimit-Limit: 5000", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 3600"},
		"tokens":       {"X-Ratelimit-Limit-Tokens: 60", "X-Ratelimit-Remaining-Tokens: 0", "X-Ratelimit-Reset-Tokens: 1h"},
		"unknown unit": {"X-Ratelimit-Limit-Widgets: 60", "X-Ratelimit-Remaining-Widgets: 0", "X-Ratelimit-Reset-Widgets: 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(most time.Duration, f func(w *world)) {
				cfg := sluicehttp.Config{Cost: estimated("tokens"), Retry: sluice.RetryPolicy{MaxServerWait: most}}
				once := sluicetest.On(1, shows(headers...)[0])
				inWorld(t, cfg, layers(once, sluicetest.Reply(200, "ok")), func(w *world) {
					if _, err := w.spend(bg, 1); err != nil {
						t.Fatal(err)
					}
					f(w)
				})
			}
			with(0, func(w *world) {
				var calls sync.WaitGroup
				for range 3 {
					calls.Go(func() {
						ctx, report := sluicehttp.WithReport(bg)
						_, err := w.spend(ctx, 60)
						if !errors.Is(err, sluice.ErrServerWait) || w.now() != 0 {
							t.Errorf("after %v: %v", w.now(), err)
						}
						if last := report.Last(); !errors.Is(last.Why, sluice.ErrServerWait) || time.Until(last.RetryAt).Round(time.Minute) != time.Hour {
							t.Errorf("%v, retry at %v", last.Why, last.RetryAt)
						}
					})
				}
				calls.Wait()
				time.Sleep(time.Hour + time.Minute)
				if _, err := w.spend(bg, 1); err != nil {
					t.Errorf("an hour later: %v", err)
				}
			})
			for _, most := range []time.Duration{-1, 2 * time.Hour} {
				with(most, func(w *world) {
					if at, err := w.spend(bg, 60); err != nil || at.Round(time.Minute) != time.Hour {
						t.Errorf("MaxServerWait %v: left at %v, %v", most, at, err)
					}
				})
			}
		})
	}
}

// Resume forgets what the server published, and a call that waits leaves.
func TestTransport_Resume_ForgetsPublishedLimits(t *testing.T) {
	headers := []string{"X-Ratelimit-Limit-Tokens: 60", "X-Ratelimit-Remaining-Tokens: 0", "X-Ratelimit-Reset-Tokens: 60s"}
	inWorld(t, sluicehttp.Config{Cost: estimated("tokens")}, shows(headers...), func(w *world) {
		if _, err := w.spend(bg, 1); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { w.rt.Resume("https://llm.test") })
		if at, err := w.spend(bg, 30); at != time.Second || err != nil {
			t.Errorf("left at %v, %v", at, err)
		}
	})
}

// Spread sends what remains of any unit evenly until its reset.
func TestConfig_Spread_EachUnit(t *testing.T) {
	headers := []string{`RateLimit-Policy: "p";q=60;w=60;qu="points"`, `RateLimit: "p";r=30;t=60`}
	cfg := sluicehttp.Config{Cost: estimated("points"), Published: sluicehttp.Published{Spread: 1}}
	once := sluicetest.On(1, shows(headers...)[0])
	inWorld(t, cfg, layers(once, sluicetest.Reply(200, "ok")), func(w *world) {
		var got []time.Duration
		for range 6 {
			at, err := w.spend(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, at)
		}
		// 30 points in 60 s are one in 2 s.
		if want := "[0s 0s 6s 12s 18s 24s]"; fmt.Sprint(got) != want {
			t.Errorf("left at %v, want %s", got, want)
		}
	})
}

// A server cannot hold a call up for longer than MaxPause, nor by what it says was used.
func TestConfig_MaxPause_BoundsPublishedLimits(t *testing.T) {
	headers := []string{`RateLimit-Policy: "p";q=60;w=99999999;qu="points"`, `RateLimit: "p";r=0;t=99999999`}
	inWorld(t, sluicehttp.Config{Cost: estimated("points"), MaxPause: time.Minute}, shows(headers...), func(w *world) {
		if _, err := w.spend(bg, 1); err != nil {
			t.Fatal(err)
		}
		if at, err := w.spend(bg, 30); at != time.Minute || err != nil {
			t.Errorf("left at %v, %v", at, err)
		}
	})
}

// A gate whose published limits are full again is forgotten like any other.
func TestConfig_Cost_GatesAreForgotten(t *testing.T) {
	headers := []string{"X-Ratelimit-Limit-Tokens: 60", "X-Ratelimit-Remaining-Tokens: 10", "X-Ratelimit-Reset-Tokens: 50s"}
	cfg := sluicehttp.Config{Cost: estimated("tokens"), Keys: sluice.KeyedConfig{EvictAt: 1}}
	inWorld(t, cfg, shows(headers...), func(w *world) {
		gates := func() (n int) {
			for range w.rt.Gates() {
				n++
			}
			return n
		}
		for i := range 3 {
			w.wantGet(fmt.Sprintf("https://%d.test/", i), 200)
		}
		if n := gates(); n != 3 {
			t.Errorf("%d gates, want 3", n)
		}
		time.Sleep(2 * time.Minute)
		for i := range 8 {
			w.wantGet(fmt.Sprintf("https://%d.test/", 10+i%2), 200)
		}
		if n := gates(); n > 3 {
			t.Errorf("%d gates", n)
		}
	})
}

// # Buckets that refill

// bucket is a header as OpenAI or Anthropic sends it, of a limit of 50 per minute.
func bucket(vendor, unit string, remaining int, reset time.Duration) []string {
	if vendor == "openai" {
		p := "X-RateLimit-%s-" + unit + ": %v"
		return []string{fmt.Sprintf(p, "Limit", 50), fmt.Sprintf(p, "Remaining", remaining), fmt.Sprintf(p, "Reset", reset)}
	}
	p := "Anthropic-RateLimit-" + unit
	at := time.Now().Add(reset).UTC().Format(time.RFC3339)
	return []string{p + "-Limit: 50", fmt.Sprintf("%s-Remaining: %d", p, remaining), p + "-Reset: " + at}
}

// Nothing remains of a bucket that is full in a minute: the next call leaves when
// there is one more request, and at once if it is tokens that are used up. That is
// so for all callers, whatever else the gate has.
func TestTransport_EmptyBucket(t *testing.T) {
	rate := sluice.Rate{Count: 10, Per: time.Second}
	for unit, want := range map[string]time.Duration{"Requests": 1200 * ms, "Tokens": 0, "Input-Tokens": 0, "Output-Tokens": 0} {
		for _, vendor := range []string{"openai", "anthropic"} {
			for name, gate := range map[string]sluice.Config{"no rate": {Concurrency: 1}, "rate": {Rate: rate}} {
				for _, scheme := range []string{"http", "https"} {
					t.Run(fmt.Sprint(unit, "/", vendor, "/", name, "/", scheme), func(t *testing.T) {
						inWorld(t, sluicehttp.Config{}, nil, func(w *world) {
							srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Header(bucket(vendor, unit, 0, time.Minute)...)),
								sluicetest.When(func(n int, _ *http.Request) bool { return n > 1 }, sluicetest.Header(bucket(vendor, unit, 40, 12*time.Second)...)))
							defer srv.Close()
							base := srv.Transport()
							defer base.CloseIdleConnections()
							w.srv, w.client.Transport = srv, mustTransport(t, base, sluicehttp.Config{Gate: gate})
							w.wantGet(scheme+"://a.test/", 200)
							w.wantGet(scheme+"://b.test/", 200) // another gate
							w.wantGet(scheme+"://a.test/", 200)
							if want := max(want, gate.Rate.Interval()); w.now() != want {
								t.Errorf("the next call left after %v, want %v", w.now(), want)
							}
						})
					})
				}
			}
		}
	}
}

// A 429 of an empty bucket without a Retry-After is waited for likewise, and the
// waits double as long as it refuses: it may be a window after all.
func TestTransport_EmptyBucket_RefusedWithoutATime(t *testing.T) {
	refuse := sluicetest.Status(429, bucket("openai", "Requests", 0, 50*time.Second)...)
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.First(4, refuse)), func(w *world) {
		w.wantGet("http://a.test/", 200)
		w.wantCame(0, time.Second, 3*time.Second, 7*time.Second, 15*time.Second)
	})
}

// A refusal for want of tokens does not pause the gate: the call backs off, others
// go on.
func TestTransport_EmptyBucket_TokensWithoutATime(t *testing.T) {
	refuse := sluicetest.Status(429, bucket("openai", "Tokens", 0, time.Minute)...)
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.On(1, refuse)), func(w *world) {
		var wg sync.WaitGroup
		wg.Go(func() { w.wantGet("http://a.test/large", 200) })
		time.Sleep(100 * ms)
		wg.Go(func() { w.wantGet("http://a.test/small", 200) })
		wg.Wait()
		w.wantCame(0, 100*ms, time.Second)
	})
}

// A window in the fields of a bucket is known by its first answers. One that is
// met when nothing remains costs one refusal, which is remembered, and forgotten
// if it is not confirmed.
func TestTransport_EmptyBucket_IsAWindow(t *testing.T) {
	inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, nil, func(w *world) {
		answer := func(status, remaining int, reset time.Duration, more ...string) sluicetest.Layer {
			return sluicetest.Status(status, append(bucket("openai", "Requests", remaining, reset), more...)...)
		}
		srv := sluicetest.NewServer(sluicetest.Script(
			answer(200, 0, 50*time.Second), // one more in 1 s, so it seems
			answer(429, 0, 49*time.Second, "Retry-After: 49"),
			answer(200, 0, 50*time.Second), // 49 s, as the server said
			answer(200, 0, 50*time.Second), // half of that
			answer(200, 0, 50*time.Second),
		))
		defer srv.Close()
		base := srv.Transport()
		defer base.CloseIdleConnections()
		w.srv, w.client.Transport = srv, mustTransport(t, base, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}})
		for range 5 {
			w.wantGet("http://a.test/", 200)
		}
		s := time.Second
		w.wantCame(0, s, 50*s, 99*s, 123*s+500*ms, 135*s+750*ms)
	})
}

// What is spread of a bucket is what remains and what it gets until it is full.
func TestConfig_Spread_Bucket(t *testing.T) {
	answer := sluicetest.Status(200, bucket("openai", "Requests", 10, 48*time.Second)...)
	inWorld(t, sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}}, layers(answer), func(w *world) {
		w.wantGet("http://a.test/", 200)
		if s := stats(t, w.rt); !s.Published || s.Rate != (sluice.Rate{Count: 50, Per: 48 * time.Second}) {
			t.Errorf("spread %v, %v", s.Published, s.Rate)
		}
	})
}

// Names that a server makes up are not kept without bound.
func TestTransport_EmptyBucket_MemoryIsBounded(t *testing.T) {
	var header []string
	for i := range 20 {
		header = append(header, fmt.Sprintf("X-RateLimit-Limit-%d-Requests: 50", i), fmt.Sprintf("X-RateLimit-Remaining-%d-Requests: 9", i), fmt.Sprintf("X-RateLimit-Reset-%d-Requests: 50s", i))
	}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Status(200, header...)), func(w *world) {
		w.wantGet("http://a.test/", 200)
		if n := w.rt.Claims(); n != 8 {
			t.Errorf("%d buckets are kept", n)
		}
	})
}

// An hourly is a base transport to a server with n requests an hour and the headers of GitHub.
type hourly struct {
	n       int
	clocked bool // hours begin when those of the clock do, otherwise with a request

	mu      sync.Mutex
	seed    uint64
	left    int
	end     time.Time
	sent    []time.Duration // from its beginning to the last request, of each hour
	refused int
}

// lag is how long a request or a response is on its way.
func (s *hourly) lag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seed = s.seed*6364136223846793005 + 1442695040888963407
	return 10*ms + time.Duration(s.seed>>33)%(20*ms)
}

func (s *hourly) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(s.lag())
	resp := s.serve(req)
	time.Sleep(s.lag())
	return resp, nil
}

func (s *hourly) serve(req *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !now.Before(s.end) {
		s.left, s.end, s.sent = s.n, now.Add(time.Hour), append(s.sent, 0)
		if s.clocked {
			s.end = now.Truncate(time.Hour).Add(time.Hour)
		}
	}
	status := 200
	if s.left == 0 {
		s.refused++
		status = 403
	} else {
		s.left--
		s.sent[len(s.sent)-1] = now.Sub(s.end.Add(-time.Hour))
	}
	h := http.Header{}
	h.Set("X-RateLimit-Limit", strconv.Itoa(s.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(s.left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(s.end.Add(time.Second-1).Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: req, ProtoMajor: 1, ProtoMinor: 1}
}

// The third hour and the fourth begin as soon as the second.
func TestConfig_Cost_EachHourIsLikeTheOthers(t *testing.T) {
	for _, n := range []int{50, 500} {
		for _, clocked := range []bool{false, true} {
			t.Run(fmt.Sprint(n, clocked), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					time.Sleep(59*time.Minute + 30300*ms)
					s := &hourly{n: n, clocked: clocked}
					rt := mustTransport(t, s, sluicehttp.Config{
						Retry: sluice.RetryPolicy{MaxServerWait: 2 * time.Hour},
						Cost:  func(*http.Request, []byte) sluice.Costs { return nil },
					})
					var work sync.WaitGroup
					for range 8 {
						work.Go(func() {
							for range 5 * n / 8 {
								req, _ := http.NewRequest("GET", "http://api.test/", nil)
								resp, err := rt.RoundTrip(req)
								if err != nil {
									t.Error(err)
									return
								}
								resp.Body.Close()
							}
						})
					}
					work.Wait()
					ideal := time.Duration(n) * 40 * ms / 8
					for i, last := range s.sent[1:] {
						if last > ideal+2*time.Second {
							t.Errorf("hour %d: the last request %v after it began; want %v", i+2, last, ideal)
						}
					}
					if len(s.sent) < 5 || s.refused > 0 {
						t.Errorf("%d hours, %d refused", len(s.sent), s.refused)
					}
				})
			})
		}
	}
}

// A bucket that is published spaces the calls after a pause, as a rate does: there is no slow start,
// which at a server that takes ten seconds for each response takes a minute.
func TestConfig_Cost_NoSlowStartAtABucket(t *testing.T) {
	work := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(10 * time.Second) }))
	limit := sluicetest.Limit{Count: 60, Per: time.Minute, Burst: 10, HeaderStyle: sluicetest.OpenAI}
	inWorld(t, sluicehttp.Config{Cost: one}, layers(sluicetest.Enforce(limit), work), func(w *world) {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if i == 0 {
					w.wantGet("https://a.test/", 200)
				}
				if i > 0 {
					time.Sleep(11 * time.Second)
					w.wantGet("https://a.test/", 200)
				}
			})
		}
		time.AfterFunc(15*time.Second, func() {
			w.rt.PauseUntil("https://a.test", time.Now().Add(time.Second), "as if nothing remained")
		})
		wg.Wait()
		// 11 s, ten calls at the same time, the others one a second.
		if took := time.Since(began); took > 115*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
