package main

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// newTestTransport returns the transport of one more worker.
func newTestTransport(t *testing.T, redis string) *sluicehttp.Transport {
	t.Helper()
	client := newRedis(redis)
	t.Cleanup(func() { _ = client.Close() })
	tr, err := newTransport(options{name: "test", goroutines: 1, rate: sluice.Rate{Count: 1000, Per: time.Second}, catchUp: catchUp}, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// A worker that got no 429 waits as long as the one that did.
func TestPauseAll(t *testing.T) {
	t.Parallel()
	addr, closeRedis, err := newMiniredis()
	if err != nil {
		t.Fatal(err)
	}
	defer closeRedis()
	a, err := newAPI(2, sluice.Rate{Count: 1000, Per: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	one, other := newTestTransport(t, addr), newTestTransport(t, addr)
	a.throttleOne()
	for _, tr := range []*sluicehttp.Transport{one, other} {
		ctx := sluicehttp.WithOverrides(t.Context(), sluicehttp.Overrides{NoRetry: true})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/items/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	rec := a.Record()
	if len(rec.Requests) != 2 || rec.Requests[0].Status != http.StatusTooManyRequests || rec.Requests[1].Status != http.StatusOK {
		t.Fatalf("the API got %v", rec.Requests)
	}
	if err := rec.CheckRetryAfter(); err != nil {
		t.Error(err)
	}
}

// -catch-up is what the pacer may catch up on: as its burst, and as its lateness.
func TestPace(t *testing.T) {
	for args, want := range map[string]struct {
		burst int64
		late  time.Duration
	}{
		"":                            {50, 50 * time.Millisecond},
		"-catch-up 0":                 {1, 5 * time.Millisecond},
		"-catch-up 10ms":              {10, 10 * time.Millisecond},
		"-catch-up 250ms -rate 100/s": {25, 250 * time.Millisecond},
	} {
		o, err := parseOptions("", strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if rate, config := pace(o); rate.Burst != want.burst || config.MaxLateness != want.late {
			t.Errorf("%q: burst %d, late %v, want %+v", args, rate.Burst, config.MaxLateness, want)
		}
	}
}

// Calls wait while the Redis is unavailable, and start when it is back.
func TestPatient(t *testing.T) {
	t.Parallel()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAPI(1, sluice.Rate{Count: 1000, Per: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	tr := newTestTransport(t, "127.0.0.1:"+port)
	done := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: tr}).Post(a.url+"/items/0", "", nil)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	// It has asked when it waits for the limit.
	for waits := false; !waits; runtime.Gosched() {
		for s := range tr.Gates() {
			waits = s.Waiting+s.Pacing > 0
		}
	}
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:" + port); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
