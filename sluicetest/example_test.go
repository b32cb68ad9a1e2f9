package sluicetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicetest"
)

func Example() {
	srv := sluicetest.NewServer(
		sluicetest.On(2, sluicetest.Status(503, "Retry-After: 1")),
		sluicetest.Enforce(sluicetest.Limit{Quota: 2, Window: time.Hour, HeaderStyle: sluicetest.Draft10}),
	)
	defer srv.Close()
	client := srv.Client()
	for range 4 {
		resp, err := client.Get("https://api.example.com/items")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Printf("%s %d %q\n", resp.Proto, resp.StatusCode, resp.Header.Get("RateLimit-Policy"))
	}
	fmt.Println(srv.Record().Throttled(), "refused")
	// Output:
	// HTTP/2.0 200 "\"default\";q=2;w=3600"
	// HTTP/2.0 503 ""
	// HTTP/2.0 200 "\"default\";q=2;w=3600"
	// HTTP/2.0 429 "\"default\";q=2;w=3600"
	// 1 refused
}

func ExampleRecord() {
	srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Name: "core", Quota: 1, Window: time.Hour}))
	defer srv.Close()
	for range 2 {
		resp, err := srv.Client().Head("http://api.example.com/items")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	q := srv.Record().Requests[1]
	fmt.Println(q.Number, q.Method, q.Path, q.Status, q.ThrottledBy)
	// Output:
	// 2 HEAD /items 429 core quota
}

// A client whose first dial fails.
func ExampleServer_Transport() {
	srv := sluicetest.NewServer()
	defer srv.Close()
	transport, dials := srv.Transport(), 0
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
		}
		return dial(ctx, network, addr)
	}
	client := &http.Client{Transport: srv.Watch(transport)}
	for range 2 {
		resp, err := client.Get("http://api.example.com")
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s", body)
	}
	// Output:
	// Get "http://api.example.com": dial tcp: connection refused
	// ok
}

// A handler behind a fault.
func ExampleHandler() {
	srv := sluicetest.NewServer(
		sluicetest.Path("/items/", sluicetest.CutBody(4)),
		sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "this is %s", r.URL.Path)
		})),
	)
	defer srv.Close()
	for _, path := range []string{"/about", "/items/7"} {
		resp, err := srv.Client().Get("http://api.example.com" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%q %v\n", body, err)
	}
	// Output:
	// "this is /about" <nil>
	// "this" unexpected EOF
}

// A whole test: a client that sends 1 request per second and honors Retry-After runs for
// an hour, during which the server throttles 60 requests.
func TestExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(
			sluicetest.When(func(n int, _ *http.Request) bool { return n > 1200 && n <= 1260 },
				sluicetest.Status(503, "Retry-After: 60")),
			sluicetest.Enforce(sluicetest.Limit{Count: 1, Per: time.Second, HeaderStyle: sluicetest.RetryAfter}),
		)
		defer srv.Close()

		client, pace := srv.Client(), limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Second}))
		for start := time.Now(); time.Since(start) < time.Hour; {
			if err := pace.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			resp, err := client.Get("https://api.example.com/items")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == 503 {
				pace.PauseUntil(time.Now().Add(time.Minute))
			}
		}

		rec := srv.Record()
		for _, err := range []error{
			rec.CheckSpacing(time.Second), rec.CheckRate(60, time.Minute), rec.CheckRetryAfter(), rec.CheckBodies(),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if most, refused := rec.MostInFlight(), rec.Throttled(); most != 1 || refused != 0 {
			t.Errorf("%d requests in flight, %d refused; want 1 and 0", most, refused)
		}
	})
}
