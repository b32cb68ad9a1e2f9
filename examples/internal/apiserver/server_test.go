package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/examples/internal/arrivals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hundred is the server of the tests: 100/s with a bucket of 5, 10 in flight.
func hundred() Config {
	return Config{Items: 1000, Count: 100, Per: time.Second, Concurrency: 10, NoFaults: true}
}

func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// get calls the handler without a network, in the time of the bubble.
func get(s *Server, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, hundred())
		tests := []struct {
			path   string
			status int
		}{
			{"/items/0", 200}, {"/items/999", 200},
			{"/items/1000", 404}, {"/items/-1", 404}, {"/items/x", 404},
			{"/items/", 404}, {"/items", 404}, {"/", 404}, {"/items/1/2", 404},
		}
		for _, tt := range tests {
			if got := get(s, tt.path).Code; got != tt.status {
				t.Errorf("GET %s: %d, want %d", tt.path, got, tt.status)
			}
		}
		if got := s.Report().Calls; got != 2 {
			t.Errorf("%d calls for items counted, want 2: the others are no calls", got)
		}
	})
}

func TestItemIsTheSameEveryTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, hundred())
		first := get(s, "/items/17")
		if got := first.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type %q", got)
		}
		var item Item
		if err := json.Unmarshal(first.Body.Bytes(), &item); err != nil {
			t.Fatal(err)
		}
		if item != ItemOf(17) || item.ID != 17 || item.Name == "" {
			t.Errorf("item %+v, want %+v", item, ItemOf(17))
		}
		if again := get(s, "/items/17"); again.Body.String() != first.Body.String() {
			t.Errorf("the same item twice: %s and %s", first.Body, again.Body)
		}
	})
}

func TestLatencyIsTwentyToForty(t *testing.T) {
	var sum time.Duration
	for id := range 1000 {
		d := latencyOf(id)
		if d < 20*ms || d > 40*ms {
			t.Fatalf("item %d takes %v", id, d)
		}
		sum += d
	}
	if mean := sum / 1000; mean < 29*ms || mean > 31*ms {
		t.Errorf("mean latency %v, want about 30ms", mean)
	}
}

func TestFaults(t *testing.T) {
	for _, items := range []int{1, 5, 10, 14, 15, 40, 100, 1000, 5000} {
		faults := 0
		for id := range items {
			if !faulty(id, items) {
				continue
			}
			faults++
			if tenth := items - items/10; id >= tenth {
				t.Errorf("%d items: item %d fails, among the last tenth", items, id)
			}
		}
		if items >= 1000 && (faults < items*8/1000 || faults > items*12/1000) {
			t.Errorf("%d items: %d faults, want about 1 %%", items, faults)
		}
	}
}

// An item fails once, and again after a Reset.
func TestFaultOnlyAtTheFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hundred()
		cfg.NoFaults = false
		s := newServer(t, cfg)
		for range 2 {
			for _, want := range []int{503, 200, 200} {
				w := get(s, fmt.Sprintf("/items/%d", faultFirst))
				if w.Code != want {
					t.Errorf("status %d, want %d", w.Code, want)
				}
				if got := w.Header().Get("Retry-After"); got != "" {
					t.Errorf("Retry-After %q on status %d", got, w.Code)
				}
			}
			if r := s.Report(); r.Faults != 1 || r.Accepted != 3 {
				t.Errorf("%d faults among %d accepted, want 1 among 3", r.Faults, r.Accepted)
			}
			s.Reset()
		}
	})
}

// Five calls that come together find room in the bucket, the sixth is rejected.
func TestTooFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hundred()
		cfg.Count, cfg.Per = 2, 5*time.Second // 2.5 s a call
		s := newServer(t, cfg)

		var wg sync.WaitGroup
		for id := range 5 {
			wg.Go(func() {
				if got := get(s, fmt.Sprintf("/items/%d", id)).Code; got != 200 {
					t.Errorf("call %d of 5: %d", id, got)
				}
			})
		}
		wg.Wait()

		w := get(s, "/items/5")
		if w.Code != 429 {
			t.Fatalf("the sixth call: %d, want 429", w.Code)
		}
		// About 2.46 s are left; in whole seconds that must be 3, not 2.
		if got := w.Header().Get("Retry-After"); got != "3" {
			t.Errorf("Retry-After %q, want 3", got)
		}
		var body struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error == "" {
			t.Errorf("body %q: %v", w.Body, err)
		}

		time.Sleep(3 * time.Second)
		if got := get(s, "/items/5").Code; got != 200 {
			t.Errorf("after the wait: %d", got)
		}
		r := s.Report()
		if r.Calls != 7 || r.Accepted != 6 || r.TooFast != 1 || r.TooMany != 0 || r.MaxInFlight != 5 {
			t.Errorf("report %+v", r)
		}
	})
}

// The call that is one too many is rejected, and is seen as one too many.
func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hundred()
		cfg.Concurrency = 2
		s := newServer(t, cfg)

		var wg sync.WaitGroup
		for id := range 2 {
			wg.Go(func() {
				if got := get(s, fmt.Sprintf("/items/%d", id)).Code; got != 200 {
					t.Errorf("call %d of 2: %d", id, got)
				}
			})
		}
		synctest.Wait() // both are being worked on
		w := get(s, "/items/2")
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("the third call: %d, Retry-After %q; want 429 and 1", w.Code, w.Header().Get("Retry-After"))
		}
		wg.Wait()
		if got := get(s, "/items/2").Code; got != 200 {
			t.Errorf("with nothing in flight: %d", got)
		}
		r := s.Report()
		if r.Calls != 4 || r.Accepted != 3 || r.TooMany != 1 || r.TooFast != 0 || r.MaxInFlight != 3 {
			t.Errorf("report %+v", r)
		}
	})
}

// Whoever calls again the moment the answer is there is not one too many, and
// a caller that keeps to the rate sees no 429.
func TestSteadyCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hundred()
		cfg.Count, cfg.Concurrency, cfg.Bucket = 50, 1, 1
		s := newServer(t, cfg)
		start := time.Now()
		for id := range 100 {
			// No call takes less than the 20 ms of a step.
			if got := get(s, fmt.Sprintf("/items/%d", id)).Code; got != 200 {
				t.Fatalf("item %d: %d", id, got)
			}
		}
		r := s.Report()
		if r.Accepted != 100 || r.Calls != 100 || r.MaxInFlight != 1 {
			t.Errorf("report %+v", r)
		}
		span := time.Since(start) - latencyOf(99)
		if want := 99 / span.Seconds(); r.Arrivals.PerSecond != want {
			t.Errorf("%v per second, want %v", r.Arrivals.PerSecond, want)
		}
	})
}

// A Reset while calls are in flight leaves those to the old books: they do
// not count out of flight what the new ones never counted in.
func TestResetWithCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hundred()
		cfg.Concurrency = 1
		s := newServer(t, cfg)
		var wg sync.WaitGroup
		wg.Go(func() { get(s, "/items/0") })
		synctest.Wait()
		s.Reset()
		if r := s.Report(); r != (Report{}) {
			t.Errorf("report after Reset: %+v", r)
		}
		wg.Wait()
		wg.Go(func() { get(s, "/items/1") })
		synctest.Wait()
		if got := get(s, "/items/2").Code; got != 429 {
			t.Errorf("the second call in flight: %d, want 429", got)
		}
		wg.Wait()
	})
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"items":       func(c *Config) { c.Items = 0 },
		"count":       func(c *Config) { c.Count = 0 },
		"per":         func(c *Config) { c.Per = -1 },
		"bucket":      func(c *Config) { c.Bucket = -1 },
		"concurrency": func(c *Config) { c.Concurrency = 0 },
	} {
		cfg := hundred()
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
}

// The listener: one call over TCP, then a Close that leaves nothing behind.
func TestListenAndClose(t *testing.T) {
	s := newServer(t, hundred())
	if err := s.Close(); err != nil || s.URL() != "" {
		t.Errorf("before Listen: URL %q, Close %v", s.URL(), err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.URL() + "/items/3")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	var item Item
	if err := json.Unmarshal(body, &item); err != nil || item != ItemOf(3) {
		t.Errorf("item %+v, error %v", item, err)
	}
	if want := (Report{Calls: 1, Accepted: 1, MaxInFlight: 1, Arrivals: arrivals.Summary{Count: 1}}); s.Report() != want {
		t.Errorf("report %+v, want %+v", s.Report(), want)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := client.Get(s.URL() + "/items/3"); err == nil {
		t.Error("the server answers after Close")
	}
}
