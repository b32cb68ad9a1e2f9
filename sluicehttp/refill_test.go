package sluicehttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// bucket is a header as OpenAI or Anthropic sends it, of a limit of 50 per minute.
func bucket(vendor, unit string, remaining int, reset time.Duration) []string {
	if vendor == "openai" {
		p := "X-RateLimit-%s-" + unit + ": %v"
		return []string{fmt.Sprintf(p, "Limit", 50), fmt.Sprintf(p, "Remaining", remaining), fmt.Sprintf(p, "Reset", reset)}
	}
	p := "Anthropic-RateLimit-" + unit
	at := time.Now().Add(reset).UTC().Format(time.RFC3339)
	return []string{p + "-Limit: 50", fmt.Sprintf("%s-Remaining: %d", p, remaining), p + "-Reset: " + at}
}

// Nothing remains of a bucket that is full in a minute: the next call leaves when
// there is one more request, and at once if it is tokens that are used up. That is
// so for all callers, whatever else the gate has.
func TestTransport_EmptyBucket(t *testing.T) {
	rate := sluice.Rate{Count: 10, Per: time.Second}
	for unit, want := range map[string]time.Duration{"Requests": 1200 * ms, "Tokens": 0, "Input-Tokens": 0, "Output-Tokens": 0} {
		for _, vendor := range []string{"openai", "anthropic"} {
			for name, gate := range map[string]sluice.Config{"no rate": {Concurrency: 1}, "rate": {Rate: rate}} {
				for _, scheme := range []string{"http", "https"} {
					t.Run(fmt.Sprint(unit, "/", vendor, "/", name, "/", scheme), func(t *testing.T) {
						inWorld(t, sluicehttp.Config{}, nil, func(w *world) {
							srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Header(bucket(vendor, unit, 0, time.Minute)...)),
								sluicetest.When(func(n int, _ *http.Request) bool { return n > 1 }, sluicetest.Header(bucket(vendor, unit, 40, 12*time.Second)...)))
							defer srv.Close()
							base := srv.Transport()
							defer base.CloseIdleConnections()
							w.srv, w.client.Transport = srv, mustTransport(t, base, sluicehttp.Config{Gate: gate})
							w.wantGet(scheme+"://a.test/", 200)
							w.wantGet(scheme+"://b.test/", 200) // another gate
							w.wantGet(scheme+"://a.test/", 200)
							if want := max(want, gate.Rate.Interval()); w.now() != want {
								t.Errorf("the next call left after %v, want %v", w.now(), want)
							}
						})
					})
				}
			}
		}
	}
}

// A 429 of an empty bucket without a Retry-After is waited for likewise, and the
// waits double as long as it refuses: it may be a window after all.
func TestTransport_EmptyBucket_RefusedWithoutATime(t *testing.T) {
	refuse := sluicetest.Status(429, bucket("openai", "Requests", 0, 50*time.Second)...)
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.First(4, refuse)), func(w *world) {
		w.wantGet("http://a.test/", 200)
		w.wantCame(0, time.Second, 3*time.Second, 7*time.Second, 15*time.Second)
	})
}

// A refusal for want of tokens does not pause the gate: the call backs off, others
// go on.
func TestTransport_EmptyBucket_TokensWithoutATime(t *testing.T) {
	refuse := sluicetest.Status(429, bucket("openai", "Tokens", 0, time.Minute)...)
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.On(1, refuse)), func(w *world) {
		var wg sync.WaitGroup
		wg.Go(func() { w.wantGet("http://a.test/large", 200) })
		time.Sleep(100 * ms)
		wg.Go(func() { w.wantGet("http://a.test/small", 200) })
		wg.Wait()
		w.wantCame(0, 100*ms, time.Second)
	})
}

// A window in the fields of a bucket is known by its first answers. One that is
// met when nothing remains costs one refusal, which is remembered, and forgotten
// if it is not confirmed.
func TestTransport_EmptyBucket_IsAWindow(t *testing.T) {
	inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, nil, func(w *world) {
		answer := func(status, remaining int, reset time.Duration, more ...string) sluicetest.Layer {
			return sluicetest.Status(status, append(bucket("openai", "Requests", remaining, reset), more...)...)
		}
		srv := sluicetest.NewServer(sluicetest.Script(
			answer(200, 0, 50*time.Second), // one more in 1 s, so it seems
			answer(429, 0, 49*time.Second, "Retry-After: 49"),
			answer(200, 0, 50*time.Second), // 49 s, as the server said
			answer(200, 0, 50*time.Second), // half of that
			answer(200, 0, 50*time.Second),
		))
		defer srv.Close()
		base := srv.Transport()
		defer base.CloseIdleConnections()
		w.srv, w.client.Transport = srv, mustTransport(t, base, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}})
		for range 5 {
			w.wantGet("http://a.test/", 200)
		}
		s := time.Second
		w.wantCame(0, s, 50*s, 99*s, 123*s+500*ms, 135*s+750*ms)
	})
}

// What is spread of a bucket is what remains and what it gets until it is full.
func TestConfig_Spread_Bucket(t *testing.T) {
	answer := sluicetest.Status(200, bucket("openai", "Requests", 10, 48*time.Second)...)
	inWorld(t, sluicehttp.Config{Spread: 1}, layers(answer), func(w *world) {
		w.wantGet("http://a.test/", 200)
		if s := stats(t, w.rt); !s.Spread || s.Rate != (sluice.Rate{Count: 50, Per: 48 * time.Second}) {
			t.Errorf("spread %v, %v", s.Spread, s.Rate)
		}
	})
}

// Names that a server makes up are not kept without bound.
func TestTransport_EmptyBucket_MemoryIsBounded(t *testing.T) {
	var header []string
	for i := range 20 {
		header = append(header, fmt.Sprintf("X-RateLimit-Limit-%d-Requests: 50", i), fmt.Sprintf("X-RateLimit-Remaining-%d-Requests: 9", i), fmt.Sprintf("X-RateLimit-Reset-%d-Requests: 50s", i))
	}
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Status(200, header...)), func(w *world) {
		w.wantGet("http://a.test/", 200)
		if n := w.rt.Refills(); n != 8 {
			t.Errorf("%d buckets are kept", n)
		}
	})
}
