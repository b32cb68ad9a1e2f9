package sluicetest_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

// On the real scheduler: 16 clients meet every fault and give up now and then,
// and the server is closed in the middle of it. Then nothing is in flight, no
// connection is open, and the limit was never exceeded.
func TestServer_Stress(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			// Counted behind the limit: by the record a request is in flight before
			// the limit has seen it, and that is not the order in which it judges.
			var inside, most atomic.Int64
			count := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n := inside.Add(1)
					defer inside.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					next.ServeHTTP(w, r)
				})
			}
			abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			srv := sluicetest.NewServer(
				sluicetest.Every(7, sluicetest.Cut()), sluicetest.Every(11, sluicetest.Reset()),
				sluicetest.Every(5, sluicetest.Handler(abort)), sluicetest.Every(13, sluicetest.Garbage("x")),
				sluicetest.Every(3, sluicetest.CutBody(1)), sluicetest.Every(17, sluicetest.Delay(limits.Never)),
				sluicetest.Enforce(sluicetest.Limit{Concurrency: 8}), count,
				sluicetest.Delay(100*time.Microsecond))
			defer srv.Close()
			tr := srv.Transport()
			p.set(tr)
			c := &http.Client{Transport: srv.Watch(tr), Timeout: 200 * time.Millisecond}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for ctx.Err() == nil {
						resp, err := c.Post(p.scheme+"://a.test", "", strings.NewReader("x"))
						if err == nil {
							resp.Body.Close()
						}
					}
				})
			}
			for len(srv.Record().Requests) < 100 {
				time.Sleep(time.Millisecond)
			}
			srv.Close()
			cancel()
			wg.Wait()
			rec := srv.Record()
			for _, q := range rec.Requests {
				if q.InFlight {
					t.Errorf("in flight after Close: %+v", q)
				}
			}
			if n := most.Load(); n > 8 || n < 1 {
				t.Errorf("%d in flight within a limit of 8", n)
			}
			if n := openConns(rec); n != 0 {
				t.Errorf("%d connections open", n)
			}
			if err := rec.CheckBodies(); err != nil && strings.Contains(err.Error(), "was not closed") {
				t.Error(err)
			}
		})
	}
}
