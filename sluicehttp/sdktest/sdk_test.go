// Package sdktest tries package sluicehttp under the SDKs that people use: each row
// of the table "Retries above" in its package comment is a test here. It is a module
// of its own, so that no user of sluicehttp downloads the SDKs.
package sdktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call makes the n-th call of a batch with an SDK.
type call func(ctx context.Context, n int) error

// A job is a batch of calls by many workers.
type job struct {
	calls, workers int
	server         func() []sluicetest.Layer
	// sdk returns a call of an SDK that sends its requests by client.
	sdk func(t *testing.T, client *http.Client) call
	// through is the configuration of the transport, nil for the SDK alone.
	through *sluicehttp.Config
	http1   bool // and not HTTP/2

	// idempotent says that every request of the job may be repeated.
	idempotent bool
}

// alone returns j without a transport of ours.
func (j job) alone() job {
	j.through = nil
	return j
}

// A tally is what became of a job.
type tally struct {
	ok, requests, refused int
	took                  time.Duration
	why                   map[string]int // of those that failed
	record                sluicetest.Record
}

// String returns one line.
func (y tally) String() string {
	return fmt.Sprintf("%4d ok in %8v, %5d requests, %5d refused", y.ok, y.took.Round(10*time.Millisecond), y.requests, y.refused)
}

// run does j in virtual time and logs its tally as that of name.
func (j job) run(t *testing.T, name string) (y tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(j.server()...)
		defer srv.Close()
		base := srv.Transport()
		base.MaxIdleConnsPerHost = j.workers
		if j.http1 {
			base.ForceAttemptHTTP2 = false
			base.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		defer base.CloseIdleConnections()
		client := &http.Client{Transport: base}
		if j.through != nil {
			cfg := *j.through
			if j.idempotent {
				cfg.Idempotent = func(*http.Request, []byte) bool { return true }
			}
			rt, err := sluicehttp.New(base, cfg)
			if err != nil {
				t.Fatal(err)
			}
			client.Transport = rt
			defer func() {
				rt.Stats(func(key string, s sluicehttp.Stats) bool {
					if s.InFlight != 0 || s.Waiting != 0 {
						t.Errorf("%s: %s: %d in flight, %d wait in the end", name, key, s.InFlight, s.Waiting)
					}
					return true
				})
			}()
		}
		do := j.sdk(t, client)
		began := time.Now()
		work := make(chan int)
		y.why = make(map[string]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range j.workers {
			wg.Go(func() {
				for n := range work {
					err := do(t.Context(), n)
					mu.Lock()
					if err == nil {
						y.ok++
					} else if text := fmt.Sprintf("%.300v", err); len(y.why) < 3 || y.why[text] > 0 {
						y.why[text]++
					}
					mu.Unlock()
				}
			})
		}
		for n := range j.calls {
			work <- n
		}
		close(work)
		wg.Wait()
		r := srv.Record()
		y.took, y.requests, y.refused, y.record = time.Since(began), len(r.Requests), r.Throttled(), r
	})
	t.Logf("%-44s %v", name, y)
	for why, n := range y.why {
		t.Logf("    %d × %s", n, why)
	}
	return y
}

// notWorse fails if through is worse than alone: fewer calls succeed, or the server
// sees more requests for each that does. An SDK that gives up early makes few
// requests, so those alone say nothing.
func notWorse(t *testing.T, through, alone tally) {
	t.Helper()
	if through.ok < alone.ok {
		t.Errorf("%d calls succeed through the transport, %d without it", through.ok, alone.ok)
	}
	if x, y := through.each(), alone.each(); x > y {
		t.Errorf("the server sees %.2f requests for each call that succeeds through the transport, %.2f without it", x, y)
	}
}

// each returns how many requests there were for each call that succeeded.
func (y tally) each() float64 { return float64(y.requests) / float64(max(1, y.ok)) }

// wantAll fails unless all calls succeeded.
func (j job) wantAll(t *testing.T, y tally) {
	t.Helper()
	if y.ok != j.calls {
		t.Errorf("%d of %d calls succeed", y.ok, j.calls)
	}
}

// The comparison must be able to fail.
func TestNotWorseCanFail(t *testing.T) {
	alone := tally{ok: 90, requests: 180}
	for _, c := range []struct {
		through tally
		fails   bool
	}{
		{tally{ok: 90, requests: 180}, false},
		{tally{ok: 100, requests: 200}, false},
		{tally{ok: 100, requests: 201}, true},
		{tally{ok: 89, requests: 89}, true},
		{tally{}, true},
	} {
		rec := new(testing.T)
		notWorse(rec, c.through, alone)
		if rec.Failed() != c.fails {
			t.Errorf("%v beside %v: failed %v", c.through, alone, rec.Failed())
		}
	}
}

// latency delays each request by 10 to 70 ms, half of it before it is looked at:
// a refusal takes time, too.
func latency() sluicetest.Layer {
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			d := 10*time.Millisecond + time.Duration(rng.IntN(60_000))*time.Microsecond
			mu.Unlock()
			time.Sleep(d / 2)
			next.ServeHTTP(w, r)
			time.Sleep(d / 2)
		})
	}
}

// limited enforces limit, and refuses with status and the body of a provider's error.
func limited(limit sluicetest.Limit, status int, contentType, body string) sluicetest.Layer {
	const mark = 799
	limit.Status = mark
	inner := sluicetest.Enforce(limit)
	return func(next http.Handler) http.Handler {
		h := inner(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&refusal{ResponseWriter: w, mark: mark, status: status, contentType: contentType, body: body}, r)
		})
	}
}

// A refusal replaces answers with the status mark.
type refusal struct {
	http.ResponseWriter
	mark, status      int
	contentType, body string
	replaced          bool
}

// WriteHeader implements http.ResponseWriter.
func (w *refusal) WriteHeader(status int) {
	if status != w.mark {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.replaced = true
	w.Header().Set("Content-Type", w.contentType)
	w.ResponseWriter.WriteHeader(w.status)
	_, _ = w.ResponseWriter.Write([]byte(w.body))
}

// Write implements http.ResponseWriter.
func (w *refusal) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
