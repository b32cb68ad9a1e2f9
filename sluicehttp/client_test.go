package sluicehttp_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// get sends n requests at the same time and returns the times at which they arrived.
func get(t *testing.T, srv *sluicetest.Server, rt http.RoundTripper, n int) []time.Duration {
	t.Helper()
	done := make(chan error)
	for range n {
		go func() {
			resp, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil))
			if err == nil {
				err = resp.Body.Close()
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return srv.Record().Arrivals()
}

// throughServer makes requests of the default transport go to srv.
func throughServer(t *testing.T, srv *sluicetest.Server) {
	before := http.DefaultTransport
	http.DefaultTransport = srv.Transport()
	t.Cleanup(func() { http.DefaultTransport = before })
}

func TestTransport_Zero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Reply(429, "", "Retry-After: 5")))
		defer srv.Close()
		throughServer(t, srv)
		rt := new(sluicehttp.Transport)
		defer rt.CloseIdleConnections()
		rt.Resume("nobody")
		for range rt.Gates() {
			t.Error("there is a gate before the first request")
		}
		if rt.Unwrap() != http.DefaultTransport {
			t.Errorf("the base is %v", rt.Unwrap())
		}
		at := get(t, srv, rt, 1)
		if len(at) != 2 || at[1] < 5*time.Second {
			t.Errorf("requests at %v, want a second one 5 s later", at)
		}
	})
}

func TestNewClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer()
		defer srv.Close()
		throughServer(t, srv)
		client, err := sluicehttp.NewClient(sluicehttp.Config{Rate: sluice.PerSecond(10)})
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		if client.Timeout != 0 {
			t.Errorf("a Timeout of %v, which includes the queue", client.Timeout)
		}
		for i, at := range get(t, srv, client.Transport, 30) {
			if want := time.Duration(i) * 100 * time.Millisecond; at != want {
				t.Errorf("request %d at %v, want %v", i, at, want)
			}
		}
	})
}

func TestNewClient_RejectsWhatNewRejects(t *testing.T) {
	rate := sluice.PerSecond(1)
	newGate := func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{}) }
	for want, cfg := range map[string]sluicehttp.Config{
		"both Rate and Gate.Rate":               {Rate: rate, Gate: sluice.Config{Rate: rate}},
		"both Concurrency and Gate.Concurrency": {Concurrency: 1, Gate: sluice.Config{Concurrency: 2}},
		"a Rate or":                             {Rate: rate, NewGate: newGate},
		"or a Concurrency with NewGate":         {Concurrency: 1, NewGate: newGate},
		"count must be positive":                {Rate: sluice.PerSecond(-1)},
		"negative concurrency":                  {Concurrency: -1},
	} {
		if client, err := sluicehttp.NewClient(cfg); client != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want an error with %q", client, err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("two configurations did not panic")
		}
	}()
	sluicehttp.New(nil, sluicehttp.Config{}, sluicehttp.Config{})
}

// Rate and Concurrency are those of each key.
func TestConfig_Concurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Delay(time.Second))
		defer srv.Close()
		rt, err := sluicehttp.New(srv.Transport(), sluicehttp.Config{Concurrency: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.CloseIdleConnections()
		get(t, srv, rt, 9)
		if n := srv.Record().MostInFlight(); n != 3 {
			t.Errorf("%d in flight, want 3", n)
		}
	})
}
