package sluicehttp_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
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
			inWorld(t, sluicehttp.Config{Inspect: sluicehttp.GitHub}, layers(sluicetest.On(1, sluicetest.Reply(c.status, c.body, c.header...))), func(w *world) {
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
	cfg := sluicehttp.Config{Inspect: sluicehttp.GitHub, Gate: sluice.Config{Concurrency: 3, Adaptive: sluice.Adaptive{Off: true}}}
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
			inWorld(t, sluicehttp.Config{Retry: seconds, Inspect: sluicehttp.GraphQL}, layers(sluicetest.On(1, sluicetest.Reply(200, c.body, c.kind))), func(w *world) {
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
		inWorld(t, sluicehttp.Config{Retry: seconds, Inspect: sluicehttp.GraphQL}, layers(sluicetest.On(1, refusal)), func(w *world) {
			w.wantGet("http://a.test/graphql", 200)
			w.wantCame(0, want)
		})
	}
}

func TestGoogle(t *testing.T) {
	const body = `{"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.463586755s"}]}}`
	inWorld(t, sluicehttp.Config{Inspect: sluicehttp.Google}, layers(sluicetest.On(1, sluicetest.Reply(429, body)), sluicetest.On(1, sluicetest.Reply(503, "no JSON"))), func(w *world) {
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
		inWorld(t, sluicehttp.Config{Inspect: sluicehttp.Google}, layers(sluicetest.On(1, sluicetest.Reply(429, body, "Retry-After: 10"))), func(w *world) {
			w.wantGet("http://a.test/", 200)
			w.wantCame(0, want)
		})
	}
}

// An inspector sees 64 KiB of a body, and the caller all of it.
func TestInspector_PeekLeavesTheBody(t *testing.T) {
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
