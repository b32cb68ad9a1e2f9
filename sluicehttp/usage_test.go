package sluicehttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// An answerWith streams parts, one each second, and then waits if it is open.
type answerWith struct {
	kind    string
	parts   []string
	trailer string // the tokens
	open    bool
}

func (a answerWith) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	if a.trailer != "" {
		w.Header().Set("Trailer", "X-Tokens")
	}
	for i, p := range a.parts {
		if i > 0 {
			time.Sleep(time.Second)
		}
		_, _ = io.WriteString(w, p)
		w.(http.Flusher).Flush()
	}
	if a.open {
		<-r.Context().Done()
	}
	if a.trailer != "" {
		w.Header().Set("X-Tokens", a.trailer)
	}
}

// fromTrailer reads the tokens from a trailer, and from JSON.
func fromTrailer(resp *http.Response, part []byte, used sluice.Costs) {
	totalTokens("tokens")(resp, part, used)
	if n, err := strconv.ParseInt(resp.Trailer.Get("X-Tokens"), 10, 64); err == nil {
		used["tokens"] = n
	}
}

const (
	stream  = "text/event-stream; charset=utf-8"
	delta   = "event: x\ndata: {\"delta\":\"a\"}\n\n"
	usage20 = "data: {\"usage\":{\"total_tokens\":20}}\n\n"
	usage30 = ": comment\r\ndata: {\"usage\":\r\ndata:{\"total_tokens\":30}}\r\n\r\n"
	done    = "data: [DONE]\n\n"
)

var longText = strings.Repeat("a long answer ", 15_000)

// What a response says that it took replaces the estimate of 100, when the body ends.
func TestUsage_Settles(t *testing.T) {
	json20 := `{"choices":[],"usage":{"total_tokens":20}}`
	for _, c := range []struct {
		name   string
		answer answerWith
		read   int // bytes, then Close; -1 for all
		cancel bool
		free   bool
		want   int64 // tokens taken
	}{
		{name: "JSON", answer: answerWith{kind: "application/json", parts: []string{json20}}, read: -1, want: 20},
		{name: "JSON in parts", answer: answerWith{kind: "application/json", parts: []string{json20[:30], json20[30:]}}, read: -1, want: 20},
		{name: "JSON, closed without its end", answer: answerWith{kind: "application/json", parts: []string{json20}, open: true}, read: len(json20), want: 20},
		{name: "JSON, closed before", answer: answerWith{kind: "application/json", parts: []string{json20}, open: true}, read: 30, want: 100},
		{name: "long JSON, at its beginning", answer: answerWith{kind: "application/json", parts: []string{`{"usage":{"total_tokens":20},"choices":[{"text":"`, longText, `"}]}`}}, read: -1, want: 20},
		{name: "long JSON, in its middle", answer: answerWith{kind: "application/json", parts: []string{`{"text":"`, longText, `","usage":{"total_tokens":20},"choices":["`, longText, `"]}`}}, read: -1, want: 20},
		{name: "long event, at its beginning", answer: answerWith{kind: stream, parts: []string{`data: {"usage":{"total_tokens":20},"text":"`, longText, "\"}\n\n"}}, read: -1, want: 20},
		{name: "something else", answer: answerWith{kind: "text/html", parts: []string{"<p>"}}, read: -1, want: 100},
		{name: "negative", answer: answerWith{kind: "application/json", parts: []string{`{"usage":{"total_tokens":-20}}`}}, read: -1, want: 100},
		{name: "far too large", answer: answerWith{kind: "application/json", parts: []string{`{"usage":{"total_tokens":9000000000}}`}}, read: -1, want: 100},
		{name: "trailer", answer: answerWith{kind: "text/plain", parts: []string{"x", "y"}, trailer: "25"}, read: -1, want: 25},
		{name: "trailer of a stream", answer: answerWith{kind: stream, parts: []string{delta, usage20}, trailer: "25"}, read: -1, want: 25},
		{name: "event", answer: answerWith{kind: stream, parts: []string{delta, usage20, done}}, read: -1, want: 20},
		{name: "last event", answer: answerWith{kind: stream, parts: []string{usage20, delta, usage30, done}}, read: -1, want: 30},
		{name: "event without its empty line", answer: answerWith{kind: stream, parts: []string{delta, strings.TrimSuffix(usage20, "\n")}}, read: -1, want: 20},
		{name: "event without its newline", answer: answerWith{kind: stream, parts: []string{usage30, `data: {"usage":{"total_tokens":20}}`}}, read: -1, want: 20},
		{name: "event that was cut", answer: answerWith{kind: stream, parts: []string{usage30, `data: {"usage":{"total_tokens":1`}}, read: -1, want: 30},
		{name: "stream closed early", answer: answerWith{kind: stream, parts: []string{usage20, delta}, open: true}, read: len(usage20) + 3, want: 20},
		{name: "stream closed before it is known", answer: answerWith{kind: stream, parts: []string{delta}, open: true}, read: 5, want: 100},
		{name: "stream cancelled", answer: answerWith{kind: stream, parts: []string{usage20, delta}, open: true}, read: len(usage20), cancel: true, want: 20},
		{name: "released at headers", answer: answerWith{kind: stream, parts: []string{delta, usage20, done}}, read: -1, free: true, want: 20},
	} {
		for _, url := range []string{"http://a.test/", "https://a.test/"} {
			t.Run(c.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: 1000 * time.Hour, Burst: 100}))
					cfg := sluicehttp.Config{
						Gate: sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: b}}},
						Cost: estimated("tokens"), Usage: fromTrailer, ReleaseAtHeaders: c.free,
					}
					withWorld(t, cfg, layers(sluicetest.Handler(c.answer)), func(w *world) {
						ctx, cancel := context.WithCancel(bg)
						defer cancel()
						resp, err := w.client.Do(request(w, ctx, http.MethodPost, url, strings.NewReader(`{"max_tokens":100}`)))
						if err != nil {
							t.Fatal(err)
						}
						wantLeft(t, b, 0)
						if c.read < 0 {
							_, err = io.Copy(io.Discard, resp.Body)
						} else {
							_, err = io.ReadFull(resp.Body, make([]byte, c.read))
						}
						if err != nil {
							t.Error(err)
						}
						if c.cancel {
							cancel()
							time.Sleep(time.Second)
						} else if c.read >= 0 {
							resp.Body.Close()
						}
						wantLeft(t, b, 100-c.want)
						resp.Body.Close() // again: settled once
						wantLeft(t, b, 100-c.want)
						time.Sleep(time.Second)
						if n := inFlight(w.rt); n != 0 {
							t.Errorf("%d in flight", n)
						}
					})
				})
			})
		}
	}
}

// What is given back reaches a request that waits, at that instant, and the stream is not
// held up.
func TestUsage_WakesThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: 1000 * time.Hour, Burst: 100}))
		cfg := sluicehttp.Config{
			Gate: sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: b}}},
			Cost: estimated("tokens"), Usage: totalTokens("tokens"),
		}
		answer := answerWith{kind: stream, parts: []string{delta, delta, usage20, done}}
		withWorld(t, cfg, layers(sluicetest.Handler(answer)), func(w *world) {
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, err := w.post(bg, llmRequest{MaxTokens: 80}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			w.wantCame(0, 3*time.Second)
			wantLeft(t, b, 60)
		})
	})
}

// By hand before the end: the body is not asked.
func TestUsage_ComesAfterReportSettle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, gate := tokens(t)
		cfg := sluicehttp.Config{Gate: gate, Cost: estimated("tokens"), Usage: totalTokens("tokens")}
		withWorld(t, cfg, layers(sluicetest.Handler(answerWith{kind: stream, parts: []string{usage20}})), func(w *world) {
			ctx, report := sluicehttp.WithReport(bg)
			resp, err := w.client.Do(request(w, ctx, http.MethodPost, "https://a.test/", strings.NewReader(`{"max_tokens":100}`)))
			if err != nil {
				t.Fatal(err)
			}
			report.Settle(sluice.Costs{"tokens": 70})
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			wantLeft(t, b, 30)
		})
	})
}

// The parts of a body: the end of a long one, and the events of a stream wherever the reads
// cut it, of long ones the end.
func TestUsage_GetsBoundedParts(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000) + "end"
	events := []string{"a", "b\nc", "", strings.Repeat("d", 60_000), "e"}
	tooLong := strings.Repeat("too long", 10_000)
	var parts []string
	var sse strings.Builder
	for i, e := range events {
		parts = append(parts, e, tooLong[len(tooLong)-64<<10:])
		newline := []string{"\n", "\r\n", "\r"}[i%3]
		fmt.Fprint(&sse, ": ", strings.Repeat("c", i*100), newline, "id: 1", newline)
		for line := range strings.SplitSeq(e, "\n") {
			fmt.Fprint(&sse, "data:", []string{"", " "}[i%2], line, newline)
		}
		fmt.Fprint(&sse, newline)
		fmt.Fprint(&sse, "data: ", tooLong, "\n\n")
	}
	for _, c := range []struct {
		kind, body string
		want       []string
	}{
		{"application/json", long, []string{long[len(long)-64<<10:]}},
		{"application/json", "short", []string{"short"}},
		{"text/event-stream", sse.String(), append(slices.Clone(parts), "")},
		{"text/event-stream", "\ufeffdata:a\n\ndata: b\n\n", []string{"a", "b", ""}},
		{"text/event-stream", "\ufeff\ufeffdata:a\n\ndata:b\n\n", []string{"b", ""}},
		{"text/event-stream", "data:a\n\ndata:  b\rdata:\r\ndata:c", []string{"a", " b\n\nc", ""}},
		{"text/event-stream", "data:a\n\nevent: x\nDATA: b\ndatas: b\ndat", []string{"a", ""}},
	} {
		for _, size := range []int{1, 7, 4096, 100_000} {
			var got []string
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: 200, Header: http.Header{"Content-Type": {c.kind}}, Request: req,
					Body: io.NopCloser(readUpTo{strings.NewReader(c.body), size}),
				}, nil
			})
			rt := mustTransport(t, base, sluicehttp.Config{
				Cost:  func(*http.Request, []byte) sluice.Costs { return sluice.Costs{} },
				Usage: func(_ *http.Response, part []byte, _ sluice.Costs) { got = append(got, string(part)) },
			})
			resp, err := rt.RoundTrip(request(t, bg, http.MethodGet, "http://a.test/", nil))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(resp.Body)
			if string(content) != c.body || err != nil {
				t.Errorf("%s, %d bytes at a time: the body has changed, %v", c.kind, size, err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %d bytes at a time: %d parts, want %d", c.kind, size, len(got), len(c.want))
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// readUpTo reads at most size bytes at a time.
type readUpTo struct {
	io.Reader
	size int
}

func (r readUpTo) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), r.size)]) }

// Over real sockets: events arrive as they are sent, trailers and usage settle, and a
// request that waits for what is given back leaves.
func TestUsage_OverRealSockets(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		next := make(chan struct{})
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", stream)
			w.Header().Set("Trailer", "X-Tokens")
			for _, part := range []string{delta, usage20} {
				_, _ = io.WriteString(w, part)
				w.(http.Flusher).Flush()
				<-next // the client has it
			}
			w.Header().Set("X-Tokens", "25")
		}))
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: 1000 * time.Hour, Burst: 100}))
		rt := mustTransport(t, srv.Client().Transport, sluicehttp.Config{
			Gate: sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: b}}},
			Cost: estimated("tokens"), Usage: fromTrailer,
		})
		client := &http.Client{Transport: rt}
		for i := range 2 {
			resp, err := client.Do(request(t, bg, http.MethodPost, srv.URL, strings.NewReader(`{"max_tokens":70}`)))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{delta, usage20} {
				got := make([]byte, len(part))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != part {
					t.Errorf("read %q, %v", got, err)
				}
				wantLeft(t, b, 30-25*int64(i))
				next <- struct{}{}
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			resp.Body.Close()
			wantLeft(t, b, 75-25*int64(i))
		}
		client.CloseIdleConnections()
		srv.Close()
	}
}

// A long compressed response settles if net/http has uncompressed it. If the caller asked for it
// compressed, it is passed on as it is, and the estimate stays.
func TestUsage_Compressed(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprintf(w, `{"usage":{"total_tokens":20},"text":%q}`, longText)
	w.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", r.Header.Get("Accept-Encoding"))
		_, _ = w.Write(packed.Bytes())
	}))
	defer srv.Close()
	for _, own := range []bool{false, true} {
		b := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: 1000 * time.Hour, Burst: 100}))
		base := http.DefaultTransport.(*http.Transport).Clone()
		rt := mustTransport(t, base, sluicehttp.Config{
			Gate: sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: b}}},
			Cost: estimated("tokens"), Usage: fromTrailer,
		})
		req, want := request(t, bg, http.MethodPost, srv.URL, strings.NewReader(`{"max_tokens":70}`)), int64(80)
		if own {
			req.Header.Set("Accept-Encoding", "gzip")
			want = 30
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || own != bytes.Equal(body, packed.Bytes()) {
			t.Errorf("own Accept-Encoding %v: %d bytes, %v", own, len(body), err)
		}
		resp.Body.Close()
		wantLeft(t, b, want)
		base.CloseIdleConnections()
	}
}
