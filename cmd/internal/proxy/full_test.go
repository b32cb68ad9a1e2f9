package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicetest"
)

// needsFull skips a test that takes a while, or needs programs that not every machine has.
func needsFull(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_FULL") == "" {
		t.Skip("set SLUICE_FULL to run it")
	}
}

// fake answers as the API of each SDK does.
func fake(w http.ResponseWriter, r *http.Request) {
	text := `{"id":1,"full_name":"a/b"}`
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		text = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	case strings.HasSuffix(r.URL.Path, "/messages"):
		text = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, text)
}

// installSDKs returns a folder with the SDKs of npm and calls.mjs.
func installSDKs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("testdata", "npm"))); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("npm", "install", "--prefix", folder, "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		t.Skipf("npm install: %v\n%s", err, out)
	}
	return folder
}

// Programs as they are make calls through the proxy to a server with a limit that nobody knows. It
// reports a table; nothing that depends on the machine is asserted. bench/proxy has more.
func TestFull_SDKs(t *testing.T) {
	needsFull(t)
	folder := installSDKs(t)
	node := func(sdk string) func(base string, n int) (*exec.Cmd, func(out string) int) {
		return func(base string, n int) (*exec.Cmd, func(string) int) {
			cmd := exec.Command("node", filepath.Join(folder, "calls.mjs"), sdk, base, strconv.Itoa(n))
			return cmd, func(out string) int {
				var said struct {
					OK    int
					Error string
				}
				if err := json.Unmarshal([]byte(out), &said); err != nil || said.Error != "" {
					t.Errorf("%s: %s, %v", sdk, out, err)
				}
				return said.OK
			}
		}
	}
	curl := func(base string, n int) (*exec.Cmd, func(string) int) {
		cmd := exec.Command("xargs", "-P", "30", "-I", "{}", "curl", "-sS", "--retry", "3", "-o", filepath.Join(folder, "out-{}"), "-w", "%{http_code}\n", base+"/repos/a/b?n={}")
		var numbers strings.Builder
		for i := range n {
			fmt.Fprintln(&numbers, i)
		}
		cmd.Stdin = strings.NewReader(numbers.String())
		return cmd, func(out string) int { return strings.Count(out, "200\n") }
	}
	const calls, rate, burst = 300, 40, 10
	for _, test := range []struct {
		name      string
		make      func(base string, n int) (*exec.Cmd, func(string) int)
		options   string
		processes int
	}{
		{"openai", node("openai"), "preset=openai", 1},
		{"@anthropic-ai/sdk", node("anthropic"), "preset=anthropic", 1},
		{"octokit", node("octokit"), "preset=github", 1},
		{"curl --retry", curl, "", 1},
		{"openai, four processes", node("openai"), "preset=openai", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			limited := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Count: rate, Per: time.Second, Burst: burst}), sluicetest.Handler(http.HandlerFunc(fake)))
			defer limited.Close()
			server := httptest.NewServer(limited)
			defer server.Close()
			p, err := newProxy(&options{routes: []routeSpec{routeOf(t, "/api="+server.URL+" "+test.options)}, patience: 4 * time.Minute, timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			address := serve(t, p)
			began := time.Now()
			var all sync.WaitGroup
			ok, ends := make([]int, test.processes), make([]float64, test.processes)
			for i := range test.processes {
				all.Go(func() {
					cmd, read := test.make("http://"+address+"/api", calls)
					out, err := cmd.Output()
					if err != nil {
						t.Error(err)
					}
					ok[i], ends[i] = read(string(out)), time.Since(began).Seconds()
				})
			}
			all.Wait()
			throttled, responses := uint64(0), uint64(0)
			for k, n := range p.counts.responses {
				if responses += n; k.status == 429 {
					throttled += n
				}
			}
			sum, squares := 0.0, 0.0
			for i := range ok {
				speed := float64(ok[i]) / ends[i]
				sum += speed
				squares += speed * speed
				if ok[i] != calls {
					t.Errorf("%d of %d calls", ok[i], calls)
				}
			}
			if throttled*100 > responses {
				t.Errorf("%d of %d responses are 429", throttled, responses)
			}
			arrivals := limited.Record().Arrivals()
			span := (arrivals[len(arrivals)-1] - arrivals[0]).Seconds()
			t.Logf("%v of %d calls; %d of %d responses 429; the server refused %d; %.1f s, %.0f %% of the limit; Jain %.3f",
				ok, calls, throttled, responses, limited.Record().Throttled(), span, 100*(float64(calls*test.processes-burst)/span)/rate, sum*sum/float64(len(ok))/squares)
		})
	}
}

// The cost of a call, beside a bare ReverseProxy in the same run. Nothing is asserted: the table is
// in docs/proxy.md.
func TestFull_Cost(t *testing.T) {
	needsFull(t)
	server := httptest.NewServer(http.HandlerFunc(fake))
	defer server.Close()
	target, _ := url.Parse(server.URL)
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 256
	defer base.CloseIdleConnections()
	bare := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: base, BufferPool: &buffers})
	defer bare.Close()
	p, err := newProxy(&options{routes: []routeSpec{routeOf(t, "/api="+server.URL)}, patience: time.Minute, timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	urls := []string{server.URL + "/", bare.URL + "/", "http://" + serve(t, p) + "/api/"}
	get := func(url string) time.Duration {
		began := time.Now()
		resp, err := client.Get(url)
		if err != nil {
			t.Error(err)
			return 0
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return time.Since(began)
	}
	took := make([][]time.Duration, len(urls))
	for range 3000 {
		for i, url := range urls {
			took[i] = append(took[i], get(url))
		}
	}
	var p50 []time.Duration
	for _, all := range took {
		slices.Sort(all)
		p50 = append(p50, all[len(all)/2])
	}
	t.Logf("p50 one at a time: direct %v, bare ReverseProxy %v, sluice proxy %v: %v more than bare", p50[0], p50[1], p50[2], p50[2]-p50[1])
	rates := make([][]float64, len(urls))
	for range 5 {
		for i, url := range urls {
			const calls, workers = 4000, 32
			began := time.Now()
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range calls / workers {
						get(url)
					}
				})
			}
			all.Wait()
			rates[i] = append(rates[i], calls/time.Since(began).Seconds())
		}
	}
	for i := range rates {
		slices.Sort(rates[i])
	}
	t.Logf("32 at a time, median of 5: direct %.0f/s, bare %.0f/s, sluice proxy %.0f/s: %.2f of bare", rates[0][2], rates[1][2], rates[2][2], rates[2][2]/rates[1][2])
}

// A parked is an upstream that takes a call and never answers.
type parked struct{}

func (parked) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// The memory of 10,000 waiting calls, beside a bare ReverseProxy, on connections in memory. The
// bodies have 100 bytes.
func TestFull_Memory(t *testing.T) {
	needsFull(t)
	if built.Raced() {
		t.Skip("the race detector needs more memory")
	}
	const calls = 10_000
	p, err := newProxy(&options{routes: []routeSpec{routeOf(t, "/api=http://api.test")}, patience: time.Hour, timeout: time.Minute, base: parked{}})
	if err != nil {
		t.Fatal(err)
	}
	target := &url.URL{Scheme: "http", Host: "api.test"}
	bare := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: parked{}, ErrorLog: log.New(io.Discard, "", 0)}
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	hold := func(handler http.Handler) uint64 {
		l := &pipes{conns: make(chan net.Conn)}
		server := &http.Server{Handler: handler, ErrorLog: bare.ErrorLog}
		go server.Serve(l)
		before := used()
		var ends []net.Conn
		for range calls {
			near, far := net.Pipe()
			l.conns <- far
			fmt.Fprintf(near, "POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key\r\nUser-Agent: test\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n%s", strings.Repeat("x", 100))
			ends = append(ends, near)
		}
		if handler == http.Handler(p) {
			for p.calls.Load() < calls {
				time.Sleep(time.Millisecond) // a condition, not a time
			}
		}
		more := used() - before
		server.Close()
		for _, c := range ends {
			c.Close()
		}
		return more / calls
	}
	// The first call of the tenant is under way, and the gate refuses no other: so pause it.
	c := newCall(httptest.NewRequest("GET", "/", nil), time.Hour)
	defer c.finish()
	up := p.set.Load().table.routes["api"].upstream
	ctxEnded := make(chan struct{})
	req, _ := http.NewRequestWithContext(c, "GET", "http://api.test/", nil)
	go func() { _, _ = up.transport.RoundTrip(req); close(ctxEnded) }()
	for !up.transport.PauseUntil(up.name, time.Now().Add(time.Hour), "test") {
		time.Sleep(time.Millisecond)
	}
	sluice, plain := hold(p), hold(bare)
	t.Logf("10,000 calls that wait: %d bytes each, in a bare ReverseProxy %d: %d more", sluice, plain, int64(sluice)-int64(plain))
	if sluice > plain+12_000 {
		t.Errorf("a call that waits takes %d bytes more, want at most 12,000", sluice-plain)
	}
	c.finish()
	<-ctxEnded
	p.handlers.Wait()
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.conns) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
