package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// programs are those that TestFull_SDKs of the proxy also runs.
const programs = "cmd/internal/proxy/testdata/npm"

// callsEach is the number of calls of each process, burst what the server allows at once.
const (
	callsEach = 300
	burst     = 10
)

// An sdk is a client as it comes.
type sdk struct {
	name, is, preset string
}

var sdks = []sdk{
	{"openai", "openai", " preset=openai"},
	{"anthropic", "@anthropic-ai/sdk", " preset=anthropic"},
	{"octokit", "octokit", " preset=github"},
	{"curl", "curl --retry 3, 30 at a time", ""},
}

// sdks lets each call a server with a limit that it does not state.
func (o *options) sdks(dir, binary string) error {
	if err := o.install(dir); err != nil {
		return err
	}
	fmt.Printf("\n| %d calls of each process | limit | processes | succeeded | 429 for callers | throttled by the server | of the limit | Jain | woken late |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", callsEach)
	for _, text := range strings.Split(o.rates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return fmt.Errorf("-rates %s: want numbers above 0", o.rates)
		}
		for _, s := range sdks {
			if o.sdk != "" && s.name != o.sdk {
				continue
			}
			rounds := []round{{rate, 1, false}}
			if o.processes > 1 {
				rounds = append(rounds, round{rate, o.processes, false}, round{rate, o.processes, true})
			}
			for _, r := range rounds {
				if err := o.run(s, r, binary); err != nil {
					return fmt.Errorf("%s: %w", s.is, err)
				}
			}
		}
	}
	return nil
}

// install makes the folder that has the SDKs.
func (o *options) install(dir string) error {
	if o.node == "" {
		o.node = filepath.Join(dir, "npm")
		if err := os.CopyFS(o.node, os.DirFS(programs)); err != nil {
			return fmt.Errorf("run it in the root of the repository: %w", err)
		}
		if out, err := exec.Command("npm", "install", "--prefix", o.node, "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			return fmt.Errorf("npm install: %w\n%s", err, out)
		}
	}
	var err error
	o.node, err = filepath.Abs(o.node)
	return err
}

// A round is what an SDK is measured with.
type round struct {
	rate, processes int
	named           bool // the base URL of each process names it
}

// base returns the base URL of the i-th process.
func (r round) base(f *front, i int) string {
	if r.named {
		return fmt.Sprintf("%s~%d/sdk", f.base, i)
	}
	return f.base + "sdk"
}

// run lets some processes of one account call at the same time, and prints a line.
func (o *options) run(s sdk, r round, binary string) error {
	rate, processes := r.rate, r.processes
	limited := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Count: int64(rate), Per: time.Second, Burst: burst}), sluicetest.Handler(http.HandlerFunc(fake)))
	defer limited.Close()
	server := httptest.NewServer(limited)
	defer server.Close()
	f, err := startSluice(binary, server.URL, "-route", "/sdk="+strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+s.preset)
	if err != nil {
		return err
	}
	defer f.close()
	late := lateness()
	ok, took, errs := make([]int, processes), make([]float64, processes), make([]error, processes)
	began := time.Now()
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			ok[i], errs[i] = o.play(s, r.base(f, i))
			took[i] = time.Since(began).Seconds()
		})
	}
	all.Wait()
	succeeded, sum, squares := 0, 0., 0.
	for i := range processes {
		if errs[i] != nil {
			return errs[i]
		}
		speed := float64(ok[i]) / took[i]
		succeeded, sum, squares = succeeded+ok[i], sum+speed, squares+speed*speed
	}
	c := newClient()
	defer c.CloseIdleConnections()
	responses, err := metric(c, f.base, "sluice_proxy_responses_total")
	if err != nil {
		return err
	}
	throttled, err := metric(c, f.base, "sluice_proxy_responses_total", `code="429"`)
	if err != nil {
		return err
	}
	record := limited.Record()
	arrivals := record.Arrivals()
	span := (arrivals[len(arrivals)-1] - arrivals[0]).Seconds()
	fmt.Printf("| %s | %d/s | %d%s | %d of %d | %.1f %% | %d | %.0f %% | %.3f | %v |\n", s.is, rate, processes, map[bool]string{true: ", named"}[r.named], succeeded, callsEach*processes,
		100*throttled/max(1, responses), record.Throttled(), 100*float64(callsEach*processes-burst)/span/float64(rate),
		sum*sum/float64(processes)/squares, late().Round(100*time.Microsecond))
	return nil
}

// play runs one process, and returns the number of its calls that succeeded.
func (o *options) play(s sdk, base string) (ok int, err error) {
	if s.name == "curl" {
		cmd := exec.Command("xargs", "-P", "30", "-I", "{}", "curl", "-sS", "--retry", "3", "-o", "/dev/null", "-w", "%{http_code}\n", base+"/repos/a/b?n={}")
		var numbers strings.Builder
		for i := range callsEach {
			fmt.Fprintln(&numbers, i)
		}
		cmd.Stdin = strings.NewReader(numbers.String())
		out, err := cmd.Output()
		return strings.Count(string(out), "200\n"), err
	}
	cmd := exec.Command("node", filepath.Join(o.node, "calls.mjs"), s.name, base, strconv.Itoa(callsEach))
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	var said struct {
		OK    int
		Error string
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return 0, err
	}
	if said.Error != "" {
		fmt.Fprintln(os.Stderr, s.is, said.Error)
	}
	return said.OK, nil
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
	_, _ = io.WriteString(w, text)
}
