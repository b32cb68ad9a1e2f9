package sluicetest_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/sluicetest"
)

func Example() {
	srv := sluicetest.NewServer(
		sluicetest.On(2, sluicetest.Status(503, "Retry-After: 1")),
		sluicetest.Enforce(sluicetest.Limit{Quota: 2, Window: time.Hour, Family: sluicetest.Draft7}),
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
	fmt.Println(srv.Record().Refused(), "refused")
	// Output:
	// HTTP/2.0 200 "2;w=3600"
	// HTTP/2.0 503 ""
	// HTTP/2.0 200 "2;w=3600"
	// HTTP/2.0 429 "2;w=3600"
	// 1 refused
}

func ExampleRecord_NoneRefused() {
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
	fmt.Println(q.Number, q.Method, q.Path, q.Status, q.Refused)
	fmt.Println(srv.Record().NoneRefused() != nil)
	// Output:
	// 2 HEAD /items 429 core quota
	// true
}

func ExampleServer_OnDial() {
	srv := sluicetest.NewServer()
	defer srv.Close()
	srv.OnDial(func(n int, addr string) sluicetest.Dial {
		if n == 1 {
			return sluicetest.Refuse
		}
		return sluicetest.Connect
	})
	for range 2 {
		resp, err := srv.Client().Get("http://api.example.com")
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s", body)
	}
	// Output:
	// Get "http://api.example.com": dial tcp api.example.com:80: connect: connection refused
	// ok
}

// A handler of one's own, behind a fault.
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

// A whole test: a client that keeps within 1 per second and comes back when it
// is told to is tried for an hour, during which the server is away for a minute.
func TestExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(
			sluicetest.During(20*time.Minute, 21*time.Minute, sluicetest.Status(503, "Retry-After: 60")),
			sluicetest.Enforce(sluicetest.Limit{Count: 1, Per: time.Second, Family: sluicetest.RetryAfter}),
		)
		defer srv.Close()

		client, pace := srv.Client(), pacer.New(1, time.Second)
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
			rec.Evenly(time.Second), rec.AtOnce(1), rec.NoneRefused(), rec.Obeyed(), rec.AllRead(),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A long run is judged in parts, and each part's record dropped.
func ExampleServer_Forget() {
	srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Quota: 2, Window: time.Hour}))
	defer srv.Close()
	client := srv.Client()
	for range 2 {
		for range 2 {
			resp, err := client.Get("http://api.example.com/")
			if err != nil {
				panic(err)
			}
			resp.Body.Close()
		}
		part := srv.Forget()
		fmt.Println(len(part.Requests), part.NoneRefused() == nil)
	}
	// Output:
	// 2 true
	// 2 false
}
