package sluicetest_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicetest"
)

// An hour in which eight workers send 7,200 requests at the rate that two servers
// allow, over HTTP/2, and one burst too many.
func TestServer_AnHour(t *testing.T) {
	before := time.Now()
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(
			sluicetest.Every(100, sluicetest.Stall(1, 100*ms)),
			sluicetest.Enforce(sluicetest.Limit{Count: 1, Per: time.Second, Key: func(r *http.Request) string { return r.Host }, HeaderStyle: sluicetest.GitHub}))
		defer srv.Close()
		c := srv.Client()
		var wg sync.WaitGroup
		for _, host := range []string{"a.test", "b.test"} {
			pace := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Second}))
			for range 4 {
				wg.Go(func() {
					for range 900 {
						if err := pace.Acquire(t.Context(), 1); err != nil {
							t.Error(err)
						}
						if got := get(c, "https://"+host); got != "200 ok" {
							t.Error(got)
						}
					}
				})
			}
		}
		wg.Wait()
		rec := srv.Record()
		for _, host := range []string{"a.test", "b.test"} {
			r := rec.Host(host)
			if err := r.CheckSpacing(time.Second); err != nil {
				t.Error(err)
			}
			if at := r.Arrivals(); len(at) != 3600 || at[3599] != 3599*time.Second {
				t.Errorf("%d requests, the last of them at %v", len(at), at[len(at)-1])
			}
		}
		if n := rec.Throttled(); n != 0 {
			t.Errorf("%d requests refused", n)
		}
		if err := rec.CheckBodies(); err != nil {
			t.Error(err)
		}
		if n := len(rec.Conns); n != 2 {
			t.Errorf("%d connections, want one of each host", n)
		}
		time.Sleep(time.Second)
		if got := get(c, "https://a.test"); got != "200 ok" {
			t.Error(got)
		}
		if got := get(c, "https://a.test"); got != "429 rate exceeded" {
			t.Error(got)
		}
	})
	t.Logf("an hour took %v", time.Since(before).Round(time.Millisecond))
}
