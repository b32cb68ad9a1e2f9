package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

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
					Backoff: sluice.Constant(4 * time.Second), Throttled: sluice.Constant(4 * time.Second),
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
