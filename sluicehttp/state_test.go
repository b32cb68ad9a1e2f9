package sluicehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// Gates are forgotten as soon as they may be, by some while others are about to use
// them: there are never two at once for a host.
func TestTransport_GatesInUseAreKept(t *testing.T) {
	const hosts, callers, each = 3, 8, 3000
	var inFlight [hosts]atomic.Int32
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		host := &inFlight[req.URL.Host[0]-'a']
		if n := host.Add(1); n > 1 {
			t.Errorf("%d in flight at %s, want 1", n, req.URL.Host)
		}
		runtime.Gosched()
		host.Add(-1)
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	var made atomic.Int32
	rt := mustTransport(t, base, sluicehttp.Config{
		NewGate: func(string) (*sluice.Gate, error) {
			made.Add(1)
			return sluice.New(sluice.Config{Concurrency: 1})
		},
		Keys: sluice.KeyedConfig{Idle: -1},
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				host := (c + i/7) % hosts // a few to one, so that it is the most recent
				req, _ := http.NewRequestWithContext(slow{bg}, http.MethodGet, fmt.Sprintf("http://%c.test/", 'a'+host), nil)
				if _, err := rt.RoundTrip(req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() <= hosts {
		t.Error("no gate was ever forgotten")
	}
	t.Logf("%d gates were made", made.Load())
}

// A state that is pinned cannot be retired, and one that is retired cannot be pinned.
func TestState_Pin(t *testing.T) {
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	rt := mustTransport(t, base, sluicehttp.Config{})
	if _, err := rt.RoundTrip(request(t, bg, http.MethodGet, "http://a.test/", nil)); err != nil {
		t.Fatal(err)
	}
	st := sluicehttp.StateOf(rt)
	pinned := 0
	for range 10 * sluicehttp.KeyedEvery {
		if st.Pin() {
			pinned++
			if st.Retire() {
				t.Fatal("retired while it is pinned")
			}
			st.Unpin()
		}
	}
	if want := 10 * (sluicehttp.KeyedEvery - 1); pinned != want {
		t.Errorf("pinned %d times, want %d", pinned, want)
	}
	if !st.Retire() {
		t.Fatal("not retired although no request uses it")
	}
	for range 3 {
		if st.Pin() {
			t.Error("pinned after it was retired")
		}
	}
	st.Revive()
	if !st.Pin() {
		t.Error("not pinned after it was revived")
	}
}

// A slow context lets others run when it is asked whether it is done, and that is
// between choosing a gate and passing it.
type slow struct{ context.Context }

func (slow) Err() error {
	runtime.Gosched()
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
