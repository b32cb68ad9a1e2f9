package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// held is a server that keeps its callers waiting until it may answer.
type held struct {
	*httptest.Server
	arrived chan struct{} // one for each call
	release chan struct{} // closed: answer
	calls   atomic.Int64
}

func hold(t *testing.T) *held {
	t.Helper()
	h := &held{arrived: make(chan struct{}, 100), release: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			fmt.Fprint(w, "1")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// args make a run of 20 items, 2 in flight, against the server.
func (h *held) args(more ...string) []string {
	return append([]string{"-n", "20", "-rate", "1000", "-concurrency", "2", "-workers", "4", "-url", h.URL + "/{}"}, more...)
}

// One signal: the two calls in flight are finished and kept, no other begins.
func TestBinaryInterruptedOnce(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			h := hold(t)
			p := startBinary(t, "stdout", h.args("-naive")...)
			<-h.arrived
			<-h.arrived
			p.signal(t, sig)
			p.until(t, "interrupted: ")
			close(h.release)
			e := p.wait(t)
			e.wantStatus(t, 130)
			if items := e.items(t); len(items) != 2 {
				t.Errorf("items %v, want the 2 that were in flight", items)
			}
			if got := h.calls.Load(); got != 2 {
				t.Errorf("%d calls arrived, want 2", got)
			}
			for _, part := range []string{
				"\ncalls (items called for)                  2\n",
				"\nitems lost                               18\n  of them not started                    18\n",
				"Through the gate 2 of 20 items took ",
			} {
				if !strings.Contains(e.stdout, part) {
					t.Errorf("no %q in\n%s", part, e.stdout)
				}
			}
			if strings.Contains(e.stdout, "naive") {
				t.Errorf("the naive run was not skipped:\n%s", e.stdout)
			}
		})
	}
}

// Two signals: not even the calls in flight are waited for.
func TestBinaryInterruptedTwice(t *testing.T) {
	h := hold(t)
	p := startBinary(t, "stdout", h.args()...)
	<-h.arrived
	<-h.arrived
	p.signal(t, os.Interrupt)
	p.until(t, "interrupted: ")
	p.signal(t, os.Interrupt)
	e := p.wait(t) // returns although nothing is released
	e.wantStatus(t, 130)
	if items := e.items(t); len(items) != 0 {
		t.Errorf("items %v, want none", items)
	}
	for _, part := range []string{
		"interrupted again: ",
		"\nitems lost                               20\n  of them not started                    18\n",
		"Through the gate 0 of 20 items took ",
	} {
		if !strings.Contains(e.stdout, part) {
			t.Errorf("no %q in\n%s", part, e.stdout)
		}
	}
}

// The JSON is printed all the same, and stdout has nothing else.
func TestBinaryInterruptedJSON(t *testing.T) {
	h := hold(t)
	p := startBinary(t, "stderr", h.args("-naive", "-json")...)
	<-h.arrived
	<-h.arrived
	p.signal(t, os.Interrupt)
	p.until(t, "interrupted: ")
	close(h.release)
	e := p.wait(t)
	e.wantStatus(t, 130)
	if gate, naive := e.report(t); gate.Calls != 2 || gate.Lost != 18 || naive != nil {
		t.Errorf("gate %+v, naive %v", gate, naive)
	}
}

// The built-in server: whatever has been fetched is whole and counted.
func TestBinaryInterruptedAtTheBuiltInServer(t *testing.T) {
	p := startBinary(t, "stdout", "-n", "100000")
	p.until(t, "gate: ")
	p.signal(t, os.Interrupt)
	e := p.wait(t)
	e.wantStatus(t, 130)
	items := e.items(t)
	if part := fmt.Sprintf("Through the gate %d of 100,000 items took ", len(items)); !strings.Contains(e.stdout, part) {
		t.Errorf("no %q in\n%s", part, e.stdout)
	}
	if strings.Contains(e.stdout, "naive") {
		t.Errorf("the naive run was not skipped:\n%s", e.stdout)
	}
}

// During the naive run the items are already safe; the status is about the
// signal nevertheless.
func TestBinaryInterruptedInTheNaiveRun(t *testing.T) {
	var calls atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 10 { // the naive run has begun, and will not get anywhere
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	p := startBinary(t, "stdout", "-n", "10", "-rate", "1000", "-workers", "2", "-url", api.URL+"/{}", "-naive")
	p.until(t, "naive: ")
	p.signal(t, os.Interrupt)
	e := p.wait(t)
	e.wantStatus(t, 130)
	if items := e.items(t); len(items) != 10 {
		t.Errorf("%d items, want 10", len(items))
	}
	if part := "\nitems lost                                0             10\n"; !strings.Contains(e.stdout, part) {
		t.Errorf("no %q in\n%s", part, e.stdout)
	}
}
