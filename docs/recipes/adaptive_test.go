package recipes

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// withUnknown calls f with a client that sends by base.
func withUnknown(base http.RoundTripper, f func(client *http.Client) error) error {
	defer func(before http.RoundTripper) { http.DefaultTransport = before }(http.DefaultTransport)
	http.DefaultTransport = base
	// begin unknown
	transport, err := sluicehttp.New(nil) // nil stands for http.DefaultTransport
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport} // share it; no Timeout, which would include the queue
	// end unknown
	return f(client)
}

// 3,000 requests to a server of 50 per second take a minute. A client that repeats what is
// refused has most of its requests refused; this one only some.
func TestAdaptive_Client(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		next := make(chan struct{}, 3000)
		for range cap(next) {
			next <- struct{}{}
		}
		close(next)
		if err := withUnknown(base, func(client *http.Client) error {
			parallel(t, 32, func() error {
				for range next {
					resp, err := client.Get("http://api.example.com/")
					if err != nil {
						return err
					}
					resp.Body.Close()
					if resp.StatusCode != 200 {
						return errors.New(resp.Status)
					}
				}
				return nil
			})
			return nil
		}); err != nil {
			t.Error(err)
		}
	},
		sluicetest.Enforce(sluicetest.Limit{Count: 50, Per: time.Second}),
		sluicetest.Delay(20*time.Millisecond), sluicetest.Status(200))
	promised{ok: 3000, refused: 150}.check(t, seen)
	took(t, seen, 60*time.Second, 70*time.Second)
}

func gateThatShares(store peers.Store) (*sluice.Gate, error) {
	// begin peers
	// store is a *sluiceredis.Store.
	gate, err := sluice.New(sluice.Config{
		Name:     "api", // gates of one name share a limit
		Adaptive: sluice.Adaptive{Peers: store},
	})
	// end peers
	return gate, err
}

func endSharing(ctx context.Context, gate *sluice.Gate) error {
	// begin peers shutdown
	err := gate.Shutdown(ctx)
	// end peers shutdown
	return err
}

// A gate whose group cannot be reached works as if it had none.
func TestAdaptive_Peers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := gateThatShares(nobody{})
		if err != nil {
			t.Fatal(err)
		}
		if err := gate.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := endSharing(t.Context(), gate); err != nil {
			t.Error(err)
		}
	})
}

type nobody struct{}

func (nobody) Exchange(context.Context, string, peers.Report) (peers.Reply, error) {
	return peers.Reply{}, errors.New("away")
}

var errBusy = errors.New("busy")

// begin refused
var gateOfUnknown = limits.Must(sluice.New(sluice.Config{
	Name: "api",
	// Not needed if functions return sluice.ThrottledFor for refused calls.
	IsThrottle: func(err error) (throttled bool, wait time.Duration) {
		return errors.Is(err, errBusy), 0 // 0: the server asks for no time
	},
}))

// end refused

func acquireAndEnd(ctx context.Context, gate *sluice.Gate, send func(ctx context.Context) error) error {
	// begin ended
	permit, err := gate.Acquire(ctx)
	if err != nil {
		return err
	}
	defer permit.Release()
	err = send(ctx)
	permit.Done(err)
	return err
	// end ended
}

func completeWithTokens(ctx context.Context, gate *sluice.Gate, complete func(ctx context.Context) error) error {
	// begin units
	ctx = sluice.WithCosts(ctx, sluice.Costs{"tokens": 1200})
	err := sluice.Retry(ctx, gate, complete)
	// end units
	return err
}

func saveLearned(gate *sluice.Gate, file string) error {
	// begin snapshot
	return os.WriteFile(file, gate.Snapshot(), 0o600)
	// end snapshot
}

func restoreLearned(gate *sluice.Gate, file string) error {
	// begin restore
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return gate.Restore(data)
	// end restore
}

// A call of several units is retried like any other.
func TestAdaptive_Units(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		err := completeWithTokens(t.Context(), limits.Must(sluice.New(sluice.Config{})), func(context.Context) error {
			if attempts++; attempts == 1 {
				return sluice.ThrottledFor(errBusy, time.Second)
			}
			return nil
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
	})
}

// The line that docs/adaptive.md shows is one that a gate prints.
func TestAdaptive_Gate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := limits.Must(sluice.New(sluice.Config{Name: "api", IsThrottle: func(err error) (bool, time.Duration) {
			return errors.Is(err, errBusy), 0
		}}))
		bucket := limits.Must(leaky.New(sluice.Rate{Count: 50, Per: time.Second, Burst: 10}))
		send := func(context.Context) error {
			time.Sleep(20 * time.Millisecond)
			if bucket.Take(1).Allowed() {
				return nil
			}
			return errBusy
		}
		end := time.Now().Add(time.Minute)
		parallel(t, 64, func() error {
			for time.Now().Before(end) {
				if err := acquireAndEnd(t.Context(), gate, send); err != nil && !errors.Is(err, errBusy) {
					return err
				}
			}
			return nil
		})
		learned := gate.Stats().Learned
		if learned == nil || learned.Phase != "tracking" || learned.Pace < 45 || learned.Pace > 55 || learned.Throttled > 200 {
			t.Fatalf("%v", gate)
		}
		file := filepath.Join(t.TempDir(), "learned")
		if err := saveLearned(gate, file); err != nil {
			t.Fatal(err)
		}
		next := limits.Must(sluice.New(sluice.Config{Name: "api"}))
		if err := restoreLearned(next, file); err != nil {
			t.Fatal(err)
		}
		if got := next.String(); !strings.Contains(got, "learned tracking: 4") || !strings.Contains(got, "restored") {
			t.Errorf("%v", got)
		}
	})
	if err := gateOfUnknown.Do(t.Context(), func(context.Context) error { return errBusy }); err != errBusy {
		t.Error(err)
	}
}
