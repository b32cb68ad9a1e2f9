package sluiceprom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
	"github.com/sluice-go/sluice/window"
)

// scrapeEvery is how often the recordings of these tests scrape.
const scrapeEvery = 15 * time.Second

// A recording is what a Prometheus would have scraped: values by series, in the notation of
// promtool.
type recording struct {
	scrapes int
	series  map[string][]string
}

// scrape adds the values that the program of a job has now.
func (r *recording) scrape(t *testing.T, job string, g prometheus.Gatherer) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, m *dto.Metric, value float64, more ...string) {
		labels := append([]string{fmt.Sprintf("job=%q", job), `instance="one"`}, more...)
		for _, l := range m.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		key := name + "{" + strings.Join(labels, ",") + "}"
		for len(r.series[key]) < r.scrapes {
			r.series[key] = append(r.series[key], "_") // was not there
		}
		r.series[key] = append(r.series[key], fmt.Sprint(value))
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				for _, b := range h.GetBucket() {
					add(f.GetName()+"_bucket", m, float64(b.GetCumulativeCount()), fmt.Sprintf(`le="%v"`, b.GetUpperBound()))
				}
				add(f.GetName()+"_bucket", m, float64(h.GetSampleCount()), `le="+Inf"`)
				add(f.GetName()+"_sum", m, h.GetSampleSum())
				add(f.GetName()+"_count", m, float64(h.GetSampleCount()))
				continue
			}
			add(f.GetName(), m, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
}

// A sample is what an expression has to return, in the format of promtool.
type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// An exprTest is an expression at a time, in the format of promtool.
type exprTest struct {
	Expr    string   `json:"expr"`
	At      string   `json:"eval_time"`
	Samples []sample `json:"exp_samples"`
}

// promtool evaluates the tests with what was recorded and the alerts. It is the real rules
// engine of Prometheus.
func promtool(t *testing.T, r *recording, tests []exprTest) {
	t.Helper()
	alerts, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	var input []series
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		input = append(input, series{key, strings.Join(r.series[key], " ")})
	}
	// YAML can be written as JSON.
	file, err := json.Marshal(map[string]any{
		"rule_files": []string{alerts}, "evaluation_interval": "15s",
		"tests": []any{map[string]any{"interval": scrapeEvery.String(), "input_series": input, "promql_expr_test": tests}},
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("promtool", "test", "rules", name).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, said)
	}
}

// scrapeOf returns what h serves.
func scrapeOf(h http.Handler) string {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return r.Body.String()
}

func needsPromtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("no promtool is installed: it is part of Prometheus")
	}
}

// away is a limit, and a semaphore, whose Redis does not answer.
type away struct{}

var errAway = errors.New("dial tcp 127.0.0.1:6379: connection refused")

func (away) Admit(context.Context, int64) (time.Duration, error) { return 0, errAway }
func (away) Adjust(context.Context, int64, time.Duration) error  { return errAway }
func (awaySemaphore) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	return nil, errAway
}

type awaySemaphore struct{}

// callers keep n callers of g busy with calls that take d.
func callers(ctx context.Context, g *sluice.Gate, n int, d time.Duration) {
	for range n {
		go func() {
			for ctx.Err() == nil {
				if err := g.Do(ctx, func(ctx context.Context) error { return pause(ctx, d) }); err != nil {
					pause(ctx, time.Second)
				}
			}
		}()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// record lets gates run for 25 minutes of virtual time, in a program with everything
// configured and in one with nothing but Config.Observer.
func record(t *testing.T) *recording {
	r := &recording{series: make(map[string][]string)}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		jobs := map[string]*prometheus.Registry{"full": prometheus.NewRegistry(), "minimal": prometheus.NewRegistry()}
		for job, registry := range jobs {
			var all gates
			var cfg sluiceprom.Config
			if job == "full" {
				cfg.Gates = all.stats
			}
			c := mustNew(t, cfg)
			registry.MustRegister(c)
			add := func(cfg sluice.Config) *sluice.Gate {
				cfg.Observer = c.Observe
				g := mustGate(t, cfg)
				all = append(all, g)
				t.Cleanup(g.Close)
				return g
			}
			day := limits.Must(window.NewFixed(window.Quota{Limit: 25, Window: 24 * time.Hour}))
			callers(ctx, add(sluice.Config{Name: "hung", Concurrency: 4}), 40, 24*time.Hour)
			callers(ctx, add(sluice.Config{Name: "day", Limits: []sluice.Limit{{Name: "day", Limiter: day}}}), 10, time.Millisecond)
			callers(ctx, add(sluice.Config{Name: "limit away", Limits: []sluice.Limit{{Name: "hour", Limiter: away{}}}}), 10, time.Second)
			callers(ctx, add(sluice.Config{Name: "semaphore away", Semaphore: awaySemaphore{}}), 10, time.Second)
			callers(ctx, add(sluice.Config{Name: "slow", Rate: sluice.Rate{Count: 2, Per: time.Minute}}), 30, time.Millisecond)
			callers(ctx, add(sluice.Config{Name: "busy", Rate: sluice.Rate{Count: 1, Per: time.Second}}), 50, time.Millisecond)
			callers(ctx, add(sluice.Config{Name: "free"}), 2, time.Second)
			add(sluice.Config{Name: "idle"})
			// Its first 10 minutes are good.
			late := add(sluice.Config{Name: "hangs later", Concurrency: 2})
			began := time.Now()
			for range 8 {
				go func() {
					for ctx.Err() == nil {
						late.Do(ctx, func(ctx context.Context) error {
							if time.Since(began) < 10*time.Minute {
								return pause(ctx, time.Second)
							}
							return pause(ctx, 24*time.Hour)
						})
					}
				}()
			}
			paused := add(sluice.Config{Name: "paused"})
			paused.PauseUntil(time.Now().Add(time.Hour), "429")
			callers(ctx, paused, 5, time.Second)
		}
		for range int(25 * time.Minute / scrapeEvery) {
			synctest.Wait()
			for job, registry := range jobs {
				r.scrape(t, job, registry)
			}
			r.scrapes++
			time.Sleep(scrapeEvery)
		}
		cancel()
	})
	return r
}

// A real rules engine evaluates what real gates have exported.
func TestPromtool(t *testing.T) {
	needsPromtool(t)
	r := record(t)
	t.Run("alerts", func(t *testing.T) { testAlerts(t, r) })
	t.Run("long waits", func(t *testing.T) { testLongWaits(t, r) })
}

// The alerts fire for what the names of these gates say, and for nothing else.
func testAlerts(t *testing.T, r *recording) {
	firing := func(at string, alerts ...string) exprTest {
		test := exprTest{Expr: `ALERTS{alertstate="firing"}`, At: at}
		for _, a := range alerts {
			name, labels, _ := strings.Cut(a, " ")
			test.Samples = append(test.Samples, sample{
				fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing", %s}`, name, labels), 1})
		}
		return test
	}
	const (
		critical = `severity="critical", `
		warning  = `severity="warning", `
		info     = `severity="info", `
	)
	redis := []string{
		"SluiceLimitFails " + critical + `gate="limit away"`, "SluiceLimitFails " + critical + `gate="semaphore away"`,
	}
	stalled := append([]string{
		"SluiceStalled " + critical + `instance="one", gate="hung"`, "SluiceStalled " + critical + `instance="one", gate="day"`,
		"SluicePaused " + warning + `gate="paused"`,
		"SluiceGatesNotExported " + info + `job="minimal", instance="one"`,
	}, redis...)
	long := []string{}
	for _, gate := range []string{"hung", "day", "slow", "paused"} {
		long = append(long, "SluiceWaitsLong "+warning+fmt.Sprintf("gate=%q", gate))
	}
	promtool(t, r, []exprTest{
		firing("4m"),
		firing("6m", redis...),
		firing("12m", stalled...),
		firing("18m", append(slices.Clone(stalled), long...)...),
		firing("24m", append(append(slices.Clone(stalled), long...), "SluiceStalled "+critical+`instance="one", gate="hangs later"`)...),
	})
}

// Waits of minutes are seen, also those of calls that have not been admitted: the
// expressions of the dashboard, evaluated by Prometheus.
func testLongWaits(t *testing.T, r *recording) {
	exprs := panels(t)
	of := func(panel string, target int, gate string) string {
		return strings.NewReplacer("$gate", gate, "$__rate_interval", "2m").Replace(exprs[panel][target])
	}
	const wait = "Time that calls wait"
	promtool(t, r, []exprTest{
		// A closed circle of 30 callers: each waits for a quarter of an hour. It was 65 s.
		{of(wait, 1, "slow") + " > bool 600", "24m", []sample{{`{gate="slow"}`, 1}}},
		{of(wait, 1, "slow") + " <= bool 900", "24m", []sample{{`{gate="slow"}`, 1}}},
		{of("Time of the oldest wait", 0, "hung"), "20m", []sample{{`{gate="hung"}`, 1200}}},
		{of("Time of the oldest wait", 0, "day") + " > bool 1199", "20m", []sample{{`{gate="day"}`, 1}}},
		{of("Time of the oldest wait", 0, "free"), "20m", []sample{{`{gate="free"}`, 0}}},
		{of("Calls that leave", 0, "busy"), "20m", []sample{{`{gate="busy"}`, 2}}}, // of both programs
	})
}

// The text of a real scrape is what promtool expects of good metrics.
func TestScrape_CheckMetrics(t *testing.T) {
	needsPromtool(t)
	synctest.Test(t, func(t *testing.T) {
		var all gates
		c := mustNew(t, sluiceprom.Config{Gates: all.stats})
		g := mustGate(t, sluice.Config{Name: "api", Observer: c.Observe})
		all = gates{g}
		for i := range 20 {
			g.Do(bg, func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.ThrottledFor(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		scrape := scrapeOf(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		for _, want := range []string{
			"sluice_calls_admitted_total{gate=\"api\"} 20\n", "sluice_oldest_wait_seconds{gate=\"api\"} 0\n",
			"sluice_learned_pace{", "sluice_queue_duration_seconds_bucket{gate=\"api\",le=\"14400\"} 20\n",
		} {
			if !strings.Contains(scrape, want) {
				t.Errorf("no %q in a scrape of %d bytes", want, len(scrape))
			}
		}
		check := func(text string) (said string, status int) {
			cmd := exec.Command("promtool", "check", "metrics")
			cmd.Stdin = strings.NewReader(text)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			return out.String(), cmd.ProcessState.ExitCode()
		}
		if said, status := check(scrape); said != "" || status != 0 {
			t.Errorf("promtool check metrics: status %d\n%s", status, said)
		}
		// It can find something.
		if said, status := check(scrape + "# TYPE sluice_bad counter\nsluice_bad 1\n"); status == 0 || !strings.Contains(said, "sluice_bad") {
			t.Errorf("of a bad metric it says %q, status %d", said, status)
		}
	})
}

// Each panel that may be empty although gates are busy says which field of a Config it needs.
func TestDashboard_NoValue(t *testing.T) {
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
			FieldConfig struct{ Defaults struct{ NoValue string } }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	// What has series in a program with nothing but Config.Observer.
	c := mustNew(t, sluiceprom.Config{})
	c.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "g", N: 1})
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := func(expr string) bool {
		return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return strings.Contains(expr, f.GetName()) })
	}
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		says := p.FieldConfig.Defaults.NoValue
		if says == "" {
			t.Errorf("%s says nothing if there is no data", p.Title)
		}
		wired := slices.ContainsFunc(p.Targets, func(target struct{ Expr string }) bool { return there(target.Expr) })
		if !wired && !strings.Contains(says, "Config.") {
			t.Errorf("%s has no data without further configuration, and says only %q", p.Title, says)
		}
	}
}
