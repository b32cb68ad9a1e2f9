package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// Interrupted, it stops at once, keeps what it has written and leaves nothing
// behind; the page in flight was not gone to.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sluicetest.NewServer(noRobots, sluicetest.Path("/b", sluicetest.Delay(10*time.Second)), htmlPage("/a"), htmlPage("/", "/a", "/b", "/c"))
		defer s.Close()
		transport := s.Transport()
		defer transport.CloseIdleConnections()
		var out bytes.Buffer
		c, err := newCrawler(mustParse(t, "http://a.test/"), transport, &out)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*millisecond)
		defer cancel()
		before := time.Now()
		if err := c.run(ctx); err != nil || time.Since(before) != 3500*millisecond {
			t.Errorf("%v, after %v", err, time.Since(before))
		}
		if pages := pagesIn(t, out.Bytes()); len(pages) != 2 || c.frontier.left() != 2 {
			t.Errorf("%d pages, %d left", len(pages), c.frontier.left())
		}
		// Before it has begun, too.
		if err := c.run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A host whose robots.txt was being read is not called unreachable for it.
func TestInterruptedRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sluicetest.NewServer(sluicetest.Delay(10 * time.Second))
		defer s.Close()
		transport := s.Transport()
		defer transport.CloseIdleConnections()
		var out bytes.Buffer
		c, err := newCrawler(mustParse(t, "http://a.test/"), transport, &out)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.run(ctx); err != nil {
			t.Error(err)
		}
		if h := c.summary().hosts[0]; h.about != "not read: the crawl ended" || out.Len() > 0 || c.frontier.left() != 1 {
			t.Errorf("%q, %d left, wrote %s", h.about, c.frontier.left(), out.Bytes())
		}
	})
}

// full is a disk that is full after n lines.
type full struct {
	n   int
	got bytes.Buffer
}

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errFull
	}
	return f.got.Write(p)
}

// A disk that is full stops the crawl: pages that cannot be kept are not asked
// for.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		defer s.Close()
		transport := s.Transport()
		defer transport.CloseIdleConnections()
		out := &full{n: 5}
		c, err := newCrawler(mustParse(t), transport, out)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.run(t.Context()); !errors.Is(err, errFull) {
			t.Errorf("%v", err)
		}
		if n := len(pagesIn(t, out.got.Bytes())); n != 5 {
			t.Errorf("%d lines", n)
		}
		if n := len(s.Record().Requests); n > 30 {
			t.Errorf("%d requests", n)
		}
	})
}

// After an error nothing more is written, lest there is a hole in the middle.
func TestSink(t *testing.T) {
	out, errs := &full{n: 1}, 0
	s := newSink(out)
	s.onError = func() { errs++; out.n = 10 }
	for _, u := range []string{"http://a.test/?a&b", "http://a.test/2", "http://a.test/3"} {
		s.write(page{URL: u})
	}
	if got, want := out.got.String(), `{"url":"http://a.test/?a&b","depth":0}`+"\n"; got != want || errs != 1 || !errors.Is(s.err(), errFull) {
		t.Errorf("wrote %q, %d errors, %v", got, errs, s.err())
	}
}
