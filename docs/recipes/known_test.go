package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/window"
)

func twoLimits() (*sluice.Gate, error) {
	// begin two limits
	hourly, err := window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour})
	if err != nil {
		return nil, err
	}
	return sluice.New(sluice.Config{
		Name:        "api",
		Concurrency: 4,
		Rate:        sluice.PerSecond(10),
		Limits:      []sluice.Limit{{Name: "hourly", Limiter: hourly}},
	})
	// end two limits
}

func inTwoLimits(ctx context.Context, gate *sluice.Gate, call func(context.Context) error) error {
	// begin two limits, a call
	err := sluice.Retry(ctx, gate, call, sluice.RetryPolicy{MaxElapsed: 2 * time.Hour})
	// end two limits, a call
	return err
}

// 1,200 calls: ten per second, then the hour, and never more than 4 in flight.
func TestTwoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := twoLimits()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		now, most := 0, 0
		var all sync.WaitGroup
		for i := range 1200 {
			all.Go(func() {
				failed := false
				if err := inTwoLimits(t.Context(), gate, func(context.Context) error {
					mu.Lock()
					starts = append(starts, time.Since(began))
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Duration(100+i%7*50) * time.Millisecond)
					mu.Lock()
					now--
					mu.Unlock()
					if i%50 == 0 && !failed {
						failed = true
						return errors.New("now and then")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(starts) != 1224 || most > 4 {
			t.Fatalf("%d attempts, at most %d in flight, want 1224 and 4", len(starts), most)
		}
		if starts[999] > 2*time.Minute || starts[1000] < time.Hour {
			t.Errorf("the 1,000th after %v and the next after %v, want it after an hour", starts[999], starts[1000])
		}
	})
}

// begin tenants, known
// tenantClient sends 30 requests per second for each tenant, and 100 for all together.
func tenantClient(base http.RoundTripper, tenantOf func(*http.Request) string) (*http.Client, error) {
	all, err := sluice.New(sluice.Config{Name: "all", Rate: sluice.PerSecond(100)})
	if err != nil {
		return nil, err
	}
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Key:  tenantOf,
		Gate: sluice.Config{Rate: sluice.PerSecond(30), Parent: all},
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// end tenants, known

type served func(*http.Request)

func (s served) RoundTrip(req *http.Request) (*http.Response, error) {
	s(req)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// Of two tenants each has its own limit; of six, they share that of all.
func TestTenants_Known(t *testing.T) {
	for tenants, want := range map[int]int64{2: 300, 6: 166} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			counts := make([]atomic.Int64, tenants)
			client, err := tenantClient(served(func(req *http.Request) {
				var i int
				_, _ = fmt.Sscan(req.Header.Get("X-Tenant"), &i)
				counts[i].Add(1)
			}), func(req *http.Request) string { return req.Header.Get("X-Tenant") })
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range tenants {
				for range 4 {
					all.Go(func() {
						for ctx.Err() == nil {
							req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://a.test/", nil)
							if err != nil {
								t.Error(err)
								return
							}
							req.Header.Set("X-Tenant", fmt.Sprint(i))
							resp, err := client.Do(req)
							if err != nil {
								return // the end would come before its turn
							}
							_ = resp.Body.Close()
						}
					})
				}
			}
			all.Wait()
			for i := range counts {
				if got := counts[i].Load(); got < want-3 || got > want+3 {
					t.Errorf("tenant %d of %d: %d in 10 s, want %d", i, tenants, got, want)
				}
			}
		})
	}
}
