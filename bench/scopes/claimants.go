package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// # Claimants: users and a batch at one rate
//
// A batch has sent many requests to a server of 10/s, and a user sends one now and then, for a minute.

const (
	perSecond = 10
	minute    = time.Minute
)

type userKey struct{}

// byUser puts users before a batch.
func byUser(r *http.Request) sluice.Claimant {
	if r.Context().Value(userKey{}) != nil {
		return sluice.Claimant{Class: "users", ClassWeight: 15}
	}
	return sluice.Claimant{Class: "batch"}
}

// waitsOfUsers returns how long users waited, in order, and how many requests of the batch left in a
// minute.
func waitsOfUsers(batch int, claimant func(*http.Request) sluice.Claimant) (waits []time.Duration, left int) {
	var mu sync.Mutex
	base := roundTrip(func(r *http.Request) *http.Response {
		if r.Context().Value(userKey{}) == nil {
			mu.Lock()
			left++
			mu.Unlock()
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
	})
	cfg := sluicehttp.Config{Claimant: claimant}
	cfg.Gate.Rate = sluice.Rate{Count: perSecond, Per: time.Second}
	client := &http.Client{Transport: with(cfg)(base)}
	ctx, cancel := context.WithTimeout(context.Background(), minute)
	defer cancel()
	request := func(ctx context.Context) {
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil); err == nil {
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	}
	batched, stop := context.WithCancel(context.Background()) // without a deadline: they wait
	var all sync.WaitGroup
	for range batch {
		all.Go(func() { request(batched) })
	}
	synctest.Wait()
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(time.Duration(137+i*i%211) * time.Millisecond)
		came := time.Now()
		request(context.WithValue(context.Background(), userKey{}, true))
		waits = append(waits, time.Since(came))
	}
	stop()
	all.Wait()
	slices.Sort(waits)
	return waits, left
}

type roundTrip func(r *http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// # An account: 50 tenants, a limit that is not known
//
// Each tenant has two workers for 10 minutes, at a server that serves 50 calls per second of all together.

const (
	tenants  = 50
	limit    = 50 // per second
	accounts = 10 * time.Minute
)

// An account is what a server has served.
type account struct {
	told time.Duration // the wait that it names, 0 for none

	mu             sync.Mutex
	full           time.Time // when the bucket is full again
	served         [tenants]int
	calls, refused int
}

var errFull = errors.New("429")

func (a *account) call(tenant int) error {
	time.Sleep(20 * time.Millisecond)
	defer time.Sleep(20 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	now := time.Now()
	if a.full.Sub(now) > time.Second {
		a.refused++
		return sluice.ThrottledFor(errFull, a.told)
	}
	if a.full.Before(now) {
		a.full = now
	}
	a.full = a.full.Add(time.Second / limit)
	a.served[tenant]++
	return nil
}

// play lets the tenants make calls, each through the gate that gates returns for it.
func (a *account) play(gates func(tenant int) *sluice.Gate) {
	ctx, cancel := context.WithTimeout(context.Background(), accounts)
	defer cancel()
	var all sync.WaitGroup
	for i := range tenants {
		g := gates(i)
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					if sluice.Retry(ctx, g, func(context.Context) error { return a.call(i) }, sluice.RetryPolicy{MaxServerWait: time.Hour}) != nil {
						time.Sleep(time.Second)
					}
				}
			})
		}
	}
	all.Wait()
}

// row returns what was served, of the limit, and refused, of the calls, in percent, and Jain's index.
func (a *account) row() string {
	sum, squares := 0., 0.
	for _, n := range a.served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return fmt.Sprintf("%.1f %% | %.2f %% | %.3f", 100*sum/(limit*accounts.Seconds()), 100*float64(a.refused)/float64(a.calls), sum*sum/squares/tenants)
}

func mustGate(cfg sluice.Config) *sluice.Gate {
	g, err := sluice.New(cfg)
	if err != nil {
		panic(err)
	}
	return g
}

// claimants prints the tables of users and accounts.
func claimants(t *testing.T, out io.Writer, only string) {
	if chosen("users", only) {
		fmt.Fprintln(out, "\n| users and a batch at 10/s | median wait | p99 | longest | requests of the batch in a minute |")
		fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: |")
		for _, batch := range []int{0, 600, 100_000} {
			for _, name := range []string{"one queue", "claimants"} {
				claimant := byUser
				if name == "one queue" {
					claimant = nil
				}
				if claimant == nil && batch > 600 {
					continue // no user's call would start
				}
				synctest.Test(t, func(*testing.T) {
					w, left := waitsOfUsers(batch, claimant)
					fmt.Fprintf(out, "| %d wait, %s | %v | %v | %v | %d |\n", batch, name, w[len(w)/2], w[len(w)*99/100], w[len(w)-1], left)
				})
			}
		}
	}
	if !chosen("accounts", only) {
		return
	}
	fmt.Fprintln(out, "\n| 50 tenants, unknown limit | served of the limit | refused | Jain |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: |")
	for _, told := range []time.Duration{0, time.Second, 30 * time.Second} {
		for _, how := range []string{"a gate each", "under one parent", "one gate"} {
			synctest.Test(t, func(*testing.T) {
				a, parent := &account{told: told}, mustGate(sluice.Config{Name: "account", Adaptive: sluice.Adaptive{Children: true}})
				a.play(func(int) *sluice.Gate {
					switch how {
					case "a gate each":
						return mustGate(sluice.Config{})
					case "under one parent":
						return mustGate(sluice.Config{Parent: parent})
					}
					return parent
				})
				fmt.Fprintf(out, "| Retry-After: %v, %s | %s |\n", told, how, a.row())
			})
		}
	}
}
