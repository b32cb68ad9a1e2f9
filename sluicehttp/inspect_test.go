package sluicehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

const secondary = `{"message": "You have exceeded a secondary rate limit. Please wait.", "documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`

func TestGitHub(t *testing.T) {
	remaining := []string{"X-RateLimit-Limit: 15000", "X-RateLimit-Remaining: 14463", "X-RateLimit-Reset: 2100", "X-GitHub-Request-Id: 1"}
	for _, c := range []struct {
		name   string
		status int
		body   string
		header []string
		tries  []time.Duration
	}{
		{"secondary, 403", 403, secondary, remaining, []time.Duration{0, time.Minute}},
		{"secondary, 429", 429, secondary, remaining, []time.Duration{0, time.Minute}},
		{"secondary with a time", 403, secondary, append([]string{"Retry-After: 90"}, remaining...), []time.Duration{0, 90 * time.Second}},
		{"abuse", 403, `{"message": "You have triggered an abuse detection mechanism."}`, nil, []time.Duration{0, time.Minute}},
		{"by its address", 403, `{"documentation_url": "https://docs.github.com/#secondary-rate-limits"}`, nil, []time.Duration{0, time.Minute}},
		{"forbidden", 403, `{"message": "Resource not accessible by integration"}`, remaining, []time.Duration{0}},
		{"no JSON", 403, `<html>`, remaining, []time.Duration{0}},
		{"another status", 404, secondary, remaining, []time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{Inspect: inspect.GitHub}, layers(sluicetest.On(1, sluicetest.Reply(c.status, c.body, c.header...))), func(w *world) {
				status, body, err := w.get(bg, "http://api.github.test/")
				if err != nil || len(c.tries) == 1 && (status != c.status || body != c.body) || len(c.tries) == 2 && status != 200 {
					t.Errorf("%d, %q, %v", status, body, err)
				}
				w.wantCame(c.tries...)
			})
		})
	}
}

// A minute, two, four: but one burst of refusals is one, and a success ends it.
func TestGitHub_WaitsDouble(t *testing.T) {
	refuse := sluicetest.Reply(403, secondary)
	faults := layers(sluicetest.Delay(ms), sluicetest.Script(
		refuse, refuse, refuse, // a burst
		refuse, // after a minute: the one call that tries
		nil, nil, nil, refuse,
	))
	cfg := sluicehttp.Config{Inspect: inspect.GitHub, Gate: sluice.Config{Concurrency: 3, Adaptive: sluice.Adaptive{Disabled: true}}}
	inWorld(t, cfg, faults, func(w *world) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { w.wantGet("http://api.github.test/", 200) })
		}
		wg.Wait()
		w.wantGet("http://api.github.test/", 200)
		one, two := time.Minute+ms, 3*time.Minute+2*ms
		w.wantCame(0, 0, 0, one, two, two+ms, two+ms, two+2*ms, two+2*ms+time.Minute+ms)
	})
}

func TestGraphQL(t *testing.T) {
	kind := "Content-Type: application/json; charset=utf-8"
	fine := `{"data": {"shop": {"name": "x"}}}`
	long := `{"data": "` + strings.Repeat("errors ", 20000) + `"}`
	for _, c := range []struct {
		name, body, kind string
		tries            int
	}{
		{"Shopify", `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}`, kind, 2},
		{"GitHub", `{"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}`, kind, 2},
		{"Linear", `{"errors": [{"extensions": {"code": "RATELIMITED"}}]}`, "Content-Type: application/graphql-response+json", 2},
		{"another error", `{"errors": [{"message": "Field 'x' does not exist"}]}`, kind, 1},
		{"fine", fine, kind, 1},
		{"long", long, kind, 1},
		{"no JSON", `{"errors": [{"type": "RATE_LIMITED"`, kind, 1},
		{"not said to be JSON", `{"errors": [{"type": "RATE_LIMITED"}]}`, "Content-Type: text/plain", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{Retry: seconds, Inspect: inspect.GraphQL}, layers(sluicetest.On(1, sluicetest.Reply(200, c.body, c.kind))), func(w *world) {
				// A POST, for nothing was done.
				status, body, err := w.do(request(t, bg, "POST", "http://a.test/graphql", strings.NewReader("{}")))
				if status != 200 || err != nil || c.tries == 1 && body != c.body || c.tries == 2 && body != "ok\n" {
					t.Errorf("%d, %.100q, %v", status, body, err)
				}
				if n := len(w.srv.Record().Requests); n != c.tries {
					t.Errorf("%d attempts, want %d", n, c.tries)
				}
			})
		})
	}
}

// A call that is refused because nothing remains is retried when something does: the body
// says that it was refused, and the header until when.
func TestGraphQL_TimeFromTheHeader(t *testing.T) {
	kind := "Content-Type: application/json"
	body := `{"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}`
	for remaining, want := range map[string]time.Duration{
		"0":  time.Minute,
		"12": time.Second, // of another limit, so backed off from
	} {
		refusal := sluicetest.Reply(200, body, kind, "X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: "+remaining, "X-RateLimit-Reset: 60")
		inWorld(t, sluicehttp.Config{Retry: seconds, Inspect: inspect.GraphQL}, layers(sluicetest.On(1, refusal)), func(w *world) {
			w.wantGet("http://a.test/graphql", 200)
			w.wantCame(0, want)
		})
	}
}

func TestGoogle(t *testing.T) {
	const body = `{"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.463586755s"}]}}`
	inWorld(t, sluicehttp.Config{Inspect: inspect.Google}, layers(sluicetest.On(1, sluicetest.Reply(429, body)), sluicetest.On(1, sluicetest.Reply(503, "no JSON"))), func(w *world) {
		w.wantGet("http://a.test/", 503-303) // the 503 is backed off from
		if came := w.srv.Record().Arrivals(); came[1] != 2463586755*time.Nanosecond {
			t.Errorf("the second came at %v", came[1])
		}
	})
}

// Of a Retry-After and a retryDelay the longer one is obeyed.
func TestGoogle_RetryAfter(t *testing.T) {
	for delay, want := range map[string]time.Duration{"2s": 10 * time.Second, "20s": 20 * time.Second} {
		body := `{"error": {"details": [{"retryDelay": "` + delay + `"}]}}`
		inWorld(t, sluicehttp.Config{Inspect: inspect.Google}, layers(sluicetest.On(1, sluicetest.Reply(429, body, "Retry-After: 10"))), func(w *world) {
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, want)
		})
	}
}

// An inspector sees 64 KiB of a body, and the caller all of it.
func TestInspect_PeekLeavesTheBody(t *testing.T) {
	content := strings.Repeat("0123456789", 20000)
	for _, n := range []int{0, 5, 64 << 10, 64<<10 + 1, len(content)} {
		for _, fault := range []sluicetest.Layer{nil, sluicetest.CutBody(3)} {
			var seen, again []byte
			cfg := sluicehttp.Config{
				Inspect: func(resp *http.Response, peek func() []byte, said *ratelimit.Info) { seen, again = peek(), peek() },
				Gate:    sluice.Config{Concurrency: 1},
			}
			faults := layers(sluicetest.Reply(200, content[:n]))
			want, cut := content[:n], fault != nil && n > 3
			if cut {
				want, faults = content[:3], append(layers(fault), faults...)
			}
			inWorld(t, cfg, faults, func(w *world) {
				resp, err := w.client.Get("http://a.test/")
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != want || (err != nil) != cut {
					t.Errorf("%d bytes: read %d, %v", n, len(got), err)
				}
				if string(seen) != want[:min(len(want), 64<<10)] || string(again) != string(seen) {
					t.Errorf("%d bytes: peeked %d, then %d", n, len(seen), len(again))
				}
				resp.Body.Close()
				if n := inFlight(w.rt); n != 0 {
					t.Errorf("%d in flight", n)
				}
			})
		}
	}
}

// # Inspectors together

// wantTries sends a POST that is answered once as said, and checks how often it
// was sent and that an answer which is returned is whole.
func wantTries(t *testing.T, cfg sluicehttp.Config, status int, body string, header []string, tries ...time.Duration) {
	t.Helper()
	cfg.Retry = seconds
	inWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Reply(status, body, header...))), func(w *world) {
		w.Helper()
		got, answer, err := w.do(request(w, bg, "POST", "https://a.test/", strings.NewReader("{}")))
		if err != nil || len(tries) == 1 && (got != status || answer != body) || len(tries) == 2 && got != 200 {
			w.Errorf("%d, %q, %v", got, answer, err)
		}
		w.wantCame(tries...)
	})
}

func TestAWS(t *testing.T) {
	const (
		json10 = "Content-Type: application/x-amz-json-1.0"
		xml    = "Content-Type: application/xml"
	)
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		name   string
		status int
		body   string
		header []string
		tries  []time.Duration
	}{
		{"DynamoDB", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"x"}`, []string{json10}, again},
		{"DynamoDB, an account", 400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Rate of requests exceeds"}`, []string{json10}, again},
		{"JSON, code", 400, `{"code":"Throttling","message":"x"}`, []string{json10}, again},
		{"JSON, Code", 400, `{"Code":"TooManyRequestsException"}`, nil, again},
		{"JSON, a type beside a number", 400, `{"__type":"ThrottlingException","code":400}`, []string{json10}, again},
		{"JSON, a code beside a number", 400, `{"__type":7,"code":"ThrottlingException"}`, []string{json10}, again},
		{"JSON, a code beside a general type", 400, `{"__type":"com.amazon.coral.service#ClientError","code":"ThrottlingException"}`, []string{json10}, again},
		{"JSON, both are others", 400, `{"__type":"ValidationException","code":"Invalid"}`, []string{json10}, once},
		{"a header", 400, "", []string{"X-Amzn-ErrorType: ThrottlingException:http://internal.amazon.com/coral/com.amazon.coral.availability/"}, again},
		{"a header counts more", 400, `{"__type":"ThrottlingException"}`, []string{"X-Amzn-ErrorType: ValidationException"}, once},
		{"S3", 503, `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", []string{xml}, again},
		{"EC2", 503, `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>x</Message></Error></Errors></Response>`, []string{xml}, again},
		{"query", 400, `<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>`, []string{xml}, again},
		{"with a time", 503, `<Error><Code>SlowDown</Code></Error>`, []string{"Retry-After: 7"}, []time.Duration{0, 7 * time.Second}},
		{"another error", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ValidationException"}`, []string{json10}, once},
		{"another error of S3", 503, `<Error><Code>ServiceUnavailable</Code></Error>`, []string{xml}, once},
		{"only its name", 400, `{"message":"ThrottlingException"}`, nil, once},
		{"cut off", 400, `<Error><Code>SlowDown`, nil, once},
		{"no JSON", 400, `{"__type":"ThrottlingException`, nil, once},
		{"empty", 400, "", nil, once},
		{"fine", 200, `<Error><Code>SlowDown</Code></Error>`, nil, once},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantTries(t, sluicehttp.Config{Inspect: inspect.AWS}, c.status, c.body, c.header, c.tries...)
			keep := sluicehttp.Config{Inspect: inspect.AWS, NoRetryThrottled: true}
			wantTries(t, keep, c.status, c.body, c.header, 0)
		})
	}
}

// Errors that look like Amazon's are read without any configuration, and before what
// is configured, which may think otherwise.
func TestAWS_ByDefault(t *testing.T) {
	const json, xml = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`, `<Error><Code>SlowDown</Code></Error>`
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		status       int
		body, header string
		tries        []time.Duration
	}{
		{400, json, "Content-Type: application/x-amz-json-1.0", again},
		{400, json, "Content-Type: application/X-AMZ-JSON-1.1; charset=utf-8", again},
		{400, json, "X-Amzn-RequestId: 1", again},
		{503, xml, "X-Amz-Request-Id: 1", again},
		{503, xml, "Content-Type: application/xml", again},
		{503, xml, "Content-Type: text/xml; charset=utf-8", again},
		{400, "", "X-Amzn-ErrorType: TooManyRequestsException", again},
		{400, json, "Content-Type: application/json", once},
		{400, json, "X-Nothing: 1", once},
		{200, json, "Content-Type: application/x-amz-json-1.0", once},
		{404, "<Error><Code>NoSuchKey</Code></Error>", "Content-Type: application/xml", once},
	} {
		for _, cfg := range []sluicehttp.Config{{}, {Inspect: inspect.GitHub}, {Inspect: inspect.AWS}} {
			if cfg.Inspect == nil || len(c.tries) == 2 {
				wantTries(t, cfg, c.status, c.body, []string{c.header}, c.tries...)
			}
		}
		no := func(_ *http.Response, _ func() []byte, said *ratelimit.Info) { said.ShouldRetry = new(false) }
		wantTries(t, sluicehttp.Config{Inspect: no}, c.status, c.body, []string{c.header}, 0)
	}
}

func TestAnthropic(t *testing.T) {
	body := `{"type":"error","error":{"type":%q,"message":"x","details":{"error_code":%q}},"request_id":"req_1"}`
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		status     int
		kind, code string
		header     string
		tries      []time.Duration
	}{
		{529, "overloaded_error", "", "", again},
		{503, "overloaded_error", "", "", again},
		{500, "overloaded_error", "", "", again},
		{529, "overloaded_error", "", "Retry-After: 9", []time.Duration{0, 9 * time.Second}},
		{529, "overloaded_error", "", "X-Should-Retry: false", once},
		{429, "rate_limit_error", "", "", again},
		{429, "rate_limit_error", "", "Retry-After: 9", []time.Duration{0, 9 * time.Second}},
		{429, "rate_limit_error", "enforced_spend_limit_reached", "", once},
		{500, "api_error", "", "", once}, // a POST
		{400, "overloaded_error", "", "", once},
		{200, "overloaded_error", "", "", once},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var header []string
			if c.header != "" {
				header = append(header, c.header)
			}
			wantTries(t, sluicehttp.Config{Inspect: inspect.Anthropic}, c.status, fmt.Sprintf(body, c.kind, c.code), header, c.tries...)
		})
	}
	wantTries(t, sluicehttp.Config{Inspect: inspect.Anthropic}, 503, "no JSON", nil, 0)
}

// One transport for several APIs: each inspector knows its own, and the later ones
// see what the earlier ones found.
func TestInspect_All(t *testing.T) {
	all := inspect.All(inspect.GitHub, inspect.Google, inspect.GraphQL, inspect.AWS, inspect.Anthropic)
	again := []time.Duration{0, time.Second}
	for _, c := range []struct {
		status int
		body   string
		tries  []time.Duration
	}{
		{403, secondary, []time.Duration{0, time.Minute}},
		{429, `{"error": {"details": [{"retryDelay": "2s"}]}}`, []time.Duration{0, 2 * time.Second}},
		{400, `{"__type":"ThrottlingException"}`, again},
		{503, `<Error><Code>SlowDown</Code></Error>`, again},
		{500, `{"error":{"type":"overloaded_error"}}`, again},
		{400, `{"error":"bad"}`, []time.Duration{0}},
		// Fields of another type than elsewhere hide no others.
		{500, `{"error":{"details":[],"type":"overloaded_error"}}`, again},
		{429, `{"error": {"details": [{"retryDelay": 5}, {"retryDelay": "2s"}]}}`, []time.Duration{0, 2 * time.Second}},
		{403, `{"documentation_url": 7, "message": "You have exceeded a secondary rate limit"}`, []time.Duration{0, time.Minute}},
	} {
		wantTries(t, sluicehttp.Config{Inspect: all}, c.status, c.body, nil, c.tries...)
	}
	wantTries(t, sluicehttp.Config{Inspect: inspect.All()}, 500, "x", nil, 0)
	var order []string
	note := func(name string) inspect.Func {
		return func(_ *http.Response, peek func() []byte, said *ratelimit.Info) {
			order = append(order, fmt.Sprint(name, string(peek()), said.Reason))
			said.Reason += name
		}
	}
	three := []inspect.Func{note("a"), note("b"), note("c")}
	cfg := sluicehttp.Config{Inspect: inspect.All(three...)}
	wantTries(t, cfg, 404, "x", nil, 0)
	if got := fmt.Sprint(order); got != "[ax bxa cxab]" {
		t.Error(got)
	}
}

// # Bodies that stall

// A body that stalls holds Config.Inspect up for a second, and with it RoundTrip and the
// permit. The response is then judged by its header, and the caller can read all of it.
func TestInspect_StallingBody(t *testing.T) {
	jsonType := "Content-Type: application/json"
	long := `{"message": "` + strings.Repeat("x", 100) + `"}`
	for _, c := range []struct {
		name    string
		inspect inspect.Func
		status  int
		header  []string
		second  time.Duration // when the second attempt comes, or how long after the stall; 0 if there is none
	}{
		{"GitHub, forbidden", inspect.GitHub, 403, nil, 0},
		{"GitHub, too many", inspect.GitHub, 429, nil, time.Second},
		{"Google", inspect.Google, 429, []string{"Retry-After: 60"}, time.Minute},
		{"Google, without a time", inspect.Google, 503, nil, time.Second},
		{"GraphQL", inspect.GraphQL, 200, []string{jsonType}, 0},
		{"another", func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) { peek(); peek() }, 404, nil, 0},
	} {
		for _, scheme := range []string{"http", "https"} {
			for _, stall := range []time.Duration{limits.Never, 10 * time.Second} {
				for _, set := range []string{"", "AttemptTimeout", "Permits"} {
					t.Run(fmt.Sprintf("%s/%s/%v/%s", c.name, scheme, stall, set), func(t *testing.T) {
						cfg := sluicehttp.Config{Inspect: c.inspect, Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
						patience := time.Second
						switch set {
						case "AttemptTimeout":
							cfg.Retry.AttemptTimeout, patience = 200*ms, 200*ms
						case "Permits":
							cfg.Gate.Semaphore = new(lender)
						}
						faults := layers(sluicetest.On(1, sluicetest.Stall(20, stall)), sluicetest.On(1, sluicetest.Reply(c.status, long, c.header...)))
						inWorld(t, cfg, faults, func(w *world) {
							resp, err := w.client.Do(request(t, bg, "GET", scheme+"://a.test/", nil))
							if err != nil {
								t.Fatal(err)
							}
							defer resp.Body.Close()
							if c.second > 0 {
								at := c.second
								if at < time.Minute {
									at += patience
								}
								w.wantCame(0, at)
								return
							}
							if w.now() != patience || resp.StatusCode != c.status {
								t.Errorf("%s at %v", resp.Status, w.now())
							}
							start := make([]byte, 20)
							if _, err := io.ReadFull(resp.Body, start); err != nil || string(start) != long[:20] {
								t.Errorf("read %q, %v", start, err)
							}
							if stall == limits.Never {
								resp.Body.Close()
							} else {
								rest, err := io.ReadAll(resp.Body)
								if string(rest) != long[20:] || err != nil || w.now() != stall {
									t.Errorf("read %q, %v at %v", rest, err, w.now())
								}
							}
							if n := inFlight(w.rt); n != 0 {
								t.Errorf("%d in flight", n)
							}
						})
					})
				}
			}
		}
	}
}

// While the body stalls the key is paused by what the header says: no other request
// leaves. An inspector that finds a shorter pause in a body that is there delays no call.
func TestInspect_StallingBody_KeyIsPaused(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		last   time.Duration // when the last of the others may leave
	}{
		{"Retry-After", 429, "Retry-After: 60", time.Minute},
		{"for less than a second", 429, "Retry-After: 0.5", time.Second},
		{"nothing remains", 200, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60", time.Minute},
		{"without a time", 429, "X-Nothing: 0", 0},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				peek := func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) { peek() }
				cfg := sluicehttp.Config{Inspect: peek, Retry: seconds, Gate: sluice.Config{Concurrency: 100}}
				faults := layers(sluicetest.Path("/7", sluicetest.Stall(1, limits.Never)),
					sluicetest.Path("/7", sluicetest.Reply(c.status, "long", strings.Split(c.header, "|")...)))
				inWorld(t, cfg, faults, func(w *world) {
					ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true})
					done := make(chan struct{})
					go func() {
						defer close(done)
						resp, err := w.rt.RoundTrip(request(t, ctx, "GET", scheme+"://a.test/7", nil))
						if err != nil {
							t.Error(err)
							return
						}
						if w.now() != time.Second {
							t.Errorf("RoundTrip came back at %v", w.now())
						}
						resp.Body.Close()
					}()
					synctest.Wait()
					var others []chan struct{}
					for range 100 { // one every 10 ms
						other := make(chan struct{})
						others = append(others, other)
						go func() {
							defer close(other)
							w.get(bg, scheme+"://a.test/8")
						}()
						time.Sleep(10 * ms)
					}
					<-done
					for _, other := range others {
						<-other
					}
					for i, at := range w.srv.Record().Arrivals()[1:] {
						wait := c.last
						if c.name == "for less than a second" {
							wait = 500 * ms
						}
						if at < wait {
							t.Fatalf("request %d left at %v, want %v or later", i, at, wait)
						}
					}
				})
			})
		}
	}
	// The body is there: what the header said lasts no longer than the inspection.
	less := func(_ *http.Response, peek func() []byte, said *ratelimit.Info) {
		if string(peek()) == "soon" {
			said.RetryAt = time.Now().Add(100 * ms)
		}
	}
	for stall, want := range map[time.Duration]time.Duration{0: 100 * ms, 50 * ms: 160 * ms, 300 * ms: 640 * ms} {
		cfg := sluicehttp.Config{Inspect: less, Retry: seconds}
		cfg.Gate.Adaptive.Disabled = true // it would ask the server when it thinks best
		faults := layers(sluicetest.On(1, sluicetest.Stall(1, stall)), sluicetest.On(1, sluicetest.Reply(429, "soon", "Retry-After: 60")))
		inWorld(t, cfg, faults, func(w *world) {
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, want)
		})
	}
}

// A function of the configuration that panics leaks neither the permit nor the body.
func TestInspect_Panic(t *testing.T) {
	inspect := func(before bool) inspect.Func {
		return func(_ *http.Response, peek func() []byte, _ *ratelimit.Info) {
			if !before {
				peek()
			}
			panic("inspect")
		}
	}
	retry := seconds
	retry.Retryable = func(error) bool { panic("retry") }
	for name, cfg := range map[string]sluicehttp.Config{
		"at once":      {Inspect: inspect(true)},
		"after a peek": {Inspect: inspect(false)},
		"Policy.Retry": {Retry: retry},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				faults := layers(sluicetest.Stall(4, limits.Never), sluicetest.Reply(502, "12345678"))
				inWorld(t, sluicehttp.Config{}, faults, func(w *world) {
					closed := 0
					base := roundTripper(func(req *http.Request) (*http.Response, error) {
						resp, err := w.rt.Unwrap().RoundTrip(req)
						if err == nil {
							resp.Body = &closeCounter{resp.Body, &closed}
						}
						return resp, err
					})
					rt := mustTransport(t, base, cfg)
					func() {
						defer func() {
							if recover() == nil {
								t.Error("no panic")
							}
						}()
						rt.RoundTrip(request(t, bg, "GET", scheme+"://a.test/", nil))
					}()
					if n := inFlight(rt); closed != 1 || n != 0 {
						t.Errorf("closed %d times, %d in flight", closed, n)
					}
				})
			})
		}
	}
}

type closeCounter struct {
	io.ReadCloser
	n *int
}

func (c *closeCounter) Close() error {
	*c.n++
	return c.ReadCloser.Close()
}

// While an inspector waits for a body, the key is not paused for longer than
// Config.MaxPause either.
func TestInspect_StallingBody_PauseIsNotLonger(t *testing.T) {
	cfg := sluicehttp.Config{Inspect: inspect.Google, MaxPause: 200 * ms, Retry: sluice.RetryPolicy{Attempts: 1}}
	faults := layers(sluicetest.On(1, sluicetest.Stall(4, limits.Never)), sluicetest.On(1, sluicetest.Reply(429, "12345678", "Retry-After: 60")))
	for _, scheme := range []string{"http", "https"} {
		inWorld(t, cfg, faults, func(w *world) {
			ctx, cancel := context.WithCancel(bg)
			var wg sync.WaitGroup
			wg.Go(func() { w.get(ctx, scheme+"://a.test/") })
			time.Sleep(300 * ms)
			w.wantGet(scheme+"://a.test/", 200)
			if w.now() != 300*ms {
				t.Errorf("%s: the next call left at %v", scheme, w.now())
			}
			cancel()
			wg.Wait()
		})
	}
}
