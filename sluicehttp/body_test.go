package sluicehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
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
					resp, err := w.client.Do(request(t, sluicehttp.WithOverrides(bg, c.o), c.method, scheme+"://a.test/", nil))
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

// A client that decodes the JSON of an error and forgets to close the body, as twilio-go does, keeps no permit: the
// transport has read that body to its end.
func TestTransport_PermitOfADecodedError(t *testing.T) {
	for _, status := range []int{400, 429, 500, 503} {
		for _, scheme := range []string{"http", "https"} {
			cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}, Retry: sluice.RetryPolicy{Attempts: 1}}
			inWorld(t, cfg, layers(sluicetest.Reply(status, `{"code":20503}`, "Content-Type: application/json")), func(w *world) {
				resp, err := w.client.Post(scheme+"://a.test/", "application/json", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				var answer struct{ Code int }
				if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Code != 20503 {
					t.Errorf("decoded %v, %v", answer, err)
				}
				if n := inFlight(w.rt); n != 0 {
					t.Errorf("%s, %d: %d in flight after its error was decoded", scheme, status, n)
				}
				resp.Body.Close()
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
		synctest.Wait()
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
			ctx, cancel := context.WithCancel(sluicehttp.WithOverrides(bg, o))
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
	inWorld(t, sluicehttp.Config{LeakThreshold: time.Hour}, nil, func(w *world) {
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
		"too large a call": {sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Cost: 2}), sluicehttp.Config{Gate: sluice.Config{Concurrency: 1, ConcurrencyUnit: sluice.Cost}}, sluicetest.ReadBody(), nil, 0},
		"no retry":         {sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true}), sluicehttp.Config{}, sluicetest.Status(503), nil, 4},
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
				ctx, _ := sluicehttp.WithReport(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{AttemptTimeout: time.Minute}))
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

// # Responses without content

// An answer without content gives its permit back with its header. Its body still
// reads to its end, its trailers arrive, and the handler is not interrupted, also
// where HTTP/2 ends the stream later than the header.
func TestTransport_AnswerWithoutContent(t *testing.T) {
	settings := []struct {
		name string
		cfg  func(cfg *sluicehttp.Config, l *lender)
	}{
		{"plain", func(*sluicehttp.Config, *lender) {}},
		{"AttemptTimeout", func(cfg *sluicehttp.Config, _ *lender) { cfg.Retry.AttemptTimeout = time.Second }},
		{"Permits", func(cfg *sluicehttp.Config, l *lender) { cfg.Gate.Semaphore = l }},
		{"both", func(cfg *sluicehttp.Config, l *lender) {
			cfg.Retry.AttemptTimeout, cfg.Gate.Semaphore = time.Second, l
		}},
		{"both, ReleaseAtHeaders", func(cfg *sluicehttp.Config, l *lender) {
			cfg.Retry.AttemptTimeout, cfg.Gate.Semaphore, cfg.ReleaseAtHeaders = time.Second, l, true
		}},
	}
	answers := []struct {
		name, method string
		status       int
		header       string // Content-Length
		retried      bool
	}{
		{"HEAD", "HEAD", 200, "5", false},
		{"no content", "GET", 204, "", false},
		{"no content to a DELETE", "DELETE", 204, "", false},
		{"not modified", "GET", 304, "", false},
		{"empty", "GET", 200, "0", false},
		{"empty, to a POST", "POST", 201, "0", false},
		{"not found", "GET", 404, "0", false},
		{"a failure", "POST", 500, "0", false},
		{"after a retry", "GET", 204, "", true},
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, set := range settings {
			for _, a := range answers {
				for _, work := range []time.Duration{0, 5 * time.Second} { // after the header
					for _, use := range []string{"read", "closed", "left"} {
						t.Run(fmt.Sprintf("%s/%s/%s/%v/%s", proto, set.name, a.name, work, use), func(t *testing.T) {
							l := new(lender)
							cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
							set.cfg(&cfg, l)
							interrupted := false // net/http itself interrupts a HEAD in HTTP/2
							handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								if a.header != "" {
									w.Header().Set("Content-Length", a.header)
								}
								w.Header().Set("Trailer", "X-Sum")
								w.WriteHeader(a.status)
								if work > 0 {
									_ = http.NewResponseController(w).Flush()
									select {
									case <-time.After(work):
									case <-r.Context().Done():
										interrupted = a.method != http.MethodHead
									}
								}
								w.Header().Set("X-Sum", "42")
							})
							faults := layers(sluicetest.Handler(handler))
							attempts := 1
							if a.retried {
								faults, attempts = layers(sluicetest.On(1, sluicetest.Status(503)), sluicetest.Handler(handler)), 2
							}
							inWorld(t, cfg, faults, func(w *world) {
								scheme := "http"
								if proto == "HTTP/2.0" {
									scheme = "https"
								}
								resp, err := w.rt.RoundTrip(request(t, bg, a.method, scheme+"://a.test/", nil))
								if err != nil {
									t.Fatal(err)
								}
								if resp.Proto != proto || resp.StatusCode != a.status {
									t.Errorf("%s %d", resp.Proto, resp.StatusCode)
								}
								came := w.now()
								if n := inFlight(w.rt); n != 0 {
									t.Errorf("%d permits are held with the header", n)
								}
								if cfg.Gate.Semaphore != nil && l.released != attempts {
									t.Errorf("%d leases were released, want %d", l.released, attempts)
								}
								switch use {
								case "read":
									body, err := io.ReadAll(resp.Body)
									if err != nil || len(body) != 0 {
										t.Errorf("read %q, %v", body, err)
									}
									http2 := proto == "HTTP/2.0" && a.method != "HEAD"
									if took := w.now() - came; http2 && took != work || !http2 && took != 0 {
										t.Errorf("the end of the body came after %v", took)
									}
									if got := resp.Trailer.Get("X-Sum"); http2 && work > 0 && got != "42" {
										t.Errorf("the trailer is %q", got)
									}
									time.Sleep(work)
									synctest.Wait()
									if interrupted {
										t.Error("the handler was interrupted")
									}
									resp.Body.Close()
								case "closed":
									resp.Body.Close()
								case "left": // the bubble ends only if no goroutine is left
									time.Sleep(work)
									synctest.Wait()
									if interrupted {
										t.Error("the handler was interrupted")
									}
								}
							})
						})
					}
				}
			}
		}
	}
}

// # Streams

func TestTransport_EventStream(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, layers(events(5, time.Minute)), func(w *world) {
			resp, err := w.client.Get(scheme + "://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for i := range 5 {
				if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i+1) || w.now() != time.Duration(i)*time.Minute {
					t.Errorf("%q at %v", lines.Text(), w.now())
				}
				if n := inFlight(w.rt); n != 1 && i < 4 {
					t.Errorf("%d in flight while it streams", n)
				}
				lines.Scan()
			}
			if lines.Scan() || lines.Err() != nil || inFlight(w.rt) != 0 {
				t.Errorf("in the end %v, %d in flight", lines.Err(), inFlight(w.rt))
			}
		})
	}
}

func TestTransport_Upgrade(t *testing.T) {
	for _, o := range []sluicehttp.Overrides{{}, {AttemptTimeout: time.Second}, {ReleaseAtHeaders: true}, {AttemptTimeout: time.Second, ReleaseAtHeaders: true}} {
		inWorld(t, sluicehttp.Config{Gate: sluice.Config{Concurrency: 1}}, layers(echo(t, 10)), func(w *world) {
			req := request(t, sluicehttp.WithOverrides(bg, o), "GET", "http://a.test/", nil)
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "echo")
			resp, err := w.rt.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", resp, err)
			}
			conn, ok := resp.Body.(io.ReadWriteCloser)
			if !ok {
				t.Fatalf("the body is a %T, and cannot be written to", resp.Body)
			}
			time.Sleep(time.Minute) // longer than an attempt may take
			if _, err := conn.Write([]byte("0123456789")); err != nil {
				t.Error(err)
			}
			if n := inFlight(w.rt); (n == 0) != o.ReleaseAtHeaders {
				t.Errorf("%d in flight", n)
			}
			got, err := io.ReadAll(conn)
			if string(got) != "0123456789" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if half, ok := conn.(interface{ CloseWrite() error }); !ok {
				t.Error("it cannot be closed for writing")
			} else if err := half.CloseWrite(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, io.ErrClosedPipe) {
				t.Logf("CloseWrite: %v", err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if n := inFlight(w.rt); n != 0 {
				t.Errorf("%d in flight in the end", n)
			}
		})
	}
}

func TestTransport_InformationalAnswers(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, method := range []string{"GET", "POST"} { // the latter has a trace of ours, too
			inWorld(t, sluicehttp.Config{}, layers(earlyHints), func(w *world) {
				var codes []int
				ctx := httptrace.WithClientTrace(bg, &httptrace.ClientTrace{
					Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
						codes = append(codes, code)
						return nil
					},
				})
				status, _, err := w.do(request(t, ctx, method, scheme+"://a.test/", nil))
				if status != 200 || err != nil || len(codes) != 1 || codes[0] != 103 {
					t.Errorf("%d, %v, informed %v", status, err, codes)
				}
			})
		}
	}
}

// # Bodies of requests

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
		{"unknown", plain(content), 0, 2, nil}, // as resend-go sends it
		{"unknown, 64 KiB", plain(strings.Repeat("x", 64<<10)), 0, 2, nil},
		{"unknown, more", plain(strings.Repeat("x", 64<<10+1)), 0, 1, sluicehttp.ErrReplay},
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
				if got[0].BodyLen != max(c.length, req.ContentLength, 0) && !strings.HasPrefix(c.name, "unknown") {
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
