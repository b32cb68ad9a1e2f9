package sluicehttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// statuses counts the responses of a server.
type statuses struct {
	mu    sync.Mutex
	in    map[int]int
	paths map[string]int // how often each was served
}

func (s *statuses) note(status int, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		s.in, s.paths = map[int]int{}, map[string]int{}
	}
	s.in[status]++
	if status == http.StatusOK {
		s.paths[path]++
	}
}

// served is what a limit lets through: it works for 20 ms.
func (s *statuses) served() sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(http.StatusOK, r.URL.Path)
		time.Sleep(20 * ms)
	}))
}

// callsOf makes n requests by workers and returns how many got 200, and how long it took.
func (w *world) callsOf(n, workers int, method string) (good int64, took time.Duration) {
	begin := w.now()
	var next, ok atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				status, _, err := w.do(request(w, bg, method, fmt.Sprint("http://api.test/", i), nil))
				if err == nil && status == http.StatusOK {
					ok.Add(1)
				}
			}
		})
	}
	all.Wait()
	return ok.Load(), w.now() - begin
}

// Servers that refuse without a word, as they come: with no configuration nothing is lost, and no
// POST is sent twice that was served.
func TestTransport_UnclearRefusals(t *testing.T) {
	rate := func(status int, burst int64) sluicetest.Limit {
		return sluicetest.Limit{Count: 20, Per: time.Second, Burst: burst, Status: status}
	}
	sure := func(*http.Request, []byte) bool { return true }
	for name, c := range map[string]struct {
		limit   sluicetest.Limit
		cfg     sluicehttp.Config
		method  string
		workers int
		good    int64         // of 400, at least
		refused int           // at most
		took    time.Duration // at most
	}{
		"nginx limit_req, GET":          {rate(503, 20), sluicehttp.Config{}, "GET", 32, 396, 100, 22 * time.Second},
		"nginx limit_req, 400 at once":  {rate(503, 20), sluicehttp.Config{}, "GET", 400, 396, 480, 22 * time.Second},
		"nginx limit_req, POST":         {rate(503, 20), sluicehttp.Config{}, "POST", 32, 320, 80, 22 * time.Second},
		"nginx limit_req, POST, search": {rate(503, 20), sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Search: true}}}, "POST", 32, 320, 80, 22 * time.Second},
		"nginx limit_req, safe POST":    {rate(503, 20), sluicehttp.Config{Idempotent: sure}, "POST", 32, 396, 100, 22 * time.Second},
		"nginx limit_req, no burst":     {rate(503, 1), sluicehttp.Config{}, "GET", 32, 396, 100, 28 * time.Second},
		"nginx limit_conn":              {sluicetest.Limit{Concurrency: 4, Status: 503}, sluicehttp.Config{}, "GET", 32, 396, 100, 8 * time.Second},
		"Apache mod_qos":                {rate(500, 10), sluicehttp.Config{}, "GET", 32, 396, 100, 23 * time.Second},
		"403":                           {rate(403, 10), sluicehttp.Config{}, "GET", 32, 340, 80, 23 * time.Second},
		"509":                           {rate(509, 10), sluicehttp.Config{}, "GET", 32, 396, 100, 23 * time.Second},
		"423 with a Retry-After":        {sluicetest.Limit{Concurrency: 4, Status: 423, HeaderStyle: sluicetest.RetryAfter}, sluicehttp.Config{}, "GET", 32, 396, 100, 9 * time.Second},
		"409 with a Retry-After":        {sluicetest.Limit{Count: 20, Per: time.Second, Burst: 10, Status: 409, HeaderStyle: sluicetest.RetryAfter}, sluicehttp.Config{}, "GET", 32, 396, 100, 24 * time.Second},
		"told the rate":                 {rate(503, 10), sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 20, Per: time.Second}}}, "GET", 32, 400, 2, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var s statuses
			inWorld(t, c.cfg, layers(sluicetest.Delay(5*ms), sluicetest.Enforce(c.limit), s.served()), func(w *world) {
				good, took := w.callsOf(400, c.workers, c.method)
				requests := len(w.srv.Record().Requests)
				refused := requests - s.in[http.StatusOK]
				t.Logf("%d of 400, %d of %d refused, %v", good, refused, requests, took)
				if good < c.good || refused > c.refused || took > c.took {
					t.Errorf("want at least %d, at most %d refused, within %v", c.good, c.refused, c.took)
				}
				for path, n := range s.paths {
					if n > 1 {
						t.Errorf("%s was served %d times", path, n)
					}
				}
			})
		})
	}
}

// Servers that drop connections instead of answering, because too many calls are in flight or come: the
// gate finds the limit, and nothing is lost. A POST that was dropped is not sent again.
func TestTransport_UnclearDrops(t *testing.T) {
	const plays = 20
	for name, c := range map[string]struct {
		drop     sluicetest.Layer
		inFlight int64 // most, if not 0
		perSec   float64
		method   string
		good     int64         // of 400, at least
		dropped  int           // in the mean of plays, at most
		took     time.Duration // at most
	}{
		"reset above 8 in flight":       {sluicetest.Reset(), 8, 0, "GET", 396, 60, 8 * time.Second},
		"cut above 8 in flight":         {sluicetest.Cut(), 8, 0, "GET", 396, 60, 8 * time.Second},
		"reset above 8 in flight, POST": {sluicetest.Reset(), 8, 0, "POST", 340, 60, 8 * time.Second},
		"reset above 20 per second":     {sluicetest.Reset(), 0, 20, "GET", 396, 75, 24 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			all := int64(0)
			for range plays {
				all += dropsOf(t, c.drop, c.inFlight, c.perSec, c.method, c.good, c.took)
			}
			if t.Logf("%d dropped", all); all > plays*int64(c.dropped) {
				t.Errorf("%d dropped in %d plays, want at most %d", all, plays, c.dropped)
			}
		})
	}
}

// dropsOf plays a server once that drops calls, and returns the number of dropped calls. net/http repeats some of them by itself,
// so chance is in that.
func dropsOf(t *testing.T, drop sluicetest.Layer, inFlight int64, perSec float64, method string, least int64, most time.Duration) int64 {
	var s statuses
	var flying, dropped atomic.Int64
	begin, granted := time.Now(), 0.
	full := func(int, *http.Request) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if granted == 0 {
			begin = time.Now()
		}
		if inFlight > 0 && flying.Load() >= inFlight || perSec > 0 && granted > 10+time.Since(begin).Seconds()*perSec {
			dropped.Add(1)
			return true
		}
		granted++
		flying.Add(1)
		return false
	}
	work := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer flying.Add(-1)
		s.note(http.StatusOK, r.URL.Path)
		time.Sleep(80 * ms)
	}))
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(5*ms), sluicetest.When(full, drop), work), func(w *world) {
		good, took := w.callsOf(400, 32, method)
		t.Logf("%d of 400, %d dropped, %v", good, dropped.Load(), took)
		if good < least || took > most {
			t.Errorf("want at least %d, within %v", least, most)
		}
		for path, n := range s.paths {
			if n > 1 {
				t.Errorf("%s was served %d times", path, n)
			}
		}
	})
	return dropped.Load()
}

// Pages that are forbidden are no refusals: they are asked for once, the caller gets them as they
// came, and a report shows no failure. Among many of them some are asked for again, until it is
// known that they have nothing to do with the pace.
func TestTransport_UnclearIsPassedOn(t *testing.T) {
	forbidden := sluicetest.When(func(_ int, r *http.Request) bool {
		var i uint64
		fmt.Sscanf(r.URL.Path, "/%d", &i)
		return i*2654435761%100 < 40
	}, sluicetest.Reply(403, "not for you"))
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(20*ms), forbidden), func(w *world) {
		ctx, report := sluicehttp.WithReport(bg)
		status, body, err := w.get(ctx, "http://api.test/100")
		if status != 403 || body != "not for you" || err != nil {
			t.Errorf("%d %q, %v", status, body, err)
		}
		if hop := report.Last(); len(hop.Attempts) != 1 || hop.Attempts[0].Err != nil || hop.Why != nil {
			t.Errorf("the report: %+v", hop)
		}
		good, took := w.callsOf(2000, 32, "GET")
		if extra := len(w.srv.Record().Requests) - 2001; good != 1200 || extra > 60 { // 17 in most runs
			t.Errorf("%d pages, %d requests too many", good, extra)
		}
		if took > time.Minute { // 1.3 s are possible; then nothing is believed for more than a minute
			t.Errorf("it took %v", took)
		}
		_, took = w.callsOf(2000, 32, "GET")
		if took > 1300*ms {
			t.Errorf("afterwards it took %v", took)
		}
	})
}

// A server that says that there are too many calls at the same time: the number is known from the first call that is
// throttled after the first burst. Otherwise calls that take as long as these were paced by a rate.
func TestTransport_SaysThatItCountsCallsInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		places  int64
		work    time.Duration
		workers int
		says    string
	}{
		"Google":   {10, 1500 * ms, 64, `{"error":{"code":429,"message":"Exhausted concurrent requests quota.","status":"RESOURCE_EXHAUSTED"}}`},
		"Mixpanel": {5, 3 * time.Second, 16, `{"error":"Query rate limit exceeded. Maximum of 5 concurrent queries allowed"}`},
		"a text":   {4, 250 * ms, 16, "too many requests are processed at the same time"},
	} {
		t.Run(name, func(t *testing.T) {
			var flying, throttled atomic.Int64
			full := func(int, *http.Request) bool {
				if flying.Add(1) <= c.places {
					return false
				}
				flying.Add(-1)
				throttled.Add(1)
				return true
			}
			var k atomic.Int64
			work := sluicetest.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				defer flying.Add(-1)
				time.Sleep(c.work * time.Duration(7+k.Add(1)*5%7) / 10) // 0.7 to 1.3 times
			}))
			no := sluicetest.Reply(429, c.says, "Content-Type: application/json")
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(50*ms), sluicetest.When(full, no), work), func(w *world) {
				const calls = 200
				good, took := w.callsOf(calls, c.workers, "GET")
				ideal := (c.work + 50*ms) * calls / time.Duration(c.places)
				t.Logf("%d, %d throttled, %v of %v", good, throttled.Load(), took, ideal)
				if most := c.workers + 8; good != calls || int(throttled.Load()) > most || took > ideal*11/10 {
					t.Errorf("want all, at most %d throttled, within %v", most, ideal*11/10)
				}
			})
		})
	}
}
