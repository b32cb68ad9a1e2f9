package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// begin users and batch
func usersAndBatch() (users, batch *sluice.Gate, err error) {
	account, err := sluice.New(sluice.Config{Name: "account", Rate: sluice.Rate{Count: 10, Per: time.Second}})
	if err != nil {
		return nil, nil, err
	}
	if users, err = sluice.New(sluice.Config{Name: "users", Parent: account, Weight: 15}); err != nil {
		return nil, nil, err
	}
	batch, err = sluice.New(sluice.Config{Name: "batch", Parent: account}) // a sixteenth, and all that users do not use
	return users, batch, err
}

// end users and batch

// A user does not wait behind a batch of 600 calls, which ends although users come all the time.
func TestUsersAndBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, batch, err := usersAndBatch()
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		defer all.Wait()
		done := make(chan struct{})
		for range 600 {
			all.Go(func() { _ = batch.Wait(context.Background()) })
		}
		all.Go(func() {
			defer close(done)
			for batch.Stats().Admitted < 600 {
				time.Sleep(time.Second)
			}
		})
		for {
			time.Sleep(333 * time.Millisecond)
			came := time.Now()
			if err := users.Wait(t.Context()); err != nil || time.Since(came) > 200*time.Millisecond {
				t.Errorf("a user waited for %v: %v", time.Since(came), err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
}

// begin tenants
// tenants returns a gate for each tenant of one account, whose limit is not known.
func tenants() (*sluice.Keyed[string], error) {
	account, err := sluice.New(sluice.Config{Name: "account", Adaptive: sluice.Adaptive{Children: true}})
	if err != nil {
		return nil, err
	}
	return sluice.NewKeyed(func(tenant string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: tenant, Parent: account})
	})
}

// end tenants

// Twenty tenants get the same, and the account's limit together; few calls are throttled.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates, err := tenants()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		served, refused, bucket := map[string]int{}, 0, time.Time{}
		call := func(tenant string) error {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); bucket.Before(now) {
				bucket = now
			} else if bucket.Sub(now) > time.Second {
				refused++
				return sluice.ThrottledFor(errors.New("429"), time.Second)
			}
			bucket = bucket.Add(20 * time.Millisecond) // 50/s
			served[tenant]++
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range 20 {
			tenant := fmt.Sprint("tenant ", i)
			for range 1 + i%5 {
				all.Go(func() {
					for ctx.Err() == nil {
						_ = gates.Use(tenant, func(gate *sluice.Gate) error {
							return sluice.Retry(ctx, gate, func(context.Context) error {
								time.Sleep(30 * time.Millisecond)
								return call(tenant)
							})
						})
						time.Sleep(time.Millisecond)
					}
				})
			}
		}
		all.Wait()
		sum, least := 0, 1<<30
		for _, n := range served {
			sum, least = sum+n, min(least, n)
		}
		if sum < 600*50*95/100 || least < sum/20*97/100 || refused > sum/40 {
			t.Errorf("%d served, at least %d of each tenant; %d refused", sum, least, refused)
		}
	})
}

// begin claimants
// byUser is a sluicehttp.Config.Claimant; userOf returns the user of a request, "" if there is none.
func byUser(userOf func(context.Context) string) func(req *http.Request) sluice.Claimant {
	return func(req *http.Request) sluice.Claimant {
		if user := userOf(req.Context()); user != "" {
			return sluice.Claimant{Name: user, Class: "users", ClassWeight: 15}
		}
		return sluice.Claimant{Class: "batch"}
	}
}

// end claimants

// A user's request does not wait behind 200 of a batch.
func TestClaimants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer()
		defer srv.Close()
		base := srv.Transport()
		defer base.CloseIdleConnections()
		type user struct{}
		var cfg sluicehttp.Config
		cfg.Gate.Rate = sluice.Rate{Count: 10, Per: time.Second}
		cfg.Claimant = byUser(func(ctx context.Context) string {
			name, _ := ctx.Value(user{}).(string)
			return name
		})
		client := &http.Client{Transport: limits.Must(sluicehttp.New(base, cfg))}
		get := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
		var all sync.WaitGroup
		defer all.Wait()
		for range 200 {
			all.Go(func() {
				if err := get(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		for range 10 {
			time.Sleep(333 * time.Millisecond)
			came := time.Now()
			if err := get(context.WithValue(t.Context(), user{}, "ann")); err != nil || time.Since(came) > 200*time.Millisecond {
				t.Errorf("a user waited for %v: %v", time.Since(came), err)
			}
		}
	})
}
