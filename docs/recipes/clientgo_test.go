package recipes

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func wrapped(config *rest.Config) (*rest.Config, error) {
	// begin client-go
	rate := sluice.Rate{Count: 50, Per: time.Second, Burst: 100}
	all, err := sluice.New(sluice.Config{Rate: rate}) // of all clients that are made from config
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limiter of client-go in addition
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return limits.Must(sluicehttp.New(base, sluicehttp.Config{
			Gate:             sluice.Config{Rate: rate, Parent: all},
			ReleaseAtHeaders: true, // a watch does not end
		}))
	})
	// end client-go
	return config, nil
}

func clientgo(t *testing.T, base http.RoundTripper) *rest.Config {
	config, err := wrapped(&rest.Config{Host: "https://kubernetes.test", Transport: base})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// begin client-go, a limiter
// A limiter is a pacer as a flowcontrol.RateLimiter; its Wait is that of the pacer.
type limiter struct{ *pacer.Pacer }

func (l limiter) TryAccept() bool { return l.TryAcquire(1) }
func (l limiter) Accept()         { _ = l.Acquire(context.Background(), 1) }
func (l limiter) QPS() float32    { return float32(1 / l.Interval().Seconds()) }
func (l limiter) Stop()           {}

// end client-go, a limiter

func withLimiter(config *rest.Config) error {
	// begin client-go, use of the limiter
	p, err := pacer.New(limits.Rate{Count: 50, Per: time.Second})
	if err != nil {
		return err
	}
	config.RateLimiter = limiter{p} // can be shared by several configs
	// end client-go, use of the limiter
	return nil
}

var _ flowcontrol.RateLimiter = limiter{}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

const (
	podList  = `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}`
	podAdded = `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}}` + "\n"
	jsonType = "Content-Type: application/json"
)

func listPods(ctx context.Context, client dynamic.Interface) error {
	_, err := client.Resource(pods).Namespace("default").List(ctx, metav1.ListOptions{})
	return err
}

func TestClientGo(t *testing.T) {
	limit := sluicetest.Limit{Count: 50, Per: time.Second, Burst: 100}
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := dynamic.NewForConfig(clientgo(t, base))
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 200, func() error { return listPods(ctx, client) })
	}, sluicetest.Enforce(limit), sluicetest.On(20, sluicetest.Status(429, "Retry-After: 10")), sluicetest.Reply(200, podList, jsonType))
	// The transport alone repeats the throttled one; all that follow wait.
	promised{ok: 200, failed: 1}.check(t, seen)
	took(t, seen, 10*time.Second, 15*time.Second)
}

// The clients that are made from one config share its rate.
func TestClientGo_TwoClients(t *testing.T) {
	limit := sluicetest.Limit{Count: 50, Per: time.Second, Burst: 100}
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		config := clientgo(t, base)
		parallel(t, 2, func() error {
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return err
			}
			parallel(t, 200, func() error { return listPods(ctx, client) })
			return nil
		})
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, podList, jsonType))
	promised{ok: 400}.check(t, seen)
}

// Watches do not end, and 20 of them leave room for other calls.
func TestClientGo_Watch(t *testing.T) {
	watched := sluicetest.When(func(_ int, r *http.Request) bool { return r.URL.Query().Get("watch") == "true" },
		sluicetest.Stall(int64(len(podAdded)), limits.Never), sluicetest.Reply(200, podAdded+" ", jsonType))
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := dynamic.NewForConfig(clientgo(t, base))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			watch, err := client.Resource(pods).Namespace("default").Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			if event := <-watch.ResultChan(); event.Object == nil {
				t.Errorf("%+v", event)
			}
		}
		parallel(t, 20, func() error { return listPods(ctx, client) })
	}, watched, sluicetest.Reply(200, podList, jsonType))
	promised{ok: 40}.check(t, seen)
}

// Here client-go repeats a throttled request itself, up to 10 times, and the limiter paces
// its retries, too. Other callers do not wait with it.
func TestClientGo_Limiter(t *testing.T) {
	limit := sluicetest.Limit{Count: 50, Per: time.Second}
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		config := &rest.Config{Host: "https://kubernetes.test", Transport: base}
		if err := withLimiter(config); err != nil {
			t.Fatal(err)
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 101, func() error { return listPods(ctx, client) })
	}, sluicetest.Enforce(limit), sluicetest.On(20, sluicetest.Status(429, "Retry-After: 10")), sluicetest.Reply(200, podList, jsonType))
	if err := seen.CheckSpacing(20 * time.Millisecond); err != nil {
		t.Error(err)
	}
	if n := len(seen.Requests); n != 102 || seen.Throttled() != 0 {
		t.Errorf("%d requests, %d refused", n, seen.Throttled())
	}
}

func TestClientGo_LimiterItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := new(rest.Config)
		if err := withLimiter(config); err != nil {
			t.Fatal(err)
		}
		l, began := config.RateLimiter, time.Now()
		l.Accept()
		if l.TryAccept() || l.QPS() != 50 {
			t.Errorf("a second call at once, or %v per second", l.QPS())
		}
		l.Accept()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := l.Wait(t.Context()); err != nil || time.Since(began) != 40*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
