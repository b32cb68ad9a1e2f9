package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// begin rate
func newPacedClient() (*http.Client, error) {
	return sluicehttp.NewClient(sluicehttp.Config{
		Rate:        sluice.PerSecond(10), // for each host: one every 100 ms
		Concurrency: 8,                    // in flight
	})
}

// end rate

// begin call
// One gate for each API account: two gates would allow twice the rate.
var userGate = sluice.Must(sluice.New(sluice.Config{Rate: sluice.PerSecond(100), Concurrency: 8}))

// userName returns the result of query, which is called again if it fails.
func userName(ctx context.Context, id int, query func(ctx context.Context, id int) (string, error)) (string, error) {
	return sluice.RetryValue(ctx, userGate, func(ctx context.Context) (string, error) {
		return query(ctx, id) // an error wrapped by sluice.ThrottledFor pauses all callers of the gate
	})
}

// end call

func TestREADME(t *testing.T) {
	const pause = 50 * time.Millisecond
	first, began := true, time.Now()
	name, err := userName(t.Context(), 7, func(ctx context.Context, id int) (string, error) {
		if first {
			first = false
			return "", sluice.ThrottledFor(errors.New("busy"), pause)
		}
		return fmt.Sprint("user ", id), nil
	})
	if err != nil || name != "user 7" || time.Since(began) < pause {
		t.Errorf("%q, %v after %v", name, err, time.Since(began))
	}
}

// Both clients work, and the second one has its rate.
func TestREADME_Clients(t *testing.T) {
	for name, c := range map[string]struct {
		make  func() (*http.Client, error)
		takes time.Duration
	}{"without a rate": {newClient, 0}, "with one": {newPacedClient, 100 * time.Millisecond}} {
		server(t, func(ctx context.Context, base http.RoundTripper) {
			defer func(before http.RoundTripper) { http.DefaultTransport = before }(http.DefaultTransport)
			http.DefaultTransport = base
			client, err := c.make()
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for range 2 {
				resp, err := client.Get("http://a.test/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			if took := time.Since(began); took != c.takes {
				t.Errorf("%s: two requests took %v, want %v", name, took, c.takes)
			}
		})
	}
}
