package sluicehttp_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// An outcome is what a base transport makes of the first attempt; the second
// succeeds.
type outcome struct {
	status int
	header string // "Name: value" lines
	err    error
}

// String is for messages.
func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprint(o.status, " ", o.header)
}

// A scripted is a base transport that keeps its contract: it closes the body of
// each request, having read it or not.
type scripted struct {
	first  outcome
	reads  bool     // the bodies of requests
	bodies []string // of each attempt, as far as it was read
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		if s.reads {
			content, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			body = string(content)
		}
		req.Body.Close()
	}
	o := outcome{status: 200}
	if s.bodies = append(s.bodies, body); len(s.bodies) == 1 {
		o = s.first
	}
	if o.err != nil {
		return nil, o.err
	}
	return &http.Response{StatusCode: o.status, Header: header(o.header), Body: io.NopCloser(strings.NewReader("answer"))}, nil
}

func header(lines string) http.Header {
	h := make(http.Header)
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Set(name, value)
	}
	return h
}

// A decision is one row of the table "What is sent again" in the documentation,
// spelled out.
type decision struct {
	method, mark, body string
	outcome            outcome
	reads, keep        bool
}

// again is that table once more, written from the text.
func (d decision) again() bool {
	idempotent := strings.Contains(" GET HEAD OPTIONS TRACE PUT DELETE ", " "+d.method+" ") || d.method == "" || d.mark != ""
	if d.body == "long" && d.reads {
		return false // it cannot be had again
	}
	if err := d.outcome.err; err != nil {
		switch {
		case strings.Contains(err.Error(), "dial"):
			return !strings.Contains(err.Error(), "no such host")
		case strings.Contains(err.Error(), "certificate"):
			return false
		}
		return idempotent
	}
	has := func(line string) bool { return strings.Contains(d.outcome.header, line) }
	status := d.outcome.status
	switch {
	case has("X-Should-Retry: false"):
		return false
	case has("X-Should-Retry: true") && status >= 400 && !(d.keep && d.throttled()):
		return true
	case status == 429 || status == 529 || status == 403 && d.throttled():
		return idempotent || !d.keep
	case status == 409 || status == 413 || status == 423:
		return idempotent && (has("Retry-After") || has("X-Should-Retry: true"))
	case status == 503 || strings.Contains(" 408 425 500 502 504 520 528 ", fmt.Sprintf(" %d ", status)):
		return idempotent
	}
	return has("X-Should-Retry: true") && status >= 400 && idempotent
}

func (d decision) throttled() bool {
	hasTime := strings.Contains(d.outcome.header, "Retry-After")
	return d.outcome.status == 429 || d.outcome.status == 529 || hasTime && (d.outcome.status == 403 || d.outcome.status == 503)
}

// run sends one request and checks what the documentation says of it.
func (d decision) run(t *testing.T) {
	base := &scripted{first: d.outcome, reads: d.reads}
	rt := mustTransport(t, base, sluicehttp.Config{Retry: seconds, NoRetryThrottled: d.keep, Gate: sluice.Config{Concurrency: 1}})
	content := "body"
	if d.body == "long" {
		content = strings.Repeat("0123456789abcdef", 4<<10) + "." // 64 KiB and one
	}
	body := &closing{Reader: strings.NewReader(content)}
	ctx, report := sluicehttp.WithReport(bg)
	if d.mark == "override" {
		ctx = sluicehttp.WithOverrides(ctx, sluicehttp.Overrides{Idempotent: true})
	}
	req := request(t, ctx, d.method, "http://a.test/", nil)
	if d.mark != "" && d.mark != "override" {
		req.Header.Set(d.mark, "1")
	}
	if d.method == "" {
		req.Method = ""
	}
	asked := 0
	switch d.body {
	case "none":
		content = ""
	case "GetBody":
		req.GetBody = func() (io.ReadCloser, error) {
			asked++
			return io.NopCloser(strings.NewReader(content)), nil
		}
		fallthrough
	case "small", "long":
		req.ContentLength = int64(len(content))
		fallthrough
	default:
		req.Body = body
	}
	before := *req
	before.Header = req.Header.Clone()
	before.GetBody = nil

	resp, err := rt.RoundTrip(req)

	want := 1
	if d.again() {
		want = 2
	}
	if len(base.bodies) != want {
		t.Errorf("%+v: %d attempts, want %d; why: %v", d, len(base.bodies), want, report.Last().Why)
	}
	for _, sent := range base.bodies {
		if d.reads && sent != content {
			t.Errorf("%+v: a body of %d bytes was sent", d, len(sent))
		}
	}
	switch {
	case want == 2 && (err != nil || resp.StatusCode != 200),
		want == 1 && d.outcome.err != nil && err != d.outcome.err,
		want == 1 && d.outcome.err == nil && (err != nil || resp.StatusCode != d.outcome.status):
		t.Errorf("%+v: got %v, %v", d, resp, err)
	}
	if resp != nil {
		got, err := io.ReadAll(resp.Body)
		if string(got) != "answer" || err != nil || resp.Request != req {
			t.Errorf("%+v: the answer is %q, %v", d, got, err)
		}
	}
	if _, closed := body.count(); (closed == 0) != (d.body == "none") {
		t.Errorf("%+v: the body was closed %d times", d, closed)
	}
	if asked != 0 && d.body != "GetBody" || d.body == "GetBody" && asked != want-1 {
		t.Errorf("%+v: GetBody was called %d times", d, asked)
	}
	after := *req
	after.GetBody = nil
	if !reflect.DeepEqual(after, before) {
		t.Errorf("%+v: the request was changed", d)
	}
	if n := inFlight(rt); n != 0 {
		t.Errorf("%+v: %d in flight", d, n)
	}
}

func TestTransport_Decisions(t *testing.T) {
	built.SkipRaced(t)
	var outcomes []outcome
	for _, status := range []int{200, 301, 400, 403, 404, 408, 409, 413, 423, 425, 429, 500, 501, 502, 503, 504, 505, 519, 520, 528, 529, 530} {
		for _, retryAfter := range []string{"", "Retry-After: 1\n"} {
			for _, should := range []string{"", "X-Should-Retry: true\n", "X-Should-Retry: false\n"} {
				outcomes = append(outcomes, outcome{status: status, header: retryAfter + should})
			}
		}
	}
	for _, err := range []error{
		errors.New("connection lost"),
		io.ErrUnexpectedEOF,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}},
		&tls.CertificateVerificationError{Err: errors.New("certificate of another")},
	} {
		outcomes = append(outcomes, outcome{err: err})
	}
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH", "LOCK"} {
			for _, mark := range []string{"", "Idempotency-Key", "X-Idempotency-Key", "override"} {
				for _, body := range []string{"none", "GetBody", "small", "long", "unknown"} {
					if mark != "" && method != "POST" || body == "long" && method != "PUT" && method != "POST" {
						continue // nothing new, and 20 s of it
					}
					for i := range 4 {
						for _, o := range outcomes {
							decision{method, mark, body, o, i&1 > 0, i&2 > 0}.run(t)
							if t.Failed() {
								return // one tells enough
							}
						}
					}
				}
			}
		}
	})
}

// A lock that says when to come back delays only its call.
func TestTransport_Locked(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusLocked} {
		locked := sluicetest.Path("/locked", sluicetest.First(2, sluicetest.Status(status, "Retry-After: 3")))
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(locked), func(w *world) {
			go w.wantGet("https://a.test/locked", http.StatusOK)
			time.Sleep(ms)
			for range 8 {
				w.wantGet("https://a.test/free", http.StatusOK)
			}
			if w.now() != ms {
				t.Errorf("%d: others waited until %v", status, w.now())
			}
			time.Sleep(10 * time.Second)
			if came := w.srv.Record().Arrivals(); came[len(came)-1] != 6*time.Second {
				t.Errorf("%d: it came at %v", status, came)
			}
		})
	}
}
