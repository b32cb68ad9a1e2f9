package recipes

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// server runs f in virtual time, with a transport to a server made of layers.
func server(t *testing.T, f func(ctx context.Context, base http.RoundTripper), layers ...sluicetest.Layer) {
	synctest.Test(t, func(t *testing.T) {
		s := sluicetest.NewServer(layers...)
		defer s.Close()
		base := s.Transport()
		defer base.CloseIdleConnections()
		f(t.Context(), base)
	})
}

// parallel calls f n times at once. Each call must succeed.
func parallel(t *testing.T, n int, f func() error) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
