package sluicehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// Any client gets its gates by its transport.
func Example() {
	srv := sluicetest.NewServer(sluicetest.On(2, sluicetest.Status(503))) // stands for the internet
	defer srv.Close()

	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{
		Gate:  sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 1000, Per: time.Second}},
		Retry: sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}, // an example may not dawdle
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.Status)
		resp.Body.Close()
	}
	fmt.Println(len(srv.Record().Requests), "requests")
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// 4 requests
}

// The answer is the last one there was, and the report tells the rest.
func ExampleWithReport() {
	srv := sluicetest.NewServer(sluicetest.Status(429, "Retry-After: 3600"))
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport())
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	began := time.Now()
	ctx, report := sluicehttp.WithReport(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/", nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	hop := report.Last()
	fmt.Println(resp.Status)
	fmt.Println(len(hop.Attempts), "attempt:", hop.Why)
	fmt.Println("come back in", hop.RetryAt.Sub(began).Truncate(time.Hour))
	// Output:
	// 429 Too Many Requests
	// 1 attempt: the server asks for too long a wait
	// come back in 1h0m0s
}

// One request may want it otherwise.
func ExampleWithOverrides() {
	srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(503)))
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport())
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	ctx := sluicehttp.WithOverrides(context.Background(), sluicehttp.Overrides{Key: "search", NoRetry: true})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/search", nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	transport.Stats(func(key string, s sluicehttp.Stats) bool {
		fmt.Println(key, s.Admitted)
		return true
	})
	// Output:
	// 503 Service Unavailable
	// search 1
}

// Without any number of ours the server's own policy is the limit.
func ExamplePublished() {
	srv := sluicetest.NewServer(sluicetest.Header(`RateLimit-Policy: "default";q=100;w=60`))
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{Published: sluicehttp.Published{Spread: 1}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	transport.Stats(func(key string, s sluicehttp.Stats) bool {
		fmt.Println(key, s.Rate, "by the server:", s.Published)
		return true
	})
	// Output: http://api.example.com 100/m by the server: true
}

// Discord tells the time in the body more exactly than in the header.
func ExampleConfig_inspect() {
	discord := func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		if resp.StatusCode != http.StatusTooManyRequests {
			return
		}
		var answer struct {
			RetryAfter float64 `json:"retry_after"`
		}
		if json.Unmarshal(peek(), &answer) == nil && answer.RetryAfter > 0 {
			said.RetryAt = time.Now().Add(time.Duration(answer.RetryAfter * float64(time.Second)))
		}
	}
	srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Reply(429, `{"retry_after": 0.0123}`, "Retry-After: 60")))
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{Inspect: discord})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	began := time.Now()
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	took := time.Since(began)
	fmt.Println(resp.Status, took >= 12300*time.Microsecond, took < time.Minute)
	// Output: 200 OK true true
}

// Embeddings only compute, so a POST for them may be sent twice.
func ExampleConfig_idempotent() {
	srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(http.StatusBadGateway)))
	defer srv.Close()

	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{
		Idempotent: func(req *http.Request, _ []byte) bool { return req.URL.Path == "/v1/embeddings" },
		Retry:      sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}, // an example may not dawdle
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post("https://api.example.com/v1/embeddings", "application/json", strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status, "after", len(srv.Record().Requests), "requests")
	// Output: 200 OK after 2 requests
}

// A server asked for too much; its owner was called and has mended it.
func ExampleTransport_Resume() {
	srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Reply(429, "", "Retry-After: 9999999999")))
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{MaxPause: time.Hour})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	transport.Stats(func(key string, s sluicehttp.Stats) bool {
		fmt.Println(resp.Status, key, time.Until(s.PausedUntil).Round(time.Minute))
		return true
	})
	fmt.Println(transport.Resume("http://api.example.com"))
	if resp, err = client.Get("http://api.example.com/"); err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// 429 Too Many Requests http://api.example.com 1h0m0s
	// true
	// 200 OK
}

// An API with a limit on tokens: the length of a request and its max_tokens are the
// estimate, and the response says what it took.
func ExampleConfig_cost() {
	srv := sluicetest.NewServer(sluicetest.Reply(200, `{"text": "Hello!", "usage": {"total_tokens": 12}}`))
	defer srv.Close()

	tokens := limits.Must(leaky.New(sluice.Rate{Count: 60_000, Per: time.Minute, Burst: 1000}))
	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{
		Gate: sluice.Config{Limits: []sluice.Limit{{Name: "tokens", Unit: "tokens", Limiter: tokens}}},
		Cost: func(req *http.Request, body []byte) sluice.Costs {
			var params struct {
				MaxTokens int64 `json:"max_tokens"`
			}
			_ = json.Unmarshal(body, &params) // otherwise 0
			return sluice.Costs{"tokens": int64(len(body))/4 + params.MaxTokens}
		},
		Usage: func(resp *http.Response, part []byte, used sluice.Costs) {
			var answer struct {
				Usage struct {
					Total int64 `json:"total_tokens"`
				} `json:"usage"`
			}
			if json.Unmarshal(part, &answer) == nil && answer.Usage.Total > 0 {
				used["tokens"] = answer.Usage.Total
			}
		},
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post("https://llm.example.com/", "application/json", strings.NewReader(`{"prompt": "Hi!", "max_tokens": 900}`))
	if err != nil {
		panic(err)
	}
	fmt.Println("estimated:", tokens.Take(0).Remaining < 200)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println("settled:", tokens.Take(0).Remaining > 900)
	// Output:
	// estimated: true
	// settled: true
}

// The program knows itself what a request took.
func ExampleReport_Settle() {
	srv := sluicetest.NewServer()
	defer srv.Close()
	points := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 1000}))
	transport, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{
		Gate: sluice.Config{Limits: []sluice.Limit{{Name: "points", Unit: "points", Limiter: points}}},
		Cost: func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"points": 500} },
	})
	if err != nil {
		panic(err)
	}
	ctx, report := sluicehttp.WithReport(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		panic(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(points.Take(0).Remaining)
	report.Settle(sluice.Costs{"points": 20})
	fmt.Println(points.Take(0).Remaining)
	// Output:
	// 500
	// 980
}

// Gates are for the exporters of package observe.
func ExampleTransport_Gates() {
	srv := sluicetest.NewServer()
	defer srv.Close()
	transport, err := sluicehttp.New(srv.Transport())
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	for s := range transport.Gates() {
		fmt.Println(s.Name, s.Admitted)
	}
	// Output: http://api.example.com 1
}
