package sluicehttp_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A toldLimit is a server with a bucket, or with windows if it has a length of them, that says how long to wait, in
// whole seconds. It counts the requests that are sent although all are to wait.
type toldLimit struct {
	rate, burst float64
	window      time.Duration

	mu           sync.Mutex
	rand         *rand.Rand
	tokens       float64
	last, until  time.Time
	sent, during int
}

func (l *toldLimit) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(l.arrive())
	wait := l.take(time.Now())
	resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: req}
	if wait == 0 {
		time.Sleep(20 * ms)
		return resp, nil
	}
	told := (wait + time.Second - 1) / time.Second
	resp.StatusCode = http.StatusTooManyRequests
	resp.Header.Set("Retry-After", strconv.Itoa(int(told)))
	time.Sleep(3 * ms)
	l.pause(time.Now().Add(told * time.Second))
	return resp, nil
}

// arrive counts a request and returns how long it takes to the server.
func (l *toldLimit) arrive() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent++; time.Now().Before(l.until) {
		l.during++
	}
	return 2*ms + time.Duration(l.rand.Int64N(int64(4*ms)))
}

// take returns how long a request has to wait, 0 if it is accepted.
func (l *toldLimit) take(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.IsZero() {
		l.last, l.tokens = now, l.burst
	}
	next := time.Duration(0)
	if l.window > 0 {
		if n := now.Sub(l.last) / l.window; n > 0 {
			l.last, l.tokens = l.last.Add(n*l.window), l.burst
		}
		next = l.last.Add(l.window).Sub(now)
	} else {
		l.tokens = min(l.burst, l.tokens+l.rate*now.Sub(l.last).Seconds())
		l.last = now
		next = time.Duration((1 - l.tokens) / l.rate * float64(time.Second))
	}
	if l.tokens < 1 {
		return next
	}
	l.tokens--
	return 0
}

func (l *toldLimit) pause(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.until) {
		l.until = until
	}
}

// A server with a limit for all calls that says how long to wait is not thought to throttle some calls for their own
// sake: hardly any request is sent while all are to wait. With 400 servers, from 0.5 to 200 calls per second for 2 to
// 40 workers, it is 18 of 10,000: 4 while calls let others go first, and the rest where a limit that nearly suffices looks
// like a server that throttles at random. None is lost in 60 runs; a call that the server seems to throttle for its
// own sake lost its four attempts there in one run of two, because others went first after each pause.
func TestTransport_ALimitOfAllIsNoBadAddress(t *testing.T) {
	sent, during, lost := 0, 0, int64(0)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		between := func(least, most float64) float64 { return least * math.Pow(most/least, r.Float64()) }
		l := &toldLimit{rand: r, rate: between(.5, 200), burst: math.Floor(between(1, 60))}
		if r.IntN(2) == 0 {
			l.window = time.Duration(between(1, 20)) * time.Second
			l.burst = max(1, math.Floor(l.rate*l.window.Seconds()))
		}
		workers, items := int(between(2, 40)), int64(max(40, min(200, 20*l.rate)))
		inBubble(t, func(t *testing.T) {
			rt := mustTransport(t, l, sluicehttp.Config{
				Key:   func(r *http.Request) string { return r.URL.Host },
				Retry: sluice.RetryPolicy{Attempts: 4},
			})
			var group sync.WaitGroup
			var next, failed atomic.Int64
			for range workers {
				group.Go(func() {
					for n := next.Add(1); n <= items; n = next.Add(1) {
						resp, err := rt.RoundTrip(request(t, bg, http.MethodGet, fmt.Sprint("http://a.test/", n), nil))
						if err != nil || resp.StatusCode != http.StatusOK {
							failed.Add(1)
						}
					}
				})
			}
			group.Wait()
			lost += failed.Load()
		})
		if sent, during = sent+l.sent, during+l.during; testing.Verbose() && l.during > 2 {
			t.Logf("seed %d: %.1f/s, burst %.0f, window %v, %d workers: %d of %d requests during a pause", seed, l.rate, l.burst, l.window, workers, l.during, l.sent)
		}
	}
	t.Logf("%d requests, %d of them during a pause, %d lost", sent, during, lost)
	if during*333 > sent || lost > 1 {
		t.Errorf("%d of %d requests were sent during a pause, want at most three of a thousand; %d are lost", during, sent, lost)
	}
}
