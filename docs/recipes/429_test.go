package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

func begin429(base http.RoundTripper, cfg sluicehttp.Config) (*http.Client, error) {
	// begin 429
	transport, err := sluicehttp.New(base, cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
	// end 429
}

func look429(ctx context.Context, client *http.Client, transport *sluicehttp.Transport, req *http.Request) (*http.Response, error) {
	// begin 429, look
	ctx, report := sluicehttp.WithReport(ctx)
	resp, err := client.Do(req.WithContext(ctx))
	fmt.Println(report.Last().Attempts, report.Last().Why)
	for _, stats := range transport.Stats {
		fmt.Println(stats)
	}
	// end 429, look
	return resp, err
}

func twice429(cfg *sluicehttp.Config) {
	// begin 429, a POST
	cfg.Idempotent = func(req *http.Request, _ []byte) bool {
		return strings.HasSuffix(req.URL.Path, "/search")
	}
	// end 429, a POST
}

func reads429(cfg *sluicehttp.Config) {
	// begin 429, JSON-RPC
	cfg.Idempotent = func(_ *http.Request, body []byte) bool {
		return body != nil && !bytes.Contains(body, []byte(`"eth_send`))
	}
	// end 429, JSON-RPC
}

func header429(cfg *sluicehttp.Config) {
	// begin 429, a header
	cfg.Inspect = func(resp *http.Response, _ func() []byte, said *ratelimit.Info) {
		if wait, err := time.ParseDuration(resp.Header.Get("X-Back-Off")); err == nil {
			said.Throttled, said.RetryAt = true, time.Now().Add(wait)
		}
	}
	// end 429, a header
}

func body429(cfg *sluicehttp.Config) {
	// begin 429, a body
	cfg.Inspect = func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		if resp.StatusCode == http.StatusForbidden && bytes.Contains(peek(), []byte("slow down")) {
			said.Throttled = true
		}
	}
	// end 429, a body
}

func final429(cfg *sluicehttp.Config) {
	// begin 429, final
	cfg.Inspect = func(_ *http.Response, peek func() []byte, said *ratelimit.Info) {
		if said.Throttled && bytes.Contains(peek(), []byte("monthly quota")) {
			said.ShouldRetry = new(false)
		}
	}
	// end 429, final
}

func route429(cfg *sluicehttp.Config) {
	// begin 429, a route
	cfg.Key = func(req *http.Request) string {
		if strings.HasPrefix(req.URL.Path, "/search") {
			return req.URL.Host + " search"
		}
		return req.URL.Host
	}
	// end 429, a route
}

func cost429(cfg *sluicehttp.Config) {
	// begin 429, a cost
	cfg.Cost = func(_ *http.Request, body []byte) sluice.Costs {
		return sluice.Costs{"rows": int64(bytes.Count(body, []byte("\n")))}
	}
	// end 429, a cost
}

func wait429(cfg *sluicehttp.Config) {
	// begin 429, a wait
	cfg.Retry.MaxServerWait = time.Hour
	cfg.Retry.AttemptTimeout = 30 * time.Second // without the queue
	// end 429, a wait
}

func flight429(cfg *sluicehttp.Config) {
	// begin 429, in flight
	cfg.Gate.Concurrency = 8
	// end 429, in flight
}

// What each block is for works with it, and does not without it.
func Test429(t *testing.T) {
	const batch = "a\nb\n"
	rows := func(r *http.Request, body []byte) int64 { return int64(bytes.Count(body, []byte("\n"))) }
	search := sluicetest.Path("/search", sluicetest.Enforce(sluicetest.Limit{Quota: 1, Window: time.Minute, HeaderStyle: sluicetest.GitHub}))
	for _, c := range []struct {
		name   string
		set    func(*sluicehttp.Config)
		calls  []call429
		layers []sluicetest.Layer
		within time.Duration
	}{
		{"a POST", twice429, []call429{{"/search", "q"}}, []sluicetest.Layer{sluicetest.On(1, sluicetest.Status(502))}, time.Minute},
		{"JSON-RPC", reads429, []call429{{"/", `{"jsonrpc":"2.0","method":"eth_call"}`}}, []sluicetest.Layer{sluicetest.On(1, sluicetest.Status(502))}, time.Minute},
		{"a header", header429, []call429{{"/", ""}}, []sluicetest.Layer{sluicetest.On(1, sluicetest.Status(400, "X-Back-Off: 2.5s"))}, 3 * time.Second},
		{"a body", body429, []call429{{"/", ""}}, []sluicetest.Layer{sluicetest.On(1, sluicetest.Reply(403, "slow down"))}, time.Minute},
		{"a route", route429, []call429{{"/search", ""}, {"/search", ""}, {"/a", ""}}, []sluicetest.Layer{search}, 2 * time.Minute},
		{"a cost", cost429, []call429{{"/", batch}, {"/", batch}, {"/", batch}}, []sluicetest.Layer{sluicetest.Enforce(sluicetest.Limit{Name: "rows", Count: 1, Per: time.Second, Burst: 2, Cost: rows, HeaderStyle: sluicetest.OpenAI})}, time.Minute},
		{"a wait", wait429, []call429{{"/", ""}}, []sluicetest.Layer{sluicetest.On(1, sluicetest.Status(429, "Retry-After: 600"))}, 11 * time.Minute},
		{"in flight", flight429, many429(40), []sluicetest.Layer{sluicetest.Enforce(sluicetest.Limit{Concurrency: 8}), sluicetest.Delay(time.Second)}, 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg sluicehttp.Config
			if failed, refused, took := run429(t, cfg, c.calls, c.layers); failed == 0 && refused == 0 && took <= c.within {
				t.Errorf("it works without the block, too")
			}
			c.set(&cfg)
			failed, refused, took := run429(t, cfg, c.calls, c.layers)
			if failed > 0 || took > c.within || refused > 1 {
				t.Errorf("%d of %d calls failed, %d were refused, in %v", failed, len(c.calls), refused, took)
			}
		})
	}
}

// A quota that no waiting ends is final.
func Test429_Final(t *testing.T) {
	var cfg sluicehttp.Config
	final429(&cfg)
	failed, _, took := run429(t, cfg, many429(1), []sluicetest.Layer{sluicetest.Reply(429, "monthly quota exceeded")})
	if failed != 1 || took > time.Second {
		t.Errorf("%d failed, in %v", failed, took)
	}
}

// Of the first burst 32 are sent at once, fewer if the calls in flight are limited or the gate searches.
func Test429_FirstBurst(t *testing.T) {
	limit := []sluicetest.Layer{sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second, Burst: 10})}
	for name, c := range map[string]struct {
		set         func(*sluicehttp.Config)
		least, most int
	}{
		"as it comes": {func(*sluicehttp.Config) {}, 10, 70},
		"in flight":   {flight429, 1, 30},
		"search":      {func(cfg *sluicehttp.Config) { cfg.Gate.Adaptive.Search = true }, 1, 20},
	} {
		var cfg sluicehttp.Config
		c.set(&cfg)
		failed, refused, _ := run429(t, cfg, many429(100), limit)
		if failed > 0 || refused < c.least || refused > c.most {
			t.Errorf("%s: %d failed, %d were throttled, want %d to %d", name, failed, refused, c.least, c.most)
		}
	}
}

// What the page prints shows each attempt, and why there was no other.
func Test429_Look(t *testing.T) {
	server(t, func(ctx context.Context, base http.RoundTripper) {
		transport := limits.Must(sluicehttp.New(base))
		req, err := http.NewRequest(http.MethodPost, "https://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := look429(ctx, &http.Client{Transport: transport}, transport, req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}, sluicetest.On(1, sluicetest.Status(429)), sluicetest.Status(502))
}

type call429 struct{ path, body string } // a POST, or a GET if it has no body

func many429(n int) []call429 {
	all := make([]call429, n)
	for i := range all {
		all[i].path = fmt.Sprint("/", i)
	}
	return all
}

// run429 makes calls together, and returns how many failed, how many requests were refused, and how
// long it took.
func run429(t *testing.T, cfg sluicehttp.Config, calls []call429, layers []sluicetest.Layer) (failed, refused int, took time.Duration) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := begin429(base, cfg)
		if err != nil {
			t.Fatal(err)
		}
		began, results := time.Now(), make(chan bool)
		for _, c := range calls {
			go func() { results <- c.do(ctx, client) }()
		}
		for range calls {
			if !<-results {
				failed++
			}
		}
		took = time.Since(began)
	}, append([]sluicetest.Layer{sluicetest.Delay(10 * time.Millisecond)}, layers...)...)
	for _, r := range seen.Requests {
		if r.ThrottledBy != "" {
			refused++
		}
	}
	return failed, refused, took
}

func (c call429) do(ctx context.Context, client *http.Client) bool {
	method, body := http.MethodGet, io.Reader(nil)
	if c.body != "" {
		method, body = http.MethodPost, strings.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://a.test"+c.path, body)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// No block of the page is longer than six lines.
func Test429_SixLines(t *testing.T) {
	page, err := os.ReadFile("../429.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(page), -1)
	for _, m := range blocks {
		if n := strings.Count(m[2], "\n"); n > 6 {
			t.Errorf("%d lines:\n%s", n, m[2])
		}
	}
	if len(blocks) < 8 {
		t.Errorf("only %d blocks are found", len(blocks))
	}
}
