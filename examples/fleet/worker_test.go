package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// message is an item, and what the queue is told about it.
type message struct {
	jetstream.Msg
	data string
	told []string
}

func (m *message) Data() []byte { return []byte(m.data) }
func (m *message) Headers() nats.Header {
	return nats.Header{jetstream.MsgIDHeader: []string{"the key"}}
}

func (m *message) tell(format string, args ...any) error {
	m.told = append(m.told, fmt.Sprintf(format, args...))
	return nil
}

func (m *message) Ack() error { return m.tell("done") }
func (m *message) Nak() error { return m.tell("again") }

// NakWithDelay leaves out what the transport adds to a wait of the server: up to a second.
func (m *message) NakWithDelay(d time.Duration) error {
	return m.tell("again in %v", d.Truncate(time.Second))
}
func (m *message) TermWithReason(reason string) error { return m.tell("never: %s", reason) }
func (m *message) InProgress() error                  { return m.tell("in progress") }

// only is a consumer that has one message.
type only struct {
	jetstream.Consumer
	*message
}

func (o only) Next(...jetstream.FetchOpt) (jetstream.Msg, error) { return o.message, nil }

// What becomes of an item, by what the API does.
func TestWorker_Next(t *testing.T) {
	for _, c := range []struct {
		name, data string
		layers     []sluicetest.Layer
		stopped    bool
		told       []string
		log        string
	}{
		{name: "success", data: `{"id":7}`, told: []string{"done"}, log: "take 7\ndone 7\n"},
		{name: "not an item", data: `x`, told: []string{"never: not an item"}},
		{name: "failure", data: `{"id":7}`, layers: []sluicetest.Layer{sluicetest.Status(400)}, told: []string{"again in 1s"}, log: "take 7\n"},
		{name: "the server wants an hour", data: `{"id":7}`, layers: []sluicetest.Layer{sluicetest.Status(429, "Retry-After: 3600")},
			told: []string{"again in 1h0m0s"}, log: "take 7\n"},
		{name: "the worker ends", data: `{"id":7}`, layers: []sluicetest.Layer{sluicetest.Status(400)}, stopped: true, told: []string{"again"}, log: "take 7\n"},
		{name: "longer than the lease", data: `{"id":7}`, layers: []sluicetest.Layer{sluicetest.Delay(3500 * time.Millisecond)},
			told: []string{"in progress", "in progress", "in progress", "done"}, log: "take 7\ndone 7\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(c.layers...)
				defer srv.Close()
				transport, err := sluicehttp.New(srv.Transport())
				if err != nil {
					t.Fatal(err)
				}
				stop, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stopped {
					cancel()
				}
				var log bytes.Buffer
				msg := &message{data: c.data}
				w := &worker{options: options{url: "http://api.test", lease: 3 * time.Second, keys: true},
					items: only{message: msg}, client: &http.Client{Transport: transport}, log: &log}
				w.next(stop)
				time.Sleep(time.Minute) // nothing happens any more
				if !slices.Equal(msg.told, c.told) {
					t.Errorf("the queue was told %q, want %q", msg.told, c.told)
				}
				if log.String() != c.log {
					t.Errorf("the log is %q, want %q", log.String(), c.log)
				}
				for _, r := range srv.Record().Requests {
					if r.Path != "/items/7" || r.Header.Get("Idempotency-Key") != "the key" {
						t.Errorf("called %s with the key %q", r.Path, r.Header.Get("Idempotency-Key"))
					}
				}
			})
		})
	}
}
