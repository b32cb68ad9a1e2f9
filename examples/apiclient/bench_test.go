package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
	"github.com/sluice-go/sluice/sluicehttp"
)

// wire carries requests to a handler without a network, which takes a
// millisecond each way. With it a pool and a server run in the time of a
// synctest bubble, where a thousand calls at 100/s are exact and cost nothing.
type wire struct{ to http.Handler }

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := oneWay(r.Context()); err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	w.to.ServeHTTP(answer, r)
	if err := oneWay(r.Context()); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

func oneWay(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bench is a job at the ready, in a bubble.
type bench struct {
	options
	base http.RoundTripper
	gate *sluicehttp.Transport
	job  *job
	out  bytes.Buffer
}

func newBench(t *testing.T, to http.Handler, args string) *bench {
	t.Helper()
	const address = "http://api.test/items/{}"
	if !strings.Contains(args, "-unknown") { // which is for the built-in server
		args += " -url " + address
	}
	o, err := parseOptions(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	o.url = address
	b := &bench{options: o}
	m := newMeter()
	b.base = metered{wire{to}, m}
	if b.gate, err = newTransport(configOf(o, nil), b.base); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.gate.Close)
	j, release := newJob(o, t.Context(), newClient(o.url, b.gate, m), &sink{w: &b.out})
	t.Cleanup(release)
	b.job = j
	return b
}

// withoutGate makes the job of b one of the naive pool.
func (b *bench) withoutGate() *bench {
	b.job.client.http.Transport = b.base
	return b
}

// ids returns how often each id is in the output.
func (b *bench) ids(t *testing.T) map[int]int {
	t.Helper()
	ids := make(map[int]int)
	for text := range strings.Lines(b.out.String()) {
		var l struct{ ID, Body json.RawMessage }
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		id, err := strconv.Atoi(string(l.ID))
		if err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		ids[id]++
	}
	return ids
}

func newAPI(t *testing.T, n int) *apiserver.Server {
	t.Helper()
	api, err := apiserver.New(apiserver.Config{Items: n, Count: 100, Per: time.Second, Concurrency: 10})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// status answers everything the same.
type status int

func (s status) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(s)) }
