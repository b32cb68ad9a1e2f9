package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTokens(10, 3)
		take := func(n, left float64, want bool) {
			t.Helper()
			if got, ok := b.take(n); ok != want || int(got+1e-6) != int(left) {
				t.Errorf("take(%v) is %v, %v, want %v, %v", n, got, ok, left, want)
			}
		}
		take(1, 2, true)
		take(2, 0, true)
		take(1, 0, false)
		if wait := time.Until(b.full()); wait != 300*time.Millisecond {
			t.Errorf("full in %v, want 300 ms", wait)
		}
		time.Sleep(100 * time.Millisecond)
		take(1, 0, true)
		time.Sleep(time.Hour)
		take(4, 3, false) // more than there can be
		take(3, 0, true)
	})
}

// The zone beside what the documentation of nginx says: a leaky bucket that holds one call
// more than its burst, and leaks the rate.
func TestZone_IsALeakyBucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, burst := range []int64{0, 1, 20} {
		z := &zone{rate: 20_000, burst: 1000 * burst}
		level, last, granted := 0., int64(0), 0
		now := int64(946684800000)
		for i := range 5000 {
			now += random.Int64N(90)
			want := true
			if i > 0 {
				left := max(0, level-20*float64(now-last)/1000)
				want = left <= float64(burst)+1e-9
				if want {
					level, last = left+1, now
				}
			} else {
				level, last = 1, now
			}
			if got := z.take(now); got != want {
				t.Fatalf("burst %d, call %d at %d: %v, want %v", burst, i, now, got, want)
			}
			if want {
				granted++
			}
		}
		if granted == 5000 || granted < 1000 {
			t.Errorf("burst %d: %d of 5000 were granted", burst, granted)
		}
	}
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2, 1, time.Second)
		for range 2 {
			if !q.enter(t.Context()) {
				t.Fatal("two are not served at once")
			}
		}
		begin := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			if q.enter(t.Context()) || time.Since(begin) != time.Second {
				t.Errorf("served, or sent away after %v, want 1 s", time.Since(begin))
			}
		})
		synctest.Wait()
		if q.enter(t.Context()) {
			t.Error("a place in a full queue")
		}
		group.Wait()
		group.Go(func() {
			if !q.enter(t.Context()) || time.Since(begin) != 1500*time.Millisecond {
				t.Errorf("not served, or after %v, want 1.5 s", time.Since(begin))
			}
		})
		time.Sleep(500 * time.Millisecond)
		q.leave()
		group.Wait()
		q.leave()
		q.leave()
		ctx, cancel := context.WithCancel(t.Context())
		q.enter(ctx)
		q.enter(ctx)
		group.Go(func() {
			if q.enter(ctx) {
				t.Error("served although the caller has gone")
			}
		})
		synctest.Wait()
		cancel()
		group.Wait()
		if len(q.places) != 2 || len(q.serving) != 2 {
			t.Errorf("%d places and %d served, want 2 and 2", len(q.places), len(q.serving))
		}
	})
}

// ask sends what clients send to s, and returns the answer.
func ask(t *testing.T, s *server, h http.Handler) (*http.Response, string) {
	t.Helper()
	n := &network{handler: h, dice: newDice(1, forNetwork)}
	var resp *http.Response
	var text []byte
	target := &target{url: "http://zoo.example", server: s, tap: &tap{base: n, server: s}}
	get := target.get(&http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
		var err error
		if resp, err = target.tap.RoundTrip(req); err == nil {
			text, err = io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(strings.NewReader(string(text)))
		}
		return resp, err
	})})
	err := get(t.Context(), 7)
	if refused := s.refused(resp.StatusCode, text); refused != (err != nil) || refused != target.tap.seen[0].refused {
		t.Errorf("%s: refused %v, the caller got %v, and the tap %v", s.name, refused, err, target.tap.seen)
	}
	return resp, string(text)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Each way to say no, as its documentation or its source has it.
func TestWords_SayWhatTheRealOnesSay(t *testing.T) {
	const html = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx/1.26.3</center>\r\n</body>\r\n</html>\r\n"
	bare := []string{"Retry-After", "", "X-RateLimit-Remaining", "", "RateLimit", ""}
	for _, c := range []struct {
		server string
		status int
		fields []string // "": not there
		body   string   // a part
	}{
		{"nginx-503-20", 503, append(bare, "Content-Type", "text/html"), html},
		{"nginx-503-20b0", 503, bare, html},
		{"nginx-503-post", 503, bare, html},
		{"nginx-503-post-declared", 503, bare, html},
		{"nginx-conn-503-10", 503, bare, html},
		{"ollama-queue", 503, append(bare, "Content-Type", "application/json; charset=utf-8"), `{"error":"server busy, please try again.  maximum pending requests exceeded"}`},
		{"haproxy-queue-503-4", 503, append(bare, "Cache-Control", "no-cache", "Content-Type", "text/html"), "<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n"},
		{"azure-serverbusy-20", 503, append(bare, "x-ms-error-code", "ServerBusy", "Content-Type", "application/xml"), "<Error><Code>ServerBusy</Code><Message>Operations per second is over the account limit.\nRequestId:"},
		{"drive-403-20", 403, append(bare, "Content-Type", "application/json; charset=UTF-8"), `"reason": "userRateLimitExceeded",`},
		{"linear-20", 400, []string{"Retry-After", "", "X-RateLimit-Requests-Limit", "100", "X-RateLimit-Requests-Remaining", "0", "X-RateLimit-Requests-Reset", "946684805004"}, `"code":"RATELIMITED"`},
		{"linear-hour", 400, []string{"X-RateLimit-Requests-Limit", "1500", "X-RateLimit-Requests-Remaining", "0", "X-RateLimit-Requests-Reset", "946688400004"}, `"code":"RATELIMITED"`},
		{"minio-slowdownread-50", 503, append(bare, "Server", "MinIO", "Content-Type", "application/xml"), `<Error><Code>SlowDownRead</Code><Message>Resource requested is unreadable, please reduce your request rate</Message>`},
		{"jsonrpc-32005-20", 200, bare, `{"jsonrpc":"2.0","id":7,"error":{"code":-32005,"message":"limit exceeded"}}`},
		{"shopify-throttled-20", 200, bare, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev/api/usage/rate-limits"}}],"extensions":{"cost":{"requestedQueryCost":5,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":0,"restoreRate":100.0}}}}`},
		{"problem-quota", 429, append(bare, "Content-Type", "application/problem+json"), `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisifed as assigned quota has been exceeded","violated-policies":["permin"]}`},
		{"problem-capacity", 503, append(bare, "Content-Type", "application/problem+json"), `http-problem-types#temporary-reduced-capacity"`},
		{"discord-10in2", 429, []string{"Retry-After", "2", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "2.000", "X-RateLimit-Scope", "user"}, `{"message": "You are being rate limited.", "retry_after": 2.000, "global": false}`},
		{"down", 503, bare, html},
	} {
		t.Run(c.server, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := find(c.server)
				if s == nil {
					t.Fatal("no such server")
				}
				// As many as the limit grants, all at once and without jitter on the way,
				// and none of them ends soon: the next one is refused.
				slow := *s
				slow.service, slow.times = 100, nil
				h := s.handler(newOrigin(&slow, 1))
				most := int(s.limit.burst)
				switch s.limit.kind {
				case window, inFlight:
					most = int(s.limit.n)
				case down:
					most = 0
				}
				if c.server == "ollama-queue" {
					most += 8 // wait
				}
				var group sync.WaitGroup
				for range most {
					group.Go(func() {
						if resp, text := ask(t, s, h); s.refused(resp.StatusCode, []byte(text)) {
							t.Errorf("refused within the limit: %d %s", resp.StatusCode, text)
						}
					})
				}
				group.Go(func() {
					// Right after the others.
					time.Sleep(time.Nanosecond)
					resp, text := ask(t, s, h)
					if resp.StatusCode != c.status || !strings.Contains(text, c.body) {
						t.Errorf("%d %s\nwant %d %s", resp.StatusCode, text, c.status, c.body)
					}
					for i := 0; i < len(c.fields); i += 2 {
						if got := resp.Header.Get(c.fields[i]); got != c.fields[i+1] {
							t.Errorf("%s: %q, want %q", c.fields[i], got, c.fields[i+1])
						}
					}
				})
				group.Wait()
			})
		})
	}
	for _, s := range servers {
		if s.group == words && s.declared && s.request.method == http.MethodGet {
			t.Errorf("%s: a GET need not be declared", s.name)
		}
	}
}

// A share of the calls of a site fails, and not one more.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, share := range map[string]float64{"honest-503-5": .05, "honest-503-5-late": .05, "down": 1} {
			s := find(name)
			h := s.handler(newOrigin(s, 1))
			failed, quick := 0, 0
			for range 1000 {
				begin := time.Now()
				if resp, _ := ask(t, s, h); resp.StatusCode == http.StatusServiceUnavailable {
					failed++
					if time.Since(begin) == 2*seconds(leastDelay) {
						quick++
					}
				}
			}
			if got := float64(failed) / 1000; got < share-.02 || got > share+.02 {
				t.Errorf("%s: %v failed, want %v", name, got, share)
			}
			if late := name == "honest-503-5-late"; late != (quick == 0) {
				t.Errorf("%s: %d of %d failed before their work", name, quick, failed)
			}
		}
	})
}
