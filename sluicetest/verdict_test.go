package sluicetest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// check compares the message of an error, empty for none, without its prefix.
func check(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "sluicetest: ")
		if got == err.Error() {
			t.Errorf("%s: %q lacks the prefix", what, got)
		}
	}
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// at is a record of requests to a.test at these times.
func at(instants ...time.Duration) (r sluicetest.Record) {
	for i, d := range instants {
		r.Requests = append(r.Requests, sluicetest.Request{Number: i + 1, Method: "GET", Host: "a.test", Path: "/", Arrived: d})
	}
	return r
}

func TestRecord_Evenly(t *testing.T) {
	for _, tt := range []struct {
		rec  sluicetest.Record
		want string // for 100 ms
	}{
		{at(), ""},
		{at(7), ""},
		{at(0, 100*ms, 200*ms), ""},
		{at(0, 150*ms, 250*ms-1, 400*ms),
			"request 3 (GET a.test/ at 249.999999ms) arrived 99.999999ms after request 2 (GET a.test/ at 150ms); want at least 100ms"},
		{at(0, 7, 14), "request 2 (GET a.test/ at 7ns) arrived 7ns after request 1 (GET a.test/ at 0s); want at least 100ms"},
		{at(5, 5), "request 2 (GET a.test/ at 5ns) arrived 0s after request 1 (GET a.test/ at 5ns); want at least 100ms"},
	} {
		check(t, fmt.Sprint(tt.rec.Arrivals()), tt.rec.CheckSpacing(100*ms), tt.want)
	}
}

func TestRecord_Within(t *testing.T) {
	for _, tt := range []struct {
		rec  sluicetest.Record
		want string // for 2 in a second
	}{
		{at(), ""},
		{at(3), ""},
		{at(0, 0, time.Second, time.Second, 2*time.Second), ""}, // the end of an interval is not in it
		{at(0, 1, time.Second, time.Second),
			"3 requests arrived within 1s, from request 2 (GET a.test/ at 1ns) to request 4 (GET a.test/ at 1s); want at most 2"},
	} {
		check(t, fmt.Sprint(tt.rec.Arrivals()), tt.rec.CheckRate(2, time.Second), tt.want)
	}
	mustPanic(t, "Within(1, 0)", "sluicetest: within 0s", func() { _ = at(1).CheckRate(1, 0) })
}

func TestRecord_MostInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Path("/slow", sluicetest.Delay(time.Minute)), sluicetest.Delay(time.Second))
		defer srv.Close()
		c := srv.Client()
		var wg sync.WaitGroup
		for _, path := range []string{"a.test/slow", "a.test/slow", "b.test/1"} {
			wg.Go(func() { get(c, "http://"+path) })
		}
		time.Sleep(30 * time.Second)
		wg.Go(func() { get(c, "http://b.test/2") })
		synctest.Wait()
		rec := srv.Record()
		if got := rec.MostInFlight(); got != 3 {
			t.Errorf("%d in flight, want 3", got)
		}
		if a, b := rec.Host("a.test").MostInFlight(), rec.Host("b.test").MostInFlight(); a != 2 || b != 1 {
			t.Errorf("%d and %d in flight of a and b", a, b)
		}
		if open := openConns(rec); open != 3 {
			t.Errorf("%d connections open", open)
		}
		wg.Wait()
		c.CloseIdleConnections()
		synctest.Wait()
		get(c, "http://c.test")
		if rec := srv.Record(); openConns(rec) != 1 || len(rec.Conns) != 4 || rec.Conns[3].Opened != 61*time.Second {
			t.Errorf("%+v", rec.Conns)
		}
	})
}

func TestRecord_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(
			sluicetest.On(1, sluicetest.Status(429)), // not by a limit
			sluicetest.Enforce(sluicetest.Limit{Name: "core", Count: 1, Per: time.Second}))
		defer srv.Close()
		c := srv.Client()
		for range 2 {
			get(c, "http://a.test/x")
		}
		if n := srv.Record().Throttled(); n != 0 {
			t.Errorf("%d refused, want 0", n)
		}
		for range 2 {
			get(c, "http://a.test/y")
		}
		rec := srv.Record()
		if q := rec.Requests[2]; rec.Throttled() != 2 || q.ThrottledBy != "core rate" {
			t.Errorf("%d refused, one of them %v: %s", rec.Throttled(), q, q.ThrottledBy)
		}
	})
}

func TestRecord_Obeyed(t *testing.T) {
	const early = "request 2 (GET a.test/ at %v) arrived before the RetryAt of request 1 (GET a.test/ at 0s), %v"
	for _, tt := range []struct {
		name  string
		first sluicetest.Layer
		at    time.Duration // of the second request
		host  string
		want  string
	}{
		{"in time", sluicetest.Status(429, "Retry-After: 60"), time.Minute, "a.test", ""},
		{"too early", sluicetest.Status(429, "Retry-After: 60"), time.Minute - 1, "a.test", fmt.Sprintf(early, time.Minute-1, time.Minute)},
		{"another host", sluicetest.Status(429, "Retry-After: 60"), 1, "b.test", ""},
		{"on its way", sluicetest.Status(429, "Retry-After: 60"), 0, "a.test", ""},
		{"of a redirect", sluicetest.Status(503, "Retry-After: 60"), 1, "a.test", fmt.Sprintf(early, "1ns", time.Minute)},
		{"nothing said", sluicetest.Status(429), 1, "a.test", ""},
		{"nonsense said", sluicetest.Status(429, "Retry-After: soon"), 1, "a.test", ""},
		{"a negative number", sluicetest.Status(429, "Retry-After: -5"), 1, "a.test", ""},
		{"a date", sluicetest.Status(429, "Retry-After: Sat, 01 Jan 2000 00:01:00 GMT"), 1, "a.test", fmt.Sprintf(early, "1ns", time.Minute)},
		{"an epoch", sluicetest.Status(429, "Retry-After: 946684860"), 1, "a.test", fmt.Sprintf(early, "1ns", time.Minute)},
		{"a limit", sluicetest.Enforce(sluicetest.Limit{Quota: 1, Window: time.Hour, Concurrency: 1, HeaderStyle: sluicetest.RetryAfter}), 1, "a.test", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(sluicetest.On(1, tt.first))
				defer srv.Close()
				c := srv.Client()
				get(c, "http://a.test")
				time.Sleep(tt.at)
				get(c, "http://"+tt.host)
				check(t, "Obeyed", srv.Record().CheckRetryAfter(), tt.want)
			})
		})
	}
}

// After a status that is about one call, only that call has to wait.
func TestRecord_Obeyed_OneCall(t *testing.T) {
	const early = "sluicetest: request 2 (%s at 1s) arrived before the RetryAt of request 1 (POST a.test/a?q at 0s), 1m0s"
	for _, status := range []int{403, 408, 425, 429, 500, 502, 503, 504, 520, 524, 529} {
		all := status == 403 || status == 429 || status == 503 || status == 529
		for _, tt := range []struct {
			method, path, body string
			same               bool
		}{
			{"POST", "/a?q", "x", true},
			{"POST", "/a?q", "y", false},
			{"POST", "/a?q", "", true}, // the body is not known
			{"POST", "/a", "x", false},
			{"PUT", "/a?q", "x", false},
		} {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(sluicetest.ReadBody(), sluicetest.On(1, sluicetest.Status(status, "Retry-After: 60")))
				defer srv.Close()
				send := func(method, path, body string) {
					r, err := http.NewRequest(method, "http://a.test"+path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := srv.Client().Do(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				send("POST", "/a?q", "x")
				time.Sleep(time.Second)
				send(tt.method, tt.path, tt.body)
				got, want := "", ""
				if err := srv.Record().CheckRetryAfter(); err != nil {
					got = err.Error()
				}
				if all || tt.same {
					want = fmt.Sprintf(early, tt.method+" a.test"+tt.path)
				}
				if got != want {
					t.Errorf("%d, then %+v: %q; want %q", status, tt, got, want)
				}
			})
		}
	}
}

// RetryAt is set by a limit even if its family does not write it.
func TestRecord_Obeyed_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Count: 1, Per: time.Second}))
		defer srv.Close()
		statusAt(t, srv.Client(), "http://a.test", 0, 0, time.Second-1)
		rec := srv.Record()
		if at := rec.Requests[1].RetryAt; at != time.Second {
			t.Errorf("RetryAt is %v", at)
		}
		check(t, "Obeyed", rec.CheckRetryAfter(),
			"request 3 (GET a.test/ at 999.999999ms) arrived before the RetryAt of request 2 (GET a.test/ at 0s), 1s")
	})
}

// A Retry-After-Ms takes precedence over a Retry-After.
func TestRecord_Obeyed_Milliseconds(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"Retry-After-Ms: 50":                  50 * time.Millisecond,
		"Retry-After-Ms: 1500":                1500 * time.Millisecond,
		"Retry-After-Ms: soon":                time.Second,
		"Retry-After-Ms: -5":                  time.Second,
		"Retry-After-Ms: 9999999999999999999": time.Second,
		"Retry-After-Ms: 12.5":                12500 * time.Microsecond,
		"X-Something-Else: 50":                time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 1", header)))
			defer srv.Close()
			statusAt(t, srv.Client(), "http://a.test", 0, want-1)
			if at := srv.Record().Requests[0].RetryAt; at != want {
				t.Errorf("%s: RetryAt is %v, want %v", header, at, want)
			}
			if srv.Record().CheckRetryAfter() == nil {
				t.Errorf("%s: obeyed 1 ns too early", header)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			srv := sluicetest.NewServer(sluicetest.On(1, sluicetest.Status(429, "Retry-After: 1", header)))
			defer srv.Close()
			statusAt(t, srv.Client(), "http://a.test", 0, want)
			check(t, "Obeyed", srv.Record().CheckRetryAfter(), "")
		})
	}
}

func TestRecord_AllRead(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(sluicetest.On(4, sluicetest.CutBody(1)), sluicetest.On(5, sluicetest.Status(204)), sluicetest.Reply(404, strings.Repeat("x", 10_000)))
		url := t.scheme + "://a.test/"
		open := func() io.ReadCloser {
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			return resp.Body
		}
		read := open()
		_, _ = io.ReadAll(read)
		read.Close()
		half := open()
		_, _ = io.ReadFull(half, make([]byte, 5))
		half.Close()
		_, _ = half.Read(make([]byte, 5)) // after Close, which is not the end
		leaked := open()
		_, _ = io.ReadAll(leaked)
		cut := open()
		_, _ = io.ReadAll(cut) // until an error
		cut.Close()
		open() // of a 204: there is nothing to close
		err := srv.Record().CheckBodies()
		check(t.T, "AllRead", err, "body 2 (GET "+url+", 404) was read for 5 bytes, not to its end\n"+
			"sluicetest: body 3 (GET "+url+", 404) was not closed")
		leaked.Close()
	})
}

func TestRecord_Where(t *testing.T) {
	rec := at(1, 2, 3)
	odd := rec.Filter(func(q sluicetest.Request) bool { return q.Number%2 == 1 })
	if got := fmt.Sprint(odd.Arrivals(), rec.Arrivals(), rec.Host("b.test").Arrivals()); got != "[1ns 3ns] [1ns 2ns 3ns] []" {
		t.Error(got)
	}
}

func TestServer_RecordIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.ReadBody(), sluicetest.Delay(time.Second))
		defer srv.Close()
		r, _ := http.NewRequest("PUT", "http://a.test/x?y", strings.NewReader(strings.Repeat("z", 100_000)))
		r.Header.Set("X-Mine", "1")
		go func() {
			resp, err := srv.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		}()
		synctest.Wait()
		before := srv.Record()
		time.Sleep(time.Hour)
		after := srv.Record()
		q, p := before.Requests[0], after.Requests[0]
		if !q.InFlight || q.Ended != 0 || q.Status != 0 || p.InFlight || p.Ended != time.Second || p.Status != 200 {
			t.Errorf("before %+v\nafter %+v", q, p)
		}
		if q.Method != "PUT" || q.Host != "a.test" || q.Path != "/x?y" || q.Header.Get("X-Mine") != "1" || q.BodyLen != 100_000 || len(q.Body) != 64<<10 {
			t.Errorf("%s %s %s %v, body %d, %d kept", q.Method, q.Host, q.Path, q.Header, q.BodyLen, len(q.Body))
		}
	})
}
