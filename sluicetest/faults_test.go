package sluicetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestStatus(t *testing.T) {
	everyWay(t, func(t way) {
		_, c := t.serve(sluicetest.Script(
			sluicetest.Status(503, "Retry-After: 120", "x-two: 1", "X-Two: 2"),
			sluicetest.Reply(299, "odd"),
			sluicetest.Status(204),
			sluicetest.Status(307, "Location: "+t.scheme+"://b.test/y"),
		))
		resp, err := c.Get(t.scheme + "://a.test")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 503 || string(body) != "Service Unavailable\n" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
		if h := resp.Header; h.Get("Retry-After") != "120" || !reflect.DeepEqual(h["X-Two"], []string{"1", "2"}) {
			t.Errorf("header %v", h)
		}
		for _, want := range []string{"299 odd", "204 ", "200 ok", "200 ok"} {
			if got := get(c, t.scheme+"://a.test"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

func TestHeader(t *testing.T) {
	everyWay(t, func(t way) {
		_, c := t.serve(sluicetest.Header("X-A: 1", "X-B: 2"), sluicetest.Header("x-a:3"), sluicetest.Status(200, "X-A: 4"))
		for range 2 { // the second is not given those of the first
			resp, err := c.Get(t.scheme + "://a.test")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if h := resp.Header; !reflect.DeepEqual(h["X-A"], []string{"1", "3", "4"}) || h.Get("X-B") != "2" {
				t.Errorf("%v", h)
			}
		}
	})
}

// What was sent before the cut arrives, however the goroutines are scheduled.
func TestCutBody_SendsTheBodyFirst(t *testing.T) {
	everyWay(t, func(t way) {
		_, c := t.serve(sluicetest.CutBody(2))
		for range 100 {
			if got := get(c, t.scheme+"://a.test"); got != `200 "ok" unexpected EOF` {
				t.Fatal(got)
			}
		}
	})
}

// A handler that sends nothing has answered 200, and one that sees that its client
// has gone may return as if nothing were.
func TestHandler_Silent(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
			}
		})))
		if got := get(c, t.scheme+"://a.test"); got != "200 " {
			t.Error(got)
		}
		c.Timeout = time.Minute
		get(c, t.scheme+"://a.test/wait")
		synctest.Wait()
		if q := srv.Record().Requests; q[0].Status != 200 || q[0].GaveUp || !q[1].GaveUp || q[1].Ended != time.Minute {
			t.Errorf("%+v", q)
		}
	})
}

func TestStatus_Redirect(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.Host("a.test", sluicetest.Status(307, "Location: "+t.scheme+"://b.test/y")))
		if got := get(c, t.scheme+"://a.test"); got != "200 ok" {
			t.Error(got)
		}
		if q := srv.Record().Requests; len(q) != 2 || q[1].Host != "b.test" || q[1].Path != "/y" {
			t.Errorf("%v", q)
		}
	})
}

func TestStall(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(
			sluicetest.Delay(3*time.Second), sluicetest.Stall(2, time.Minute), sluicetest.Stall(0, time.Hour),
			sluicetest.Reply(200, "abcd"))
		start := time.Now()
		resp, err := c.Get(t.scheme + "://a.test")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("header after %v", d)
		}
		buf := make([]byte, 2)
		for i, want := range []time.Duration{time.Hour, time.Hour + time.Minute} {
			if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "abcd"[2*i:2*i+2] {
				t.Errorf("read %q, %v", buf, err)
			}
			if d := time.Since(start); d != want+3*time.Second {
				t.Errorf("%q after %v", buf, d)
			}
		}
		if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
		resp.Body.Close()
		if q := srv.Record().Requests[0]; q.Arrived != 0 || q.Ended != time.Hour+time.Minute+3*time.Second || q.Sent != 4 {
			t.Errorf("%+v", q)
		}
		if err := srv.Record().CheckBodies(); err != nil {
			t.Error(err)
		}
	})
}

// The server notices immediately that a client gives up, even if it has not read the body of
// the request.
func TestDelay_ClientGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		layer sluicetest.Layer
	}{
		{"delay", sluicetest.Delay(limits.Never)},
		{"long delay", sluicetest.Delay(time.Hour)},
		{"stall", sluicetest.Stall(1, limits.Never)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyWay(t, func(t way) {
				srv, c := t.serve(tt.layer)
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "POST", t.scheme+"://a.test", strings.NewReader(strings.Repeat("x", 500_000)))
				resp, err := c.Do(r)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				synctest.Wait()
				if q := srv.Record().Requests[0]; q.Ended != 90*time.Second || !q.GaveUp || q.Broken || q.InFlight {
					t.Errorf("%+v", q)
				}
			})
		})
	}
}

func TestServer_CloseEndsWaits(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.Delay(limits.Never))
		done := make(chan string)
		go func() { done <- get(c, t.scheme+"://a.test") }()
		synctest.Wait()
		srv.Close()
		srv.Close()
		if got := <-done; !strings.Contains(got, "connection reset") {
			t.Error(got)
		}
		if got := get(c, t.scheme+"://a.test"); !strings.Contains(got, "connection refused") {
			t.Error(got)
		}
		if r := srv.Record(); openConns(r) != 0 || r.Requests[0].InFlight {
			t.Errorf("%d connections open, %+v", openConns(r), r.Requests[0])
		}
	})
}

func TestCut(t *testing.T) {
	everyWay(t, func(t way) {
		stream := strings.HasSuffix(t.proto, "2.0")
		aborted := "EOF"
		if stream {
			aborted = "stream ID 1; INTERNAL_ERROR"
		}
		for _, tt := range []struct {
			name  string
			layer sluicetest.Layer
			want  string
			sent  int64
			open  int // connections, after that
		}{
			{"cut", sluicetest.Cut(), "EOF", 0, 0},
			{"reset", sluicetest.Reset(), "connection reset by peer", 0, 0},
			{"abort", sluicetest.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })), aborted, 0, map[bool]int{true: 1}[stream]},
			{"cut body", sluicetest.CutBody(2), `200 "ok" unexpected EOF`, 2, 0},
			{"cut body at once", sluicetest.CutBody(0), `200 "" unexpected EOF`, 0, 0},
			{"cut body at its end", sluicetest.CutBody(3), `200 "ok\n" unexpected EOF`, 3, 0},
			{"cut no body", sluicetest.CutBody(4), `200 ok`, 3, 1},
		} {
			srv, c := t.serve(tt.layer)
			// Not a GET: net/http sends that again on its own.
			resp, err := c.Post(t.scheme+"://a.test", "text/plain", strings.NewReader("x"))
			got := fmt.Sprint(err)
			if err == nil {
				body, err := io.ReadAll(resp.Body)
				got = fmt.Sprintf("%d %q %v", resp.StatusCode, body, err)
				if err == nil {
					got = fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body)))
				}
				resp.Body.Close()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
			synctest.Wait()
			rec := srv.Record()
			if len(rec.Requests) != 1 {
				t.Errorf("%s: %v", tt.name, rec.Requests)
			}
			if q := rec.Requests[0]; q.Broken != (tt.open == 0 && tt.name != "abort") || q.InFlight || q.Sent != tt.sent {
				t.Errorf("%s: %+v", tt.name, q)
			}
			if openConns(rec) != tt.open {
				t.Errorf("%s: %d connections open", tt.name, openConns(rec))
			}
			srv.Close()
		}
	})
}

func TestHeader_ConnectionClose(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.On(2, sluicetest.Header("Connection: close")))
		for range 4 {
			if got := get(c, t.scheme+"://a.test"); got != "200 ok" {
				t.Error(got)
			}
			synctest.Wait()
		}
		var conns []int
		for _, q := range srv.Record().Requests {
			conns = append(conns, q.Conn)
		}
		if !reflect.DeepEqual(conns, []int{1, 1, 2, 2}) {
			t.Errorf("connections of the requests: %v", conns)
		}
	})
}

func TestGarbage(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.Garbage("lorem ipsum dolor sit amet\r\n\r\n"))
		got := get(c, t.scheme+"://a.test")
		if t.proto == "HTTP/1.1" && !strings.Contains(got, "malformed HTTP") || strings.HasPrefix(got, "200") {
			t.Error(got)
		}
		synctest.Wait()
		if n := openConns(srv.Record()); n != 0 {
			t.Errorf("%d connections open", n)
		}
	})
}

// A body that the client sends only when asked to: 100 Continue.
func TestReadBody_100Continue(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.On(2, sluicetest.ReadBody()), sluicetest.Status(429))
		tr := srv.Transport()
		tr.ExpectContinueTimeout = time.Hour
		t.set(tr)
		c.Transport = tr
		start := time.Now()
		for range 2 {
			r, _ := http.NewRequest("PUT", t.scheme+"://a.test", strings.NewReader("hello"))
			r.Header.Set("Expect", "100-continue")
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		q := srv.Record().Requests
		if string(q[0].Body) != "" || string(q[1].Body) != "hello" || q[1].BodyLen != 5 {
			t.Errorf("bodies %q and %q, of %d", q[0].Body, q[1].Body, q[1].BodyLen)
		}
		if d := time.Since(start); d > time.Minute { // and not the hour that the client would wait
			t.Errorf("took %v", d)
		}
	})
}
