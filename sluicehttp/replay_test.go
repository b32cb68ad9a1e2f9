package sluicehttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestReplay_Bodies(t *testing.T) {
	content := strings.Repeat("body ", 1000)
	plain := func(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} } // net/http knows no length
	for _, c := range []struct {
		name   string
		body   io.Reader
		length int64 // 0: as net/http has it
		want   int   // attempts
		why    error
	}{
		{"none", nil, 0, 2, nil},
		{"NoBody", http.NoBody, 0, 2, nil},
		{"GetBody", strings.NewReader(content), 0, 2, nil},
		{"small", plain(content), int64(len(content)), 2, nil},
		{"64 KiB", plain(strings.Repeat("x", 64<<10)), 64 << 10, 2, nil},
		{"more", plain(strings.Repeat("x", 64<<10+1)), 64<<10 + 1, 1, sluicehttp.ErrReplay},
		{"unknown", plain(content), 0, 1, sluicehttp.ErrReplay},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.ReadBody(), sluicetest.On(1, sluicetest.Status(503))), func(w *world) {
				ctx, report := sluicehttp.WithReport(bg)
				req := request(t, ctx, "PUT", "http://a.test/", c.body)
				if c.length != 0 {
					req.ContentLength = c.length
				}
				status, _, err := w.do(req)
				want := 200
				if c.why != nil {
					want = 503
				}
				if err != nil || status != want {
					t.Errorf("%d, %v; want %d", status, err, want)
				}
				wantWhy(t, report, c.why, c.want)
				got := w.srv.Record().Requests
				for _, r := range got[1:] {
					if !bytes.Equal(r.Body, got[0].Body) || r.BodyLen != got[0].BodyLen {
						t.Errorf("the second body is another: %d bytes, %d at first", r.BodyLen, got[0].BodyLen)
					}
				}
				if got[0].BodyLen != max(c.length, req.ContentLength, 0) && c.name != "unknown" {
					t.Errorf("%d bytes arrived", got[0].BodyLen)
				}
			})
		})
	}
}

// A body of which nothing was read can still be sent: no connection was made.
func TestReplay_UntouchedBody(t *testing.T) {
	for _, method := range []string{"PUT", "POST"} {
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.ReadBody()), func(w *world) {
			onDial(w.rt.Unwrap(), func(_ context.Context, n int) error {
				if n <= 2 {
					return errRefused
				}
				return nil
			})
			body := &closing{Reader: strings.NewReader("long, of unknown length")}
			status, _, err := w.do(request(t, bg, method, "http://a.test/", body))
			if err != nil || status != 200 {
				t.Errorf("%s: %d, %v", method, status, err)
			}
			got := w.srv.Record().Requests
			if len(got) != 1 || string(got[0].Body) != "long, of unknown length" || w.now() != 2*time.Second {
				t.Errorf("%s: got %+v at %v", method, got, w.now())
			}
			if _, closed := body.count(); closed == 0 {
				t.Errorf("%s: the body was not closed", method)
			}
		})
	}
}

func TestReplay_FailingBody(t *testing.T) {
	wrong := errors.New("disk")
	fails := func() io.Reader { return io.MultiReader(strings.NewReader("bo"), fail{wrong}) }
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.ReadBody(), sluicetest.Status(503)), func(w *world) {
		small := request(t, bg, "PUT", "http://a.test/", &closing{Reader: fails()})
		small.ContentLength = 4
		if _, _, err := w.do(small); !errors.Is(err, wrong) {
			t.Errorf("a small body: %v", err)
		}
		if n := len(w.srv.Record().Requests); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
		again := request(t, bg, "PUT", "http://a.test/", strings.NewReader("body"))
		again.GetBody = func() (io.ReadCloser, error) { return nil, wrong }
		// There is an answer, so that is returned.
		if status, _, err := w.do(again); status != 503 || err != nil {
			t.Errorf("a GetBody that fails: %d, %v", status, err)
		}
		if inFlight(w.rt) != 0 {
			t.Errorf("%d in flight", inFlight(w.rt))
		}
	})
}

// The Timeout of a client covers the reading of a small body, too.
func TestReplay_StallingBody(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.ReadBody()), func(w *world) {
		ctx, report := sluicehttp.WithReport(bg)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		body, _ := io.Pipe() // without a writer
		req := request(t, ctx, "PUT", "http://a.test/", body)
		req.ContentLength = 4
		resp, err := w.rt.RoundTrip(req)
		if resp != nil || err != context.DeadlineExceeded || w.now() != time.Minute {
			t.Errorf("%v, %v at %v", resp, err, w.now())
		}
		synctest.Wait()
		if _, err := body.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("the body was not closed: %v", err)
		}
		wantWhy(t, report, context.DeadlineExceeded, 0)
	})
}

// A body that does not have its length would fail at each attempt.
func TestReplay_WrongLength(t *testing.T) {
	for length, want := range map[int64]string{3: "and its body more bytes", 5: "and its body 4 bytes"} {
		for _, ends := range []bool{false, true} {
			inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.ReadBody()), func(w *world) {
				ctx := bg
				if ends { // then another goroutine reads it
					ctx = w.Context()
				}
				body := &closing{Reader: strings.NewReader("body")}
				req := request(t, ctx, "PUT", "http://a.test/", body)
				req.ContentLength = length
				if _, _, err := w.do(req); err == nil || !strings.Contains(err.Error(), want) || w.now() != 0 {
					t.Errorf("a length of %d: %v at %v; want %s", length, err, w.now(), want)
				}
				if _, closed := body.count(); closed != 1 || len(w.srv.Record().Requests) != 0 {
					t.Errorf("closed %d times, %d requests", closed, len(w.srv.Record().Requests))
				}
			})
		}
	}
}
