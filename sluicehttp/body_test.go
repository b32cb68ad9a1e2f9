package sluicehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// closing is a body that knows what was done to it.
type closing struct {
	io.Reader
	mu           sync.Mutex
	read, closed int
}

func (c *closing) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	if c.closed > 0 {
		return 0, errors.New("read after close")
	}
	if c.Reader == nil {
		return 0, io.EOF
	}
	return c.Reader.Read(p)
}

func (c *closing) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

// count returns how often it was read of and closed.
func (c *closing) count() (read, closed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read, c.closed
}

func TestTransport_PermitIsHeldUntilTheBodyEnds(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	read := func(n int64) func(*http.Response) {
		return func(resp *http.Response) { io.CopyN(io.Discard, resp.Body, n) }
	}
	closeIt := func(resp *http.Response) { resp.Body.Close() }
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}
	early := cfg
	early.ReleaseAtHeaders = true
	for _, c := range []struct {
		name   string
		cfg    sluicehttp.Config
		o      sluicehttp.Overrides
		method string
		answer sluicetest.Layer
		use    func(resp *http.Response)
		held   int64 // before use
		left   int64 // after it
	}{
		{"read", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), read(1 << 20), 1, 0},
		{"half read", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), read(1000), 1, 1},
		{"unread", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), read(0), 1, 1},
		{"closed", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), closeIt, 1, 0},
		{"closed twice", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), func(r *http.Response) { closeIt(r); closeIt(r) }, 1, 0},
		{"cut", cfg, sluicehttp.Overrides{}, "GET", sluicetest.CutBody(1000), read(1 << 20), 1, 0},
		{"not found", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Status(404), read(1 << 20), 1, 0},
		{"HEAD", cfg, sluicehttp.Overrides{}, "HEAD", sluicetest.Reply(200, long), read(0), 0, 0},
		{"no content", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Status(204), read(0), 0, 0},
		{"not modified", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Status(304), read(0), 0, 0},
		{"empty", cfg, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, ""), read(0), 0, 0},
		{"early", early, sluicehttp.Overrides{}, "GET", sluicetest.Reply(200, long), read(0), 0, 0},
		{"early by override", cfg, sluicehttp.Overrides{ReleaseAtHeaders: true}, "GET", sluicetest.Reply(200, long), read(0), 0, 0},
		{"early with a timeout", early, sluicehttp.Overrides{AttemptTimeout: time.Second}, "GET", sluicetest.Reply(200, long), read(1 << 20), 0, 0},
		{"with a timeout", cfg, sluicehttp.Overrides{AttemptTimeout: time.Second}, "GET", sluicetest.Reply(200, long), read(1 << 20), 1, 0},
		{"HEAD with a timeout", cfg, sluicehttp.Overrides{AttemptTimeout: time.Second}, "HEAD", sluicetest.Reply(200, long), read(0), 0, 0},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				answer := layers(c.answer)
				if c.name == "cut" {
					answer = append(answer, sluicetest.Reply(200, long))
				}
				inWorld(t, c.cfg, answer, func(w *world) {
					resp, err := w.client.Do(request(t, sluicehttp.With(bg, c.o), c.method, scheme+"://a.test/", nil))
					if err != nil {
						t.Fatal(err)
					}
					if got := inFlight(w.rt); got != c.held {
						t.Errorf("%d in flight when the header is there, want %d", got, c.held)
					}
					c.use(resp)
					if got := inFlight(w.rt); got != c.left {
						t.Errorf("%d in flight after that, want %d", got, c.left)
					}
					resp.Body.Close()
					if got := inFlight(w.rt); got != 0 {
						t.Errorf("%d in flight in the end", got)
					}
				})
			})
		}
	}
}

func TestTransport_PermitOfACanceledBody(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}
	inWorld(t, cfg, layers(sluicetest.Stall(3, limits.Never), sluicetest.Reply(200, "hello")), func(w *world) {
		ctx, cancel := context.WithCancel(bg)
		resp, err := w.client.Do(request(t, ctx, "GET", "http://a.test/", nil))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, cancel)
		got, err := io.ReadAll(resp.Body)
		if string(got) != "hel" || !errors.Is(err, context.Canceled) || inFlight(w.rt) != 0 {
			t.Errorf("read %q, %v; %d in flight", got, err, inFlight(w.rt))
		}
		resp.Body.Close()
	})
}

// A caller that gives up may forget to close the body: its connection is gone, so its
// permit must be back.
func TestTransport_PermitOfAnUnreadBody(t *testing.T) {
	for _, o := range []sluicehttp.Overrides{{}, {AttemptTimeout: time.Second}} {
		cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}
		inWorld(t, cfg, layers(sluicetest.Stall(3, limits.Never), sluicetest.Reply(200, "hello")), func(w *world) {
			ctx, cancel := context.WithCancel(sluicehttp.With(bg, o))
			resp, err := w.rt.RoundTrip(request(t, ctx, "GET", "http://a.test/", nil))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := inFlight(w.rt); n != 1 {
				t.Errorf("%d in flight", n)
			}
			cancel()
			synctest.Wait()
			if s := stats(t, w.rt); s.InFlight != 0 || s.Held != 0 {
				t.Errorf("%d in flight, %d held after it was cancelled", s.InFlight, s.Held)
			}
			resp.Body.Close()
		})
	}
}

func TestStats_Held(t *testing.T) {
	inWorld(t, sluicehttp.Config{LongHeld: time.Hour}, nil, func(w *world) {
		var open []*http.Response
		for range 3 {
			resp, err := w.client.Get("http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, resp)
			time.Sleep(time.Hour)
		}
		want := func(held, long int, longest time.Duration) {
			t.Helper()
			if s := stats(t, w.rt); s.Held != held || s.HeldLong != long || s.HeldLongest != longest || s.InFlight != int64(held) {
				t.Errorf("%d held, %d for long, %v the longest; want %d, %d, %v", s.Held, s.HeldLong, s.HeldLongest, held, long, longest)
			}
		}
		want(3, 3, 3*time.Hour)
		time.Sleep(-time.Minute)
		open[0].Body.Close()
		want(2, 2, 2*time.Hour)
		io.Copy(io.Discard, open[2].Body)
		want(1, 1, 2*time.Hour)
		open[1].Body.Close()
		open[2].Body.Close()
		want(0, 0, 0)
	})
}

func TestTransport_RoundTrip_ClosesTheRequestBody(t *testing.T) {
	done, cancel := context.WithCancel(bg)
	cancel()
	short, cancel := context.WithTimeout(bg, time.Nanosecond)
	defer cancel()
	refuse := func(base *http.Transport) {
		onDial(base, func(context.Context, int) error { return errRefused })
	}
	for name, c := range map[string]struct {
		ctx    context.Context
		cfg    sluicehttp.Config
		fault  sluicetest.Layer
		before func(base *http.Transport)
		length int64
	}{
		"fine":             {bg, sluicehttp.Config{}, sluicetest.ReadBody(), nil, 0},
		"not read":         {bg, sluicehttp.Config{}, sluicetest.Status(413), nil, 0},
		"down":             {bg, sluicehttp.Config{}, sluicetest.Status(503), nil, 0},
		"down, small":      {bg, sluicehttp.Config{}, sluicetest.Status(503), nil, 4},
		"refused":          {bg, sluicehttp.Config{}, sluicetest.ReadBody(), refuse, 0},
		"cut":              {bg, sluicehttp.Config{}, sluicetest.Cut(), nil, 0},
		"done":             {done, sluicehttp.Config{}, sluicetest.ReadBody(), nil, 0},
		"no key":           {bg, sluicehttp.Config{NewGate: func(string) (*sluice.Gate, error) { return nil, nil }}, sluicetest.ReadBody(), nil, 0},
		"hopeless":         {short, sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}}}, sluicetest.ReadBody(), nil, 0},
		"too large a call": {sluicehttp.With(bg, sluicehttp.Overrides{Cost: 2}), sluicehttp.Config{Gate: sluice.Config{Concurrency: 1, ConcurrencyUnit: sluice.Cost}}, sluicetest.ReadBody(), nil, 0},
		"no retry":         {sluicehttp.With(bg, sluicehttp.Overrides{NoRetry: true}), sluicehttp.Config{}, sluicetest.Status(503), nil, 4},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				c.cfg.Retry = seconds
				inWorld(t, c.cfg, layers(c.fault), func(w *world) {
					if c.before != nil {
						c.before(w.rt.Unwrap().(*http.Transport))
					}
					body := &closing{Reader: strings.NewReader("body")}
					req := request(t, c.ctx, "PUT", scheme+"://a.test/", body)
					req.ContentLength = c.length
					w.do(req)
					synctest.Wait() // a transport may close it a little later
					if _, closed := body.count(); closed == 0 {
						t.Error("it was not closed")
					}
				})
			})
		}
	}
}

func TestTransport_RoundTrip_DoesNotChangeTheRequest(t *testing.T) {
	for _, status := range []int{200, 503, 429} {
		for _, scheme := range []string{"http", "https"} {
			inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.First(2, sluicetest.Status(status, "Retry-After: 1"))), func(w *world) {
				ctx, _ := sluicehttp.WithReport(sluicehttp.With(bg, sluicehttp.Overrides{AttemptTimeout: time.Minute}))
				body := &closing{Reader: strings.NewReader("body")}
				req := request(t, ctx, "POST", scheme+"://a.test/x?y", body)
				req.ContentLength = 4
				req.Header.Set("Idempotency-Key", "1")
				before, header := *req, req.Header.Clone()
				resp, err := w.rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if resp.Request != req {
					t.Error("the request of the response is another")
				}
				resp.Body.Close()
				if !reflect.DeepEqual(req.Header, header) || req.Body != before.Body || req.URL != before.URL || req.ContentLength != 4 ||
					req.GetBody != nil || req.Host != before.Host || req.Method != "POST" {
					t.Errorf("it was %+v, and is %+v", before, *req)
				}
			})
		}
	}
}

type fail struct{ err error }

func (f fail) Read([]byte) (int, error) { return 0, f.err }
