package sluicehttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Why a request that failed was not sent again, as a [Report] tells; beside the
// reasons that package sluice knows.
var (
	// ErrReplay: its body has been read, has no GetBody, and is longer than
	// 64 KiB or of unknown length.
	ErrReplay = errors.New("sluicehttp: the body cannot be sent again")

	// ErrUnsafe: it is not idempotent, and the server may have acted on it.
	ErrUnsafe = errors.New("sluicehttp: the request may not be sent twice")

	// ErrNoRetry: its Overrides say so.
	ErrNoRetry = errors.New("sluicehttp: the request is not to be retried")
)

// A StatusError is an answer that counts as a failure. Reports have it, and the
// error of a request whose answers had all been discarded when it ended.
type StatusError struct {
	Status int
	Why    string // what the server said about the reason, or ""
}

// Error returns the status and its text.
func (e *StatusError) Error() string {
	s := strings.TrimSpace(strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// retryStatus reports whether an answer is one that may be another next time.
func (t *Transport) retryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	// Cloudflare's, of an origin that it could not reach or understand. 529 is a
	// throttle.
	return status >= 520 && status <= 528 || slices.Contains(t.cfg.AlsoRetry, status)
}

// idempotent reports whether the request may be sent twice: by its method (RFC 9110,
// section 9.2.2), because it has a key by which the server knows a copy, or because
// the caller says so. net/http goes by such keys, too, but has PUT and DELETE sent
// once only.
func (c *call) idempotent() bool {
	req := c.req
	switch req.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return c.o.Idempotent || req.Header["Idempotency-Key"] != nil || req.Header["X-Idempotency-Key"] != nil ||
		c.t.cfg.Idempotent != nil && c.t.cfg.Idempotent(req)
}

// A failure is how an attempt failed.
type failure struct {
	err       error     // a *StatusError, or that of the base transport
	throttled bool      // the server refused because there were too many
	at        time.Time // when to send it again at the earliest, if the server said
	final     error     // why there must be no other attempt, or nil
}

// judge returns how the attempt failed that was answered with resp at now, or nil
// if it did not. resp has been read into said.
func (c *call) judge(resp *http.Response, said *ratelimit.Snapshot, now time.Time) *failure {
	safe := c.safe
	switch {
	case said.Throttled:
		// The server has refused to process it, so any method may be tried
		// again. So it is with 529: those that send it turn the request down
		// because they are busy, and have other statuses for a breakdown. 503
		// stands for both, and then only the server knows.
		refused := resp.StatusCode != http.StatusServiceUnavailable || said.ShouldRetry == ratelimit.Yes
		if refused && !c.t.cfg.KeepRefused {
			safe = true
		}
	case said.ShouldRetry == ratelimit.Yes && resp.StatusCode >= 400:
		safe = true // it must know
	case !c.t.retryStatus(resp.StatusCode):
		return nil
	}
	f := &failure{err: &StatusError{resp.StatusCode, said.Reason}}
	switch {
	case said.ShouldRetry == ratelimit.No:
		f.final = sluice.ErrPermanent
	case !safe:
		f.final = ErrUnsafe
	}
	if f.throttled, f.at = said.Throttled, said.RetryAt; !f.throttled {
		f.at = c.t.later(f.at, now)
	}
	return f
}

// marked returns the error of f for sluice.Attempts: it pauses the gate after a
// throttle. After any other failure a time is for this call only: perhaps it failed
// by its own fault.
func (f *failure) marked() error {
	switch {
	case f.throttled:
		return sluice.RetryAt(f.err, f.at) // zero: it did not say
	case !f.at.IsZero():
		return sluice.NotBefore(f.err, f.at)
	}
	return f.err
}

// judgeError returns how the attempt failed that ended with err instead of an
// answer.
func (c *call) judgeError(err error, unwritten bool) *failure {
	f := &failure{err: err}
	switch {
	case hopeless(err) || c.t.refusedByProxy(err) || !wellFormed(c.req):
		f.final = sluice.ErrPermanent
	case !c.safe && !unwritten && !neverWritten(err):
		f.final = ErrUnsafe
	}
	return f
}

// hopeless reports that err would come again: the server is another one than was
// meant, or none. Types are asked, not texts; of net/http's own errors few have
// one, see wellFormed.
func hopeless(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.IsNotFound
	}
	return errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, http.ErrSkipAltProtocol) ||
		is[*tls.CertificateVerificationError](err) || is[tls.AlertError](err) ||
		is[tls.RecordHeaderError](err) || is[*tls.ECHRejectionError](err) ||
		is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) || is[x509.SystemRootsError](err) ||
		is[*net.AddrError](err) || is[*net.ParseError](err) || is[net.UnknownNetworkError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// neverWritten reports that err came before anything was written: no connection
// was made, or an HTTP/2 server refused the stream.
func neverWritten(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var stream streamError
	return errors.As(err, &stream) && stream.Code == refusedStream
}

// A streamError is what net/http's errors of HTTP/2 streams can be turned into by
// errors.As. They are not exported, but fill any struct with these fields; the
// name must end in Error for vet's sake.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error.
func (e streamError) Error() string { return "stream error" }

const refusedStream = 0x7 // RFC 9113, section 7: "prior to any application processing"

// wellFormed reports whether net/http would send req at all. It refuses the rest
// without a type of error, and would again.
func wellFormed(req *http.Request) bool {
	if scheme := strings.ToLower(req.URL.Scheme); scheme != "http" && scheme != "https" || req.URL.Host == "" {
		return false
	}
	if req.Method != "" && !token(req.Method) {
		return false
	}
	for _, h := range []http.Header{req.Header, req.Trailer} {
		for name, values := range h {
			if !token(name) || slices.ContainsFunc(values, invalidValue) {
				return false
			}
		}
	}
	return true
}

// token reports whether s is one (RFC 9110, section 5.6.2).
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// invalidValue reports whether s has control characters, which no value may.
func invalidValue(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0
}

// retriedOutside reports whether req is a retry already, made by the loop of an
// SDK above us: those say so in a header field.
func retriedOutside(req *http.Request) bool {
	return positive(req.Header["X-Stainless-Retry-Count"], 0) ||
		positive(req.Header["Grpc-Previous-Rpc-Attempts"], 0) ||
		positive(attemptOf(req.Header["Amz-Sdk-Request"]), 1)
}

// positive reports whether the first of values is a number above least.
func positive(values []string, least int) bool {
	if len(values) == 0 {
		return false
	}
	n, err := strconv.Atoi(values[0])
	return err == nil && n > least
}

// attemptOf returns the attempt of a field such as "attempt=2; max=3".
func attemptOf(values []string) []string {
	if len(values) == 0 {
		return nil
	}
	for part := range strings.SplitSeq(values[0], ";") {
		if n, ok := strings.CutPrefix(strings.TrimSpace(part), "attempt="); ok {
			return []string{n}
		}
	}
	return nil
}
