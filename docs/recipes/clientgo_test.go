package recipes

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func wrapped(config *rest.Config) *rest.Config {
	// begin client-go
	config.QPS = -1 // no limiter of client-go in addition
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		transport, err := sluicehttp.New(base, sluicehttp.Config{
			Gate:             sluice.Config{Rate: sluice.Rate{Count: 50, Per: time.Second, Burst: 100}},
			ReleaseAtHeaders: true, // a watch does not end
		})
		if err != nil {
			panic(err)
		}
		return transport
	})
	// end client-go
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

var _ flowcontrol.RateLimiter = limiter{}

func TestClientGo(t *testing.T) {
	limit := sluicetest.Limit{Count: 50, Per: time.Second, Burst: 100}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := rest.HTTPClientFor(wrapped(&rest.Config{Host: "https://kubernetes.test", Transport: base}))
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 200, func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kubernetes.test/api/v1/pods", nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, "{}"))
}

func TestClientGoLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter{limits.Must(pacer.New(limits.Rate{Count: 50, Per: time.Second}, pacer.Config{}))}
		began := time.Now()
		for range 101 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 2*time.Second || l.QPS() != 50 || l.TryAccept() {
			t.Errorf("101 calls took %v at %v", took, l.QPS())
		}
	})
}
