package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
)

// The JSON has exactly the promised fields, all of them numbers.
func TestBinaryJSON(t *testing.T) {
	e := runBinary(t, "-n", "40", "-rate", "200", "-json")
	e.wantStatus(t, 0)

	var raw map[string]map[string]any
	if err := json.Unmarshal([]byte(e.stdout), &raw); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, e.stdout)
	}
	fields := []string{
		"attempts", "calls", "ideal_s", "lost", "max_in_flight", "rate_allowed", "rate_delivered",
		"spacing_p50_us", "spacing_p99_us", "throttled", "wall_s",
	}
	for _, run := range []string{"gate", "naive"} {
		var got []string
		for name, value := range raw[run] {
			got = append(got, name)
			if _, ok := value.(float64); !ok {
				t.Errorf("%s.%s is %v, not a number", run, name, value)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, fields) {
			t.Errorf("%s has the fields %v, want %v", run, got, fields)
		}
	}
	if len(raw) != 2 {
		t.Errorf("%d members, want gate and naive", len(raw))
	}

	gate, naive := e.report(t)
	// Item 13 is answered 503 once, so there is one attempt more than calls.
	// That there is no 429 is for TestGateRun to say: here a machine that is
	// busy enough to hold a call back for some intervals would say otherwise.
	if gate.Calls != 40 || gate.Attempts != 41+gate.Throttled || gate.Lost != 0 ||
		gate.RateAllowed != 200 || gate.Ideal != 0.2 || gate.MaxInFlight > 10 {
		t.Errorf("gate %+v", gate)
	}
	if naive.Calls != 40 || naive.Lost != 0 {
		t.Errorf("naive %+v", naive)
	}
	items := e.items(t)
	if len(items) != 40 {
		t.Errorf("%d items, want 40", len(items))
	}
	for id, body := range items {
		var item apiserver.Item
		if err := json.Unmarshal([]byte(body), &item); err != nil || item != apiserver.ItemOf(id) {
			t.Errorf("item %d is %s: %v", id, body, err)
		}
	}
}

// With -unknown the object has what was learned and the run of a gate that was told the
// rate.
func TestBinaryUnknown(t *testing.T) {
	e := runBinary(t, "-n", "60", "-rate", "200", "-unknown", "-naive=false", "-json")
	e.wantStatus(t, 0)
	var out struct {
		Gate, Told figures
		Naive      *figures
		Learned    *learnedFigures
	}
	if err := json.Unmarshal([]byte(e.stdout), &out); err != nil {
		t.Fatal(err)
	}
	if out.Gate.Calls != 60 || out.Gate.Lost != 0 || out.Told.Calls != 60 || out.Told.Lost != 0 || out.Naive != nil {
		t.Errorf("%s", e.stdout)
	}
	if out.Learned == nil || out.Learned.Phase == "" || out.Learned.Pace <= 0 {
		t.Errorf("learned %+v", out.Learned)
	}
	if items := e.items(t); len(items) != 60 {
		t.Errorf("%d items, want 60", len(items))
	}
	for _, part := range []string{"told gate", "Not told the rate, the gate learned: ", " % of the throughput."} {
		if !strings.Contains(e.stderr, part) {
			t.Errorf("no %q in\n%s", part, e.stderr)
		}
	}
}

// Without -json the table is on stdout, after plain lines of progress.
func TestBinaryTable(t *testing.T) {
	e := runBinary(t, "-n", "20", "-rate", "4000/20s", "-out=")
	e.wantStatus(t, 0)
	for _, part := range []string{
		"gate: 0/20 done, ", "gate: 20/20 done, ", "naive: 20/20 done, ",
		"20 items at 4000/20s, at most 10 in flight, 64 workers\n",
		"as the server saw them", "\nitems lost                                0              0\n",
		"Through the gate 20 items took ",
	} {
		if !strings.Contains(e.stdout, part) {
			t.Errorf("no %q in\n%s", part, e.stdout)
		}
	}
	if strings.ContainsAny(e.stdout, "\r\x1b") {
		t.Errorf("control characters where there is no terminal: %q", e.stdout)
	}
	if e.stderr != "" {
		t.Errorf("stderr: %s", e.stderr)
	}
	if left, err := os.ReadDir(e.dir); err != nil || len(left) != 0 {
		t.Errorf("an empty -out wrote %v, %v", left, err)
	}
}

// With -out - stdout has the items and nothing else.
func TestBinaryItemsOnStdout(t *testing.T) {
	e := runBinary(t, "-n", "5", "-naive=false", "-out", "-")
	e.wantStatus(t, 0)
	if items := readItems(t, e.stdout); len(items) != 5 {
		t.Errorf("%d items on stdout, want 5", len(items))
	}
	if !strings.Contains(e.stderr, "Through the gate 5 of 5 items took ") {
		t.Errorf("no table on stderr:\n%s", e.stderr)
	}
}

func TestBinaryHelp(t *testing.T) {
	e := runBinary(t, "-h")
	e.wantStatus(t, 0)
	for _, name := range []string{"-n ", "-rate ", "-per ", "-concurrency ", "-workers ", "-url ", "-naive", "-out ", "-json"} {
		if !strings.Contains(e.stdout, "\n  "+name) {
			t.Errorf("%s is not in the help:\n%s", name, e.stdout)
		}
	}
}

func TestBinaryRefusesFlags(t *testing.T) {
	for _, args := range []string{
		"-n 0", "-n -1", "-n x", "-workers 0", "-concurrency 0", "-rate 0", "-rate fast",
		"-rate 300/20s -per 20s", "-per 0s", "-url nowhere", "-out - -json", "-bogus", "more",
	} {
		e := runBinary(t, strings.Fields(args)...)
		e.wantStatus(t, 2)
		if e.stdout != "" || !strings.HasPrefix(e.stderr, "apiclient: ") {
			t.Errorf("%s: stdout %q, stderr %q", args, e.stdout, e.stderr)
		}
		if left, err := os.ReadDir(e.dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v behind, %v", args, left, err)
		}
	}
}

// A file that cannot be opened is noticed before anything is called.
func TestBinaryUnwritableOut(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("called")
	}))
	defer api.Close()
	e := runBinary(t, "-n", "3", "-url", api.URL, "-out", "no/such/folder")
	e.wantStatus(t, 1)
	if e.stdout != "" || !strings.Contains(e.stderr, "no/such/folder") {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
}

// A disk that fills up is a loss, in the figures as well as in the status.
func TestBinaryFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	e := runBinary(t, "-n", "5", "-out", "/dev/full", "-json")
	e.wantStatus(t, 1)
	if gate, naive := e.report(t); gate.Lost != 5 || naive != nil {
		t.Errorf("lost %d, naive %v; want 5 and none", gate.Lost, naive)
	}
	if !strings.Contains(e.stderr, "apiclient: writing the items: ") {
		t.Errorf("stderr: %s", e.stderr)
	}
}

// No server can listen on port 0, so every attempt fails: everything is lost.
func TestBinaryUnreachable(t *testing.T) {
	e := runBinary(t, "-n", "3", "-rate", "1000", "-url", "http://127.0.0.1:0/{}", "-json")
	e.wantStatus(t, 1)
	gate, naive := e.report(t)
	if gate.Calls != 3 || gate.Attempts != 12 || gate.Lost != 3 || gate.RateDelivered != 0 || naive != nil {
		t.Errorf("gate %+v, naive %v", gate, naive)
	}
	if items := e.items(t); len(items) != 0 {
		t.Errorf("items from nowhere: %v", items)
	}
	if said := strings.Count(e.stderr, "no attempts left"); said != 3 {
		t.Errorf("why it gave up is said %d times for 3 items\n%s", said, e.stderr)
	}
}

// -url: the numbers are put in, a 404 is not repeated, the naive run is off
// unless it is asked for.
func TestBinaryURL(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]int)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.String()]++
		mu.Unlock()
		if r.URL.Path == "/v1/2" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, "[ %q ]", r.URL.Path)
	}))
	defer api.Close()

	for _, tt := range []struct {
		naive string
		want  int // requests for each item
	}{{"-naive=false", 1}, {"", 1}, {"-naive", 2}} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		args := []string{"-n", "4", "-rate", "1000", "-url", api.URL + "/v1/{}?id={}"}
		if tt.naive != "" {
			args = append(args, tt.naive)
		}
		e := runBinary(t, args...)
		e.wantStatus(t, 1) // item 2 is lost
		if !strings.Contains(e.stdout, "as seen from here") || !strings.Contains(e.stdout, "gate lost item 2: ") {
			t.Errorf("%q: stdout\n%s", tt.naive, e.stdout)
		}
		want := make(map[string]int)
		for id := range 4 {
			want[fmt.Sprintf("/v1/%d?id=%d", id, id)] = tt.want
		}
		mu.Lock()
		if !maps.Equal(asked, want) {
			t.Errorf("%q: asked %v, want %v", tt.naive, asked, want)
		}
		mu.Unlock()
		items := e.items(t)
		if len(items) != 3 || items[3] != `["/v1/3"]` {
			t.Errorf("%q: items %v", tt.naive, items)
		}
	}
}

// A Retry-After is waited for by everyone. It must not be waited for less; how
// much longer it takes is the machine's affair.
func TestBinaryHonoursRetryAfter(t *testing.T) {
	var mu sync.Mutex
	var refused time.Time
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refused.IsZero() {
			refused = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if early := time.Second - time.Since(refused); early > 0 {
			t.Errorf("%s comes %v too early", r.URL, early)
		}
		fmt.Fprint(w, "1")
	}))
	defer api.Close()
	e := runBinary(t, "-n", "5", "-rate", "1000", "-concurrency", "1", "-workers", "4", "-url", api.URL+"/{}", "-json")
	e.wantStatus(t, 0)
	gate, naive := e.report(t)
	if gate.Throttled != 1 || gate.Attempts != 6 || gate.Calls != 5 || gate.Lost != 0 || gate.MaxInFlight != 1 || naive != nil {
		t.Errorf("gate %+v, naive %v", gate, naive)
	}
	if items := e.items(t); len(items) != 5 {
		t.Errorf("%d items, want 5", len(items))
	}
}
