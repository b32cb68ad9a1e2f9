package sluicetest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// streams answers with events over d, and sends how many were sent.
func streams(d time.Duration, sent chan<- int, events ...string) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		defer func() { sent <- n }()
		n = sluicetest.Stream(w, r, d, events...)
	}))
}

// The header arrives before the first event, and each event at its time.
func TestStream_Instants(t *testing.T) {
	everyWay(t, func(t way) {
		sent := make(chan int, 1)
		limit := sluicetest.Limit{Name: "tokens", Count: 1, Per: time.Second, Burst: 9, HeaderStyle: sluicetest.OpenAI}
		_, c := t.serve(sluicetest.Enforce(limit),
			streams(10*time.Second, sent, "data: 1", "event: x\ndata: 2", "data: [DONE]"))
		start := time.Now()
		resp, err := c.Get(t.scheme + "://a.test")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if d := time.Since(start); d != 0 || resp.Header.Get("X-RateLimit-Remaining-Tokens") != "8" || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("after %v %v", d, resp.Header)
		}
		var got []string
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if lines.Text() != "" {
				got = append(got, fmt.Sprint(time.Since(start), " ", lines.Text()))
			}
		}
		want := []string{"3.333333333s data: 1", "6.666666666s event: x", "6.666666666s data: 2", "10s data: [DONE]"}
		if !slices.Equal(got, want) || lines.Err() != nil {
			t.Errorf("%q, %v; want %q", got, lines.Err(), want)
		}
		if n := <-sent; n != 3 {
			t.Errorf("%d sent", n)
		}
	})
}

func TestStream_GivenUp(t *testing.T) {
	everyWay(t, func(t way) {
		sent := make(chan int, 1)
		srv, c := t.serve(streams(4*time.Second, sent, "data: 1", "data: 2", "data: 3", "data: 4"))
		ctx, cancel := context.WithTimeout(t.Context(), 2500*ms)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", t.scheme+"://a.test", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "data: 1\n\ndata: 2\n\n" {
			t.Errorf("%q, %v", b, err)
		}
		if n := <-sent; n != 2 {
			t.Errorf("%d sent, want 2", n)
		}
		synctest.Wait()
		if q := srv.Record().Requests[0]; !q.GaveUp || q.Ended != 2500*ms {
			t.Errorf("%+v", q)
		}
	})
}

// Over TCP the client has the header while the events are an hour away, and the server
// notices a client that gives up, and a Close.
func TestStream_TCP(t *testing.T) {
	for _, end := range []string{"client", "server", "stream"} {
		t.Run(end, func(t *testing.T) {
			sent, d := make(chan int, 1), time.Hour
			if end == "stream" {
				d = ms
			}
			srv := sluicetest.NewServer(streams(d, sent, "data: 1", "data: 2"))
			defer srv.Close()
			tcp := httptest.NewServer(srv)
			defer tcp.Close()
			resp, err := tcp.Client().Get(tcp.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			want := 0
			switch end {
			case "client":
				resp.Body.Close()
			case "server":
				srv.Close()
			case "stream":
				want = 2
				if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data: 1\n\ndata: 2\n\n" {
					t.Errorf("%q, %v", b, err)
				}
			}
			if n := <-sent; n != want {
				t.Errorf("%d sent, want %d", n, want)
			}
		})
	}
}

func TestStream_NoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, start := make(chan int, 1), time.Now()
		srv := sluicetest.NewServer(streams(time.Hour, sent))
		defer srv.Close()
		if got := get(srv.Client(), "http://a.test"); got != "200 " || <-sent != 0 || time.Since(start) != 0 {
			t.Errorf("%s after %v", got, time.Since(start))
		}
	})
}

// A stream holds its place until it ends, and settles for what was sent.
func TestStream_Settles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent := 0
			defer func() { sluicetest.Settle(r, "tokens", int64(sent)) }()
			sent = sluicetest.Stream(w, r, 4*time.Second, "data: 1", "data: 2", "data: 3", "data: 4")
		})
		srv := sluicetest.NewServer(
			sluicetest.Enforce(
				sluicetest.Limit{Name: "places", Concurrency: 1},
				sluicetest.Limit{Name: "tokens", Quota: 10, Window: time.Hour, HeaderStyle: sluicetest.OpenAI,
					Cost: func(*http.Request, []byte) int64 { return 8 }}),
			sluicetest.Handler(app))
		defer srv.Close()
		c, start := srv.Client(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2500*ms)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://a.test", nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if q := postAt(t, c, 2500*ms-1, start, ""); q.StatusCode != 429 {
			t.Errorf("a second stream beside the first: %d", q.StatusCode)
		}
		// 2 of the 8 were used, and 8 more are reserved.
		if q := postAt(t, c, 2501*ms, start, ""); q.StatusCode != 200 || q.Header.Get("X-RateLimit-Remaining-Tokens") != "0" {
			t.Errorf("%d %v", q.StatusCode, q.Header)
		}
		if refused := srv.Record().Requests[1].ThrottledBy; refused != "tokens quota" {
			t.Errorf("refused by %q", refused)
		}
	})
}

func ExampleStream() {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sluicetest.Stream(w, r, 4*time.Millisecond, `data: {"text":"Hi"}`, `data: [DONE]`)
	})
	srv := sluicetest.NewServer(sluicetest.Handler(app))
	defer srv.Close()
	resp, err := srv.Client().Get("https://api.example.com/stream")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	events, _ := io.ReadAll(resp.Body)
	fmt.Print(string(events))
	// Output:
	// data: {"text":"Hi"}
	//
	// data: [DONE]
}
