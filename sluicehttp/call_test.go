package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestTransport_Retry_Statuses(t *testing.T) {
	also := sluicehttp.Config{Retry: seconds, AlsoRetry: []int{409}}
	keep := sluicehttp.Config{Retry: seconds, NoRetryThrottled: true}
	all := sluicehttp.Config{Retry: seconds}
	const key = "Idempotency-Key: 1"
	for _, c := range []struct {
		cfg    sluicehttp.Config
		method string
		header string // of the request
		status int
		says   string // header of the answer
		why    error  // nil: it is retried, or is no failure
		tries  int
	}{
		{all, "GET", "", 200, "", nil, 1},
		{all, "GET", "", 404, "", nil, 1},
		{all, "GET", "", 409, "", nil, 1},
		{also, "GET", "", 409, "", nil, 2},
		{also, "POST", "", 409, "", sluicehttp.ErrUnsafe, 1},
		{all, "GET", "", 408, "", nil, 2},
		{all, "GET", "", 425, "", nil, 2},
		{all, "GET", "", 429, "", nil, 2},
		{all, "GET", "", 500, "", nil, 2},
		{all, "GET", "", 501, "", nil, 1},
		{all, "GET", "", 502, "", nil, 2},
		{all, "GET", "", 503, "", nil, 2},
		{all, "GET", "", 504, "", nil, 2},
		{all, "GET", "", 505, "", nil, 1},
		{all, "HEAD", "", 503, "", nil, 2},
		{all, "OPTIONS", "", 503, "", nil, 2},
		{all, "TRACE", "", 503, "", nil, 2},
		{all, "PUT", "", 503, "", nil, 2},
		{all, "DELETE", "", 503, "", nil, 2},
		{all, "POST", "", 503, "", sluicehttp.ErrUnsafe, 1},
		{all, "PATCH", "", 503, "", sluicehttp.ErrUnsafe, 1},
		{all, "LOCK", "", 503, "", sluicehttp.ErrUnsafe, 1},
		{all, "POST", key, 503, "", nil, 2},
		{all, "POST", "X-" + key, 503, "", nil, 2},
		// It was not processed, whatever the method.
		{all, "POST", "", 429, "", nil, 2},
		{all, "POST", "", 403, "Retry-After: 1", nil, 2},
		{keep, "POST", "", 429, "", sluicehttp.ErrUnsafe, 1},
		{keep, "GET", "", 429, "", nil, 2},
		{all, "GET", "", 403, "", nil, 1}, // forbidden
		// Not so sure of that.
		{all, "POST", "", 503, "Retry-After: 1", sluicehttp.ErrUnsafe, 1},
		// The server says so itself.
		{all, "GET", "", 503, "X-Should-Retry: false", sluice.ErrPermanent, 1},
		{all, "POST", "", 409, "X-Should-Retry: true", nil, 2},
		{all, "POST", "", 503, "X-Should-Retry: true", nil, 2},
		{all, "POST", "", 503, "X-Should-Retry: true\nRetry-After: 1", nil, 2},
		{all, "GET", "", 200, "X-Should-Retry: true", nil, 1},
	} {
		name := fmt.Sprint(c.method, c.status, c.header, c.says)
		t.Run(name, func(t *testing.T) {
			says := []string{}
			if c.says != "" {
				says = strings.Split(c.says, "\n")
			}
			inWorld(t, c.cfg, layers(sluicetest.On(1, sluicetest.Status(c.status, says...))), func(w *world) {
				ctx, report := sluicehttp.WithReport(bg)
				req := request(t, ctx, c.method, "http://a.test/", nil)
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					req.Header.Set(name, value)
				}
				status, _, err := w.do(req)
				want := 200
				if c.tries == 1 {
					want = c.status
				}
				if err != nil || status != want {
					t.Errorf("%d, %v; want %d", status, err, want)
				}
				wantWhy(t, report, c.why, c.tries)
				if c.tries == 2 {
					w.wantCame(0, time.Second)
				}
			})
		})
	}
}

func TestTransport_Retry_Errors(t *testing.T) {
	dial := func(err error) func(*world) {
		return func(w *world) { firstDial(w.rt.Unwrap(), err) }
	}
	distrust := func(w *world) {
		w.rt.Unwrap().(*http.Transport).TLSClientConfig.RootCAs = nil
	}
	for _, c := range []struct {
		name   string
		scheme string
		before func(w *world)
		fault  sluicetest.Layer
		header string // a bad one
		get    int    // attempts of a GET that fail or not
		post   int
		text   string // of the error; of a connection that is gone net/http has several
	}{
		{"refused", "http", dial(errRefused), nil, "", 2, 2, "refused"},
		{"refused", "https", dial(errRefused), nil, "", 2, 2, "refused"},
		{"dropped at the handshake", "https", dial(errDropped), nil, "", 2, 2, ""},
		{"dropped", "http", dial(errDropped), nil, "", 2, 1, ""},
		{"no host", "http", dial(errNoHost), nil, "", 1, 1, "no such host"},
		{"certificate", "https", distrust, nil, "", 1, 1, "certificate"},
		{"cut", "http", nil, sluicetest.Cut(), "", 2, 1, ""},
		{"cut", "https", nil, sluicetest.Cut(), "", 2, 1, ""},
		{"reset", "http", nil, sluicetest.Reset(), "", 2, 1, "reset"},
		{"aborted", "https", nil, abort(), "", 2, 1, "stream error"},
		{"garbage", "http", nil, sluicetest.Garbage("hello\r\n\r\n"), "", 2, 1, "malformed"},
		{"scheme", "ftp", nil, nil, "", 1, 1, "unsupported protocol scheme"},
		{"header", "http", nil, nil, "bad\x00", 1, 1, "invalid header field"},
	} {
		for method, tries := range map[string]int{"GET": c.get, "POST": c.post} {
			t.Run(c.name+"/"+c.scheme+"/"+method, func(t *testing.T) {
				var faults []sluicetest.Layer
				if c.fault != nil {
					faults = layers(sluicetest.On(1, c.fault))
				}
				inWorld(t, sluicehttp.Config{Retry: seconds}, faults, func(w *world) {
					if c.before != nil {
						c.before(w)
					}
					ctx, report := sluicehttp.WithReport(bg)
					req := request(t, ctx, method, c.scheme+"://a.test/", nil)
					if c.header != "" {
						req.Header.Set("X-Test", c.header)
					}
					status, _, err := w.do(req)
					hop := report.Last()
					switch {
					case len(hop.Attempts) != tries:
						t.Errorf("%d attempts, want %d: %v", len(hop.Attempts), tries, err)
					case tries == 2:
						if err != nil || status != 200 || hop.Why != nil || w.now() != time.Second {
							t.Errorf("%d, %v, %v at %v", status, err, hop.Why, w.now())
						}
						if !strings.Contains(hop.Attempts[0].Err.Error(), c.text) {
							t.Errorf("the first attempt ended with %v, want %s", hop.Attempts[0].Err, c.text)
						}
					default:
						if err == nil || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "sluice") || w.now() != 0 {
							t.Errorf("got %d, %v at %v; want the bare error of the base, %s", status, err, w.now(), c.text)
						}
						if !errors.Is(hop.Why, sluice.ErrPermanent) && !errors.Is(hop.Why, sluicehttp.ErrUnsafe) {
							t.Errorf("why: %v", hop.Why)
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

// The errors of HTTP/2 streams have no exported type, but a code.
func TestTransport_Retry_RefusedStreams(t *testing.T) {
	inWorld(t, sluicehttp.Config{}, layers(abort()), func(w *world) {
		_, _, err := w.do(request(t, bg, "POST", "https://a.test/", nil))
		if code, ok := sluicehttp.StreamCode(err); !ok || code != 2 { // INTERNAL_ERROR
			t.Errorf("code %d, %v of %v", code, ok, err)
		}
	})
	for code, want := range map[uint32]bool{2: false, 7: true, 8: false} {
		err := fmt.Errorf("sending: %w", sluicehttp.StreamError(code))
		if got := sluicehttp.NeverWritten(err); got != want {
			t.Errorf("code %d: %v", code, got)
		}
	}
}

func TestTransport_Retry_ExhaustedReturnsTheLastAnswer(t *testing.T) {
	long := strings.Repeat("long ", 10000)
	for _, body := range []string{"", "sorry", long} {
		for _, scheme := range []string{"http", "https"} {
			cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
			inWorld(t, cfg, layers(sluicetest.Reply(503, body, "X-Cause: flood")), func(w *world) {
				ctx, report := sluicehttp.WithReport(bg)
				resp, err := w.client.Do(request(t, ctx, "GET", scheme+"://a.test/", nil))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != body || err != nil || resp.StatusCode != 503 || resp.Header.Get("X-Cause") != "flood" {
					t.Errorf("got %d with %d bytes, %v", resp.StatusCode, len(got), err)
				}
				resp.Body.Close()
				w.wantCame(0, time.Second, 2*time.Second, 3*time.Second)
				wantWhy(t, report, sluice.ErrAttempts, 4)
				for i, a := range report.Last().Attempts {
					if want := time.Duration(min(i, 1)) * time.Second; a.Status != 503 || a.Waited != want || a.Err.Error() != "503 Service Unavailable" {
						t.Errorf("attempt %d: %+v", i, a)
					}
				}
			})
		}
	}
}

func TestTransport_Retry_ExhaustedReturnsTheLastError(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Cut()), func(w *world) {
		_, _, err := w.get(bg, "http://a.test/")
		stopped, ok := errors.AsType[*sluice.RetryError](err)
		if !ok || stopped.Attempts != 4 || !errors.Is(err, sluice.ErrAttempts) || stopped.Last == nil || stopped.Gate != "http://a.test" {
			t.Errorf("got %v", err)
		}
	})
}

// What was answered but is to be replaced gives its connection back, if its body
// is short, and its permit in any case.
func TestTransport_Retry_DiscardedAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		body  int
		conns int // of HTTP/1.1
	}{{"none", 0, 1}, {"short", 4000, 1}, {"long", 300 << 10, 2}} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
				inWorld(t, cfg, layers(sluicetest.First(3, sluicetest.Reply(503, strings.Repeat("x", c.body)))), func(w *world) {
					time.AfterFunc(500*ms, func() {
						if n := inFlight(w.rt); n != 0 {
							t.Errorf("%d in flight during the backoff", n)
						}
					})
					w.wantGet(scheme+"://a.test/", 200)
					w.wantCame(0, time.Second, 2*time.Second, 3*time.Second)
					synctest.Wait()
					r := w.srv.Record()
					if scheme == "https" {
						c.conns = 1
					}
					open := 0
					for _, conn := range r.Conns {
						if conn.Open {
							open++
						}
					}
					if len(r.Conns) > 3*c.conns-2 || open > 1 {
						t.Errorf("%d connections, %d open in the end", len(r.Conns), open)
					}
				})
			})
		}
	}
}

// A server that does not finish the body of its error holds no call up.
func TestTransport_Retry_DiscardedAnswerStalls(t *testing.T) {
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
	inWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Stall(2, limits.Never), sluicetest.Reply(503, "sorry"))), func(w *world) {
		w.wantGet("http://a.test/", 200)
		w.wantCame(0, 2*time.Second) // one for the body, one for the backoff
	})
}

// An answer is worth more than an error, also if it was meant to be replaced.
func TestTransport_Retry_AnswerSetAside(t *testing.T) {
	long := strings.Repeat("long ", 10000)
	for name, body := range map[string]string{"short": "sorry", "long": long, "none": ""} {
		for _, o := range []sluicehttp.Overrides{{}, {AttemptTimeout: time.Minute}} {
			t.Run(name, func(t *testing.T) {
				cfg := sluicehttp.Config{Retry: seconds}
				inWorld(t, cfg, layers(sluicetest.Reply(503, body)), func(w *world) {
					time.AfterFunc(500*ms, w.rt.Close)
					ctx, report := sluicehttp.WithReport(sluicehttp.WithOverrides(bg, o))
					status, got, err := w.get(ctx, "http://a.test/")
					if status != 503 || got != body || err != nil || w.now() != 500*ms {
						t.Errorf("%d, %d bytes, %v at %v", status, len(got), err, w.now())
					}
					wantWhy(t, report, limits.ErrClosed, 1)
				})
			})
		}
	}
	for size, dropped := range map[int]bool{64 << 10: false, 64<<10 + 1: true, 300 << 10: true} {
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Reply(503, strings.Repeat("x", size))), func(w *world) {
			time.AfterFunc(500*ms, w.rt.Close)
			status, got, err := w.get(bg, "http://a.test/")
			if status != 503 || len(got) != min(size, 64<<10) || (err != nil) != dropped {
				t.Errorf("%d bytes: %d, %d bytes, %v", size, status, len(got), err)
			}
		})
	}
	t.Run("cut", func(t *testing.T) {
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.CutBody(2), sluicetest.Reply(503, "sorry")), func(w *world) {
			time.AfterFunc(500*ms, w.rt.Close)
			status, got, err := w.get(bg, "http://a.test/")
			if status != 503 || got != "so" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d, %q, %v; want what came of it, and why there is no more", status, got, err)
			}
		})
	})
	t.Run("too slow to be set aside", func(t *testing.T) {
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Stall(2, limits.Never), sluicetest.Reply(503, "sorry")), func(w *world) {
			time.AfterFunc(1500*ms, w.rt.Close)
			_, _, err := w.get(bg, "http://a.test/")
			status, ok := errors.AsType[*sluicehttp.StatusError](err)
			if !ok || status.Status != 503 || !errors.Is(err, limits.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	})
}

// A response that was set aside holds no connection while its call waits: another call of the
// host gets the only one.
func TestTransport_Retry_AnswerSetAsideHoldsNoConnection(t *testing.T) {
	for _, size := range []int{100, 10 << 10, 300 << 10} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bad" {
				w.WriteHeader(http.StatusBadGateway)
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			}
		}))
		base := &http.Transport{MaxConnsPerHost: 1}
		again := make(chan struct{}) // closed when the call is to be tried again
		decided := sync.OnceFunc(func() { close(again) })
		rt := mustTransport(t, base, sluicehttp.Config{
			Retry: sluice.RetryPolicy{Backoff: func(int, time.Duration, float64) time.Duration {
				decided()
				return time.Minute
			}},
		})
		ctx, cancel := context.WithCancel(bg)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := rt.RoundTrip(request(t, ctx, "GET", srv.URL+"/bad", nil)); err == nil {
				t.Errorf("%d bytes: %v", size, resp.Status)
			}
		}()
		<-again // canceled before it, the call returns the response it has
		resp, err := rt.RoundTrip(request(t, bg, "GET", srv.URL+"/good", nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		cancel()
		<-done
		base.CloseIdleConnections()
		srv.Close()
	}
}

func TestTransport_Retry_CanceledCaller(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Status(503)), func(w *world) {
		ctx, cancel := context.WithCancel(bg)
		ctx, report := sluicehttp.WithReport(ctx)
		time.AfterFunc(1500*ms, cancel)
		resp, err := w.rt.RoundTrip(request(t, ctx, "GET", "http://a.test/", nil))
		if resp != nil || err != context.Canceled || w.now() != 1500*ms {
			t.Errorf("%v, %v at %v", resp, err, w.now())
		}
		wantWhy(t, report, context.Canceled, 2)
	})
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Delay(limits.Never)), func(w *world) {
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(time.Second, cancel)
		if _, err := w.rt.RoundTrip(request(t, ctx, "GET", "http://a.test/", nil)); err != context.Canceled {
			t.Errorf("in flight: %v", err)
		}
		if n := inFlight(w.rt); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

func TestOverrides_NoRetry(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.First(1, sluicetest.Status(429, "Retry-After: 60"))), func(w *world) {
		ctx, report := sluicehttp.WithReport(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true}))
		if status, _, err := w.get(ctx, "http://a.test/"); status != 429 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		wantWhy(t, report, sluicehttp.ErrNoRetry, 1)
		if at := report.Last().RetryAt.Sub(w.start); at != time.Minute {
			t.Errorf("come back at %v, want 1m", at)
		}
		w.wantGet("http://a.test/", 200)
		w.wantCame(0, time.Minute) // it still holds for everybody
	})
}

func TestOverrides_Idempotent(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.First(1, sluicetest.Cut())), func(w *world) {
		ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Idempotent: true})
		if status, _, err := w.do(request(t, ctx, "POST", "http://a.test/", strings.NewReader("x"))); status != 200 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
	})
}

func TestConfig_Retryable(t *testing.T) {
	policy := seconds
	var asked []string
	policy.Retryable = func(err error) bool {
		asked = append(asked, err.Error())
		status, ok := errors.AsType[*sluicehttp.StatusError](err)
		return ok && status.Status == 502
	}
	faults := layers(sluicetest.Script(sluicetest.Status(429), sluicetest.Status(502), sluicetest.Status(503)))
	inWorld(t, sluicehttp.Config{Retry: policy}, faults, func(w *world) {
		ctx, report := sluicehttp.WithReport(bg)
		if status, _, err := w.get(ctx, "http://a.test/"); status != 503 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		wantWhy(t, report, sluice.ErrPermanent, 3)
		if got := fmt.Sprint(asked); got != "[502 Bad Gateway 503 Service Unavailable]" {
			t.Errorf("asked about %s", got)
		}
	})
}

// # The retry budget

// A server answers each request by its number, from 1.
type numbered func(n int64) int

func (f numbered) server(delay time.Duration) *sluicetest.Server {
	var n atomic.Int64
	return sluicetest.NewServer(sluicetest.Delay(delay), func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(f(n.Add(1))) })
	})
}

func transportOn(t *testing.T, srv *sluicetest.Server, cfg sluicehttp.Config) *sluicehttp.Transport {
	t.Helper()
	tr, err := sluicehttp.New(srv.Transport(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func statsOf(tr *sluicehttp.Transport) (s sluicehttp.Stats) {
	tr.Stats(func(_ string, got sluicehttp.Stats) bool { s = got; return false })
	return s
}

// The first 30 of 500 requests are answered 500, then the server is well: with a client
// timeout as many succeed as without.
func TestTransport_RetryBudget_ClientTimeout(t *testing.T) {
	fifty := sluice.Rate{Count: 50, Per: time.Second}
	for name, gate := range map[string]func() sluice.Config{
		"rate": func() sluice.Config { return sluice.Config{Rate: fifty} },
		"parent": func() sluice.Config {
			return sluice.Config{Rate: fifty, Parent: must(sluice.New(sluice.Config{Rate: fifty}))}
		},
		"quota": func() sluice.Config {
			return sluice.Config{Rate: fifty, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1000}))}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := numbered(func(n int64) int {
					if n <= 30 {
						return 500
					}
					return 200
				}).server(10 * time.Millisecond)
				defer srv.Close()
				tr := transportOn(t, srv, sluicehttp.Config{Gate: gate()})
				defer tr.CloseIdleConnections()
				client := &http.Client{Transport: tr, Timeout: 25 * time.Second}
				var ok, failed atomic.Int64
				for range 500 {
					go func() {
						resp, err := client.Get("http://a.test/")
						if err != nil {
							t.Error(err)
							return
						}
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode == 200 {
							ok.Add(1)
						} else {
							failed.Add(1)
						}
					}()
				}
				time.Sleep(time.Minute)
				if ok.Load() < 480 || ok.Load()+failed.Load() != 500 { // 20 retries are paid for
					t.Errorf("%d of 500 succeed, %d were answered 500", ok.Load(), failed.Load())
				}
			})
		})
	}
}

// A 404 is an answer of a server that is well; a 500 that must not be retried is not.
func TestTransport_RetryBudget_Answers(t *testing.T) {
	for _, c := range []struct {
		method string
		status int
		halved bool
	}{
		{"GET", 200, true}, {"GET", 404, true}, {"GET", 400, true}, {"POST", 404, true}, {"GET", 304, true},
		{"POST", 500, false}, {"POST", 503, false}, {"GET", 429, false}, {"GET", 501, false},
	} {
		t.Run(fmt.Sprint(c.method, c.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := numbered(func(n int64) int {
					if n == 1 {
						return 500
					}
					return c.status
				}).server(0)
				defer srv.Close()
				tr := transportOn(t, srv, sluicehttp.Config{Gate: sluice.Config{RetryBudget: 1}, Retry: sluice.RetryPolicy{
					Backoff: sluice.Constant(4 * time.Second), ThrottleBackoff: sluice.Constant(4 * time.Second),
				}})
				defer tr.CloseIdleConnections()
				client := &http.Client{Transport: tr}
				want := 4 * time.Second
				for _, method := range []string{"GET", c.method} {
					req := must(http.NewRequest(method, "http://a.test/", strings.NewReader("x")))
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if got := statsOf(tr).Spacing; got != want {
						t.Errorf("spacing %v after %s, want %v", got, resp.Status, want)
					}
					if c.halved {
						want /= 2
					}
				}
			})
		})
	}
}

func TestTransport_RetryBudget_RecoversAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := numbered(func(n int64) int {
			if n <= 100 {
				return 500
			}
			return 404
		}).server(0)
		defer srv.Close()
		tr := transportOn(t, srv, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}})
		defer tr.CloseIdleConnections()
		get := func() int {
			resp, err := (&http.Client{Transport: tr}).Get("http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for get() != 404 {
		}
		start := time.Now()
		for range 100 {
			get()
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// What hosts leave behind that are down, or whose gates share a quota, is nothing.
func TestTransport_RetryBudget_DeadHostsAreForgotten(t *testing.T) {
	built.SkipRaced(t)
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		gate   sluice.Config
		status int // 0: no answer
	}{
		"200":       {sluice.Config{}, 200},
		"500":       {sluice.Config{}, 500},
		"refused":   {sluice.Config{}, 0},
		"quota":     {sluice.Config{Limits: []sluice.Limit{{Name: "q", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 20}))}}}, 200},
		"both":      {sluice.Config{Limits: []sluice.Limit{{Name: "q", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 20}))}}}, 0},
		"no budget": {sluice.Config{RetryBudget: 1}, 500},
	} {
		for _, maxKeys := range []int{0, 100} {
			t.Run(fmt.Sprint(name, maxKeys), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := roundTripper(func(*http.Request) (*http.Response, error) {
						if c.status == 0 {
							return nil, refused
						}
						return &http.Response{StatusCode: c.status, Header: http.Header{}, Body: http.NoBody}, nil
					})
					for i := range c.gate.Limits { // of this bubble
						c.gate.Limits[i].Limiter = limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 20}))
					}
					tr := must(sluicehttp.New(base, sluicehttp.Config{
						Gate: c.gate, Retry: sluice.RetryPolicy{Attempts: 2}, Keys: sluice.KeyedConfig{MaxKeys: maxKeys, Idle: time.Millisecond},
					}))
					get := func(host string) {
						t.Helper()
						_, err := tr.RoundTrip(must(http.NewRequestWithContext(context.Background(), "GET", "http://"+host+".test/", nil)))
						if err != nil && !errors.Is(err, refused) {
							t.Fatal(err)
						}
					}
					for i := range 1000 {
						get(fmt.Sprint("h", i))
						time.Sleep(2 * time.Millisecond)
					}
					time.Sleep(10 * time.Minute)
					for i := range 1000 {
						get(fmt.Sprint("z", i%2))
						time.Sleep(2 * time.Millisecond)
					}
					n := 0
					tr.Stats(func(string, sluicehttp.Stats) bool { n++; return true })
					if n > 5 {
						t.Errorf("%d gates are left", n)
					}
				})
			})
		}
	}
}

// MaxServerWait alone is enough for a server that asks for an hour.
func TestConfig_MaxServerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 3600")))
		defer srv.Close()
		for _, c := range []struct {
			elapsed time.Duration
			status  int
		}{{0, 200}, {-1, 200}} {
			tr := transportOn(t, srv, sluicehttp.Config{Retry: sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, MaxElapsed: c.elapsed}})
			resp, err := (&http.Client{Transport: tr}).Get("http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			tr.CloseIdleConnections()
			if resp.StatusCode != c.status {
				t.Errorf("MaxElapsed %v: %s", c.elapsed, resp.Status)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 3600")))
		defer srv.Close()
		tr := transportOn(t, srv, sluicehttp.Config{Retry: sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, MaxElapsed: time.Minute}})
		defer tr.CloseIdleConnections()
		ctx, report := sluicehttp.WithReport(context.Background())
		resp, err := (&http.Client{Transport: tr}).Do(must(http.NewRequestWithContext(ctx, "GET", "http://a.test/", nil)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		why := report.Last().Why
		if resp.StatusCode != 429 || !errors.Is(why, sluice.ErrElapsed) ||
			!strings.Contains(why.Error(), "MaxElapsed (1m0s)") || !strings.Contains(why.Error(), "MaxServerWait allows 2h0m0s") {
			t.Errorf("%s, %v", resp.Status, why)
		}
	})
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func TestTransport_RetryBudget_RetriesOfAnSDK(t *testing.T) {
	for _, c := range []struct {
		header, value string
		tokens        int
	}{
		{"X-Stainless-Retry-Count", "0", 20},
		{"X-Stainless-Retry-Count", "1", 15},
		{"X-Stainless-Retry-Count", "many", 20},
		{"Amz-Sdk-Request", "attempt=1; max=3", 20},
		{"Amz-Sdk-Request", "attempt=2; max=3", 15},
		{"Amz-Sdk-Request", "ttl=x;attempt=3;max=3", 15},
		{"Amz-Sdk-Request", "max=3", 20},
		{"grpc-previous-rpc-attempts", "2", 15},
		{"grpc-previous-rpc-attempts", "-2", 20},
		{"X-Other", "7", 20},
	} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{RetryBudget: 20}}, layers(sluicetest.Status(501)), func(w *world) {
			req := request(t, bg, "GET", "http://a.test/", nil)
			req.Header.Set(c.header, c.value)
			w.do(req)
			if got := stats(t, w.rt).RetryTokens; got != c.tokens {
				t.Errorf("%s: %s: %d tokens are left, want %d", c.header, c.value, got, c.tokens)
			}
		})
	}
}

// The herd of a failing server is held back by the budget of its key alone.
func TestTransport_RetryBudget_PerKey(t *testing.T) {
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{RetryBudget: 10}}
	inWorld(t, cfg, layers(sluicetest.Host("down.test", sluicetest.Status(500)), sluicetest.Every(2, sluicetest.Status(500))), func(w *world) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { w.wantGet("http://down.test/", 500) })
		}
		wg.Wait()
		if n := len(w.srv.Record().Host("down.test").Requests); n != 22 {
			t.Errorf("%d requests came for 20 calls and a budget of two retries", n)
		}
		w.wantGet("http://fine.test/", 200)
		w.wantGet("http://fine.test/", 200) // the second of its attempts
	})
}

// # A retry loop above

// A retry loop above a transport, such as resty's, sends a request four times, 2 s apart. A server
// that throttles it for ever holds it for MaxServerWait in all and not for each request: from then
// on the gate asks now and then, and other requests fail immediately. A gate that does not learn
// knows of no such time: there MaxElapsed bounds each request, as docs/http.md says.
func TestRetry_LoopAbove(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      sluicehttp.Config
		loops    int
		within   time.Duration
		requests int // at most
	}{
		{"one call", sluicehttp.Config{}, 1, 7 * time.Minute, 12},
		{"ten calls", sluicehttp.Config{}, 10, 7 * time.Minute, 30},
		{"a rate", sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}}, 1, 7 * time.Minute, 12},
		{"Adaptive.Off", sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}}}, 1, 62 * time.Minute, 124},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.cfg, layers(sluicetest.Status(429, "Retry-After: 30")), func(w *world) {
				var wg sync.WaitGroup
				for range c.loops {
					wg.Go(func() {
						for range 4 {
							w.get(bg, "http://a.test/")
							time.Sleep(2 * time.Second)
						}
					})
				}
				wg.Wait()
				n := len(w.srv.Record().Requests)
				if w.now() > c.within || n > c.requests {
					t.Errorf("%v with %d requests, want %v with %d at most", w.now(), n, c.within, c.requests)
				}
			})
		})
	}
}
