package sluiceprom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// panels returns the expressions of the dashboard, by the title of their panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	return all
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The dashboard and the alerts use no metric that is not there, and the dashboard uses all,
// but for those that count what another metric shows.
func TestDashboard_Metrics(t *testing.T) {
	there := make(map[string]bool)
	descs := make(chan *prometheus.Desc, 100)
	mustNew(t, sluiceprom.Config{}).Describe(descs)
	close(descs)
	name := regexp.MustCompile(`sluice_[a-z_]*[a-z]`)
	for d := range descs {
		there[name.FindString(d.String())] = true
	}
	board := readFile(t, "dashboard.json")
	for _, text := range []string{board, readFile(t, "alerts.yml")} {
		for _, used := range name.FindAllString(text, -1) {
			used = strings.TrimSuffix(strings.TrimSuffix(used, "_bucket"), "_count")
			if !there[used] {
				t.Errorf("there is no metric %s", used)
			}
		}
	}
	implied := []string{
		"sluice_calls_queued_total", "sluice_pauses_total", "sluice_paused", "sluice_blocked", "sluice_learned_rate",
		"sluice_learned_concurrency", "sluice_learned_throttled", "sluice_learned_updates_total",
	}
	for metric := range there {
		if !strings.Contains(board, metric) && !slices.Contains(implied, metric) {
			t.Errorf("the dashboard does not show %s", metric)
		}
	}
}

// A real Prometheus scrapes a program: it understands the alerts, and each panel has data.
func TestDashboard_Prometheus(t *testing.T) {
	if os.Getenv("SLUICE_FULL") == "" {
		t.Skip("takes some seconds and a prometheus: SLUICE_FULL is not set")
	}
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("no prometheus is installed")
	}
	target := busyProgram(t)
	query := startPrometheus(t, target)
	missing := panels(t)
	for deadline := time.Now().Add(time.Minute); len(missing) > 0 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		for title, exprs := range missing {
			if !slices.ContainsFunc(exprs, func(expr string) bool { return query(expr) == 0 }) {
				delete(missing, title)
			}
		}
	}
	for title, exprs := range missing {
		t.Errorf("%s: no data for one of %q", title, exprs)
	}
	for _, exprs := range panels(t) { // also those that have none here are understood
		for _, expr := range exprs {
			query(expr)
		}
	}
}

// busyProgram serves the metrics of a program in which everything happens that the
// dashboard shows, and returns its address.
func busyProgram(t *testing.T) (address string) {
	ctx, cancel := context.WithCancel(bg)
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })

	var mu sync.Mutex
	n := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n++
		w.Header().Set("X-RateLimit-Limit", "1000")
		w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(max(0, 1000-n)))
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(time.Hour).Unix()))
		switch {
		case n%50 == 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case n%7 == 0:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(upstream.Close)

	var transport *sluicehttp.Transport
	metrics := mustNew(t, sluiceprom.Config{
		Gates:  func(yield func(sluice.Stats) bool) { transport.Gates()(yield) },
		Limits: func(yield func(string, []ratelimit.Limit) bool) { transport.Limits()(yield) },
	})
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Gate: sluice.Config{
			Concurrency: 4, Rate: sluice.Rate{Count: 200, Per: time.Second}, Observer: metrics.Observe,
			Adaptive: sluice.Adaptive{Peers: onlyOne{}},
		},
		Retry:     sluice.RetryPolicy{Backoff: sluice.Constant(10 * time.Millisecond)},
		OnAttempt: metrics.ObserveAttempt,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Shutdown(bg) }) // which ends its talk with peers
	client := &http.Client{Transport: transport}
	for i := range 16 {
		all.Go(func() {
			for ctx.Err() == nil {
				ctx := ctx
				if i == 0 { // who has no time is rejected
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
				}
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	scraped := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(scraped.Close)
	return strings.TrimPrefix(scraped.URL, "http://")
}

// onlyOne is a peers.Store with one gate in each group.
type onlyOne struct{}

func (onlyOne) Exchange(context.Context, string, peers.Report) (peers.Reply, error) {
	return peers.Reply{Peers: 1, Share: peers.Whole, Due: peers.Whole}, nil
}

// startPrometheus starts a Prometheus that scrapes target, with the alerts. The function
// that it returns says how many series an expression of the dashboard has.
func startPrometheus(t *testing.T, target string) (series func(expr string) int) {
	dir := t.TempDir()
	alerts, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 200ms, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: t, static_configs: [{targets: [%q]}]}]\n", alerts, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var said bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus says\n%s", said.String())
		}
	})
	client := &http.Client{Transport: new(http.Transport), Timeout: 10 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	replace := strings.NewReplacer("$gate", ".*", "$__rate_interval", "10s")
	return func(expr string) int {
		resp, err := client.PostForm("http://"+address+"/api/v1/query", url.Values{"query": {replace.Replace(expr)}})
		if err != nil {
			return 0 // it is still starting
		}
		defer resp.Body.Close()
		var answer struct {
			Status, Error string
			Data          struct{ Result []any }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return 0
		}
		if answer.Error != "" {
			t.Errorf("%s: %s", expr, answer.Error)
		}
		return len(answer.Data.Result)
	}
}
