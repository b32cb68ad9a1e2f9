package recipes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/window"
)

// TestTroubleshooting: each error here has the text that troubleshooting.md quotes. An
// ellipsis there stands for any text.
func TestTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("../troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var quoted []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if quote, ok := strings.CutPrefix(line, "    "); ok && !strings.HasPrefix(quote, "go ") {
			quoted = append(quoted, quote)
		}
	}
	if len(quoted) < 8 {
		t.Errorf("%d errors are quoted", len(quoted))
	}
	for _, c := range troubles {
		var err error
		synctest.Test(t, func(t *testing.T) { err = c(t) })
		if err == nil || !slices.ContainsFunc(quoted, func(quote string) bool { return isLike(err.Error(), quote) }) {
			t.Errorf("troubleshooting.md does not quote %q", err)
		}
	}
}

// isLike reports whether text has the parts of a quote, in their order.
func isLike(text, quote string) bool {
	for part := range strings.SplitSeq(quote, "…") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

func gate(t *testing.T, cfg sluice.Config) *sluice.Gate {
	cfg.Name = "api"
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var onePerSecond = sluice.Rate{Count: 1, Per: time.Second}

// get asks a server through a transport, with a client timeout if that is not 0.
func get(t *testing.T, cfg sluicehttp.Config, timeout time.Duration, n int, layers ...sluicetest.Layer) error {
	srv := sluicetest.NewServer(layers...)
	defer srv.Close()
	base := srv.Transport()
	defer base.CloseIdleConnections()
	transport, err := sluicehttp.New(base, cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: timeout}
	for range n {
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return nil
}

var troubles = []func(t *testing.T) error{
	func(t *testing.T) error { // no error, but the line of a slow gate
		g := gate(t, sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 65 {
			go g.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}
		time.Sleep(time.Minute)
		return errors.New(g.String())
	},
	func(t *testing.T) error { // a deadline in the queue
		g := gate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}})
		_ = g.Do(t.Context(), func(context.Context) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return g.Do(ctx, nil)
	},
	func(t *testing.T) error { // a client timeout counts the queue
		return get(t, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}}, 10*time.Second, 2, sluicetest.Status(200))
	},
	func(t *testing.T) error { // the time is up
		g := gate(t, sluice.Config{Concurrency: 1})
		permit, err := g.Acquire(t.Context(), 1)
		if err != nil {
			return err
		}
		defer permit.Release()
		_, err = g.AcquireWithin(t.Context(), 1, time.Second)
		return err
	},
	func(t *testing.T) error { // a Retry-After beyond MaxServerWait
		return sluice.Retry(t.Context(), gate(t, sluice.Config{}), func(context.Context) error {
			return sluice.ThrottledFor(errors.New("429 Too Many Requests"), time.Hour)
		})
	},
	func(t *testing.T) error { // no attempts left
		return sluice.Retry(t.Context(), gate(t, sluice.Config{}), func(context.Context) error {
			return errors.New("502 Bad Gateway")
		})
	},
	func(t *testing.T) error { // a limit for longer than MaxElapsed
		hourly := limits.Must(window.NewSliding(window.Quota{Limit: 1, Window: time.Hour}))
		g := gate(t, sluice.Config{Limits: []sluice.Limit{{Name: "hourly", Limiter: hourly}}})
		return sluice.Retry(t.Context(), g, func(context.Context) error { return errors.New("502 Bad Gateway") })
	},
	func(t *testing.T) error { // an empty budget
		g := gate(t, sluice.Config{})
		for {
			err := sluice.Retry(t.Context(), g, func(context.Context) error { return errors.New("502 Bad Gateway") })
			if errors.Is(err, sluice.ErrBudget) {
				return err
			}
		}
	},
	func(t *testing.T) error { // n is too large
		_, err := gate(t, sluice.Config{Concurrency: 8, ConcurrencyUnit: sluice.Cost}).Acquire(t.Context(), 9)
		return err
	},
	func(t *testing.T) error { // the queue is full
		g := gate(t, sluice.Config{Rate: onePerSecond, MaxWaiting: 1})
		errs := make(chan error, 3)
		for range 3 {
			go func() { errs <- g.Do(t.Context(), func(context.Context) error { return nil }) }()
		}
		return errors.Join(<-errs, <-errs, <-errs)
	},
	func(t *testing.T) error { // too many keys
		return get(t, sluicehttp.Config{
			Gate: sluice.Config{Rate: onePerSecond},
			Key:  func(req *http.Request) string { return time.Now().String() },
			Keys: sluice.KeyedConfig{MaxKeys: 1},
		}, 0, 2, sluicetest.Delay(time.Millisecond), sluicetest.Status(200))
	},
	func(t *testing.T) error { // closed
		g := gate(t, sluice.Config{})
		g.Close()
		_, err := g.Acquire(t.Context(), 1)
		return err
	},
	func(t *testing.T) error { // a bad rate
		_, err := limits.ParseRate("5")
		return err
	},
}
