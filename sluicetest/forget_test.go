package sluicetest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// Forget returns what was and drops what is over. What goes on stays, and numbers and
// instants go on.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Path("/slow", sluicetest.Delay(time.Minute)))
		defer srv.Close()
		srv.OnDial(func(n int, _ string) sluicetest.Dial {
			if n == 2 {
				return sluicetest.Refuse
			}
			return sluicetest.Connect
		})
		client := srv.Client()
		get(client, "http://a.test/1")
		get(client, "http://b.test/2") // a dial that fails
		unread, err := client.Get("http://a.test/3")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			get(client, "http://c.test/slow")
		}()
		time.Sleep(time.Second)
		first := srv.Forget()
		if n, d := len(first.Requests), first.Dials; n != 3 || d != 3 || len(first.Bodies) != 2 {
			t.Errorf("the first part has %d requests, %d dials, %d bodies", n, d, len(first.Bodies))
		}
		rest := srv.Record()
		if len(rest.Requests) != 1 || rest.Requests[0].Number != 3 || !rest.Requests[0].InFlight || rest.Dials != 0 || len(rest.Bodies) != 1 || len(rest.Conns) != 2 {
			t.Errorf("left: %+v", rest)
		}
		if rest.AllRead() == nil {
			t.Error("the body that nobody closed is forgotten")
		}
		unread.Body.Close()
		get(client, "http://d.test/4")
		<-done
		second := srv.Forget()
		if len(second.Requests) != 2 || second.Requests[1].Number != 4 || second.Dials != 1 {
			t.Errorf("the second part: %+v", second.Requests)
		}
		if q := second.Requests[0]; q.InFlight || q.Status != 200 || q.Ended != time.Minute {
			t.Errorf("the slow one: %+v", q)
		}
		if q := first.Requests[2]; !q.InFlight {
			t.Error("a record has changed")
		}
		client.CloseIdleConnections()
		synctest.Wait()
		srv.Forget()
		if r := srv.Record(); len(r.Requests)+len(r.Conns)+len(r.Bodies)+len(r.Log)+r.Dials != 0 {
			t.Errorf("left in the end: %+v", r)
		}
	})
}

// A server that stays on a real socket does not grow if somebody calls Forget.
func TestForgetFreesMemory(t *testing.T) {
	srv := sluicetest.NewServer(sluicetest.ReadBody())
	defer srv.Close()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	send := func() {
		req := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(strings.Repeat("x", 10_000))))
		srv.ServeHTTP(httptest.NewRecorder(), req)
	}
	send()
	srv.Forget()
	before := heap()
	for range 2000 {
		send()
	}
	grown := heap() - before
	srv.Forget()
	left := heap() - before
	if grown < 2000*10_000 || left > grown/10 {
		t.Errorf("2,000 requests take %d bytes, of which %d are left", grown, left)
	}
}
