package queue

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestIDOf(t *testing.T) {
	for text, want := range map[string]string{
		"a":                      "a",
		"é b":                    "é b",
		`{"id":"x"}`:             "x",
		`{"n":1,"id":17}`:        "17",
		`{"id":[1]}`:             "[1]",
		`{"id":null}`:            `{"id":null}`,
		`{"id":`:                 `{"id":`,
		`["id"]`:                 `["id"]`,
		`{"user":{"id":"deep"}}`: `{"user":{"id":"deep"}}`,
	} {
		if got := idOf(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	hashed := make(map[string]bool)
	for _, text := range []string{" a", "a ", "a\x1bb", "a\nb", strings.Repeat("x", 200), strings.Repeat("x", 201), `{"id":""}`, `{"id":"a\r\nb"}`} {
		got := idOf(text)
		if !strings.HasPrefix(got, "sha256-") || len(got) > mostOfID || hashed[got] {
			t.Errorf("%q: %q", text, got)
		}
		hashed[got] = true
	}
}

// renewed is a message whose lease is renewed.
type renewed struct {
	jetstream.Msg
	times int
}

func (r *renewed) InProgress() error { r.times++; return nil }

// The leases of all items are renewed until they are dropped. One that is delivered again to the same
// worker is renewed, and confirmed, by its last delivery, and not worked on twice.
func TestWorker_Renews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{held: make(map[int64]*Item)}
		w.ended, w.end = context.WithCancel(t.Context())
		w.renewing.Go(func() { w.renew(10 * time.Second) })
		var a, b, c renewed
		one, two := &Item{Seq: 1, msg: &a}, &Item{Seq: 2, msg: &b}
		if !w.hold(one) || !w.hold(two) {
			t.Error("new items are not held")
		}
		time.Sleep(31 * time.Second)
		w.drop(two)
		if w.hold(&Item{Seq: 1, msg: &c}) {
			t.Error("the same item is held twice")
		}
		time.Sleep(20 * time.Second)
		w.end()
		w.renewing.Wait()
		if a.times != 3 || b.times != 3 || c.times != 2 || w.message(one) != jetstream.Msg(&c) {
			t.Errorf("renewed %d, %d and %d times", a.times, b.times, c.times)
		}
	})
}
