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
)

// Why a failed request was not sent again, in a [Report]. There are also ErrAttempts and
// the other errors of package sluice.
var (
	// ErrReplay means that the body has been read, has no GetBody, and is longer
	// than 64 KiB, or of unknown length and not read to its end.
	ErrReplay = errors.New("sluicehttp: the body cannot be sent again")

	// ErrUnsafe means that the request is not idempotent and the server may have
	// acted on it.
	ErrUnsafe = errors.New("sluicehttp: the request may not be sent twice")

	errNoRetry = errors.New("sluicehttp: the request must not be retried")
)

// A StatusError is a response that counts as a failure: in a [Report], for
// RetryPolicy.Retryable, and in the error of a request whose responses were all discarded.
type StatusError struct {
	Status int
	Why    string // the server's statement about it, or ""
}

// Error returns the status and its text.
func (e *StatusError) Error() string {
	s := strings.TrimSpace(strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// retryStatus reports whether a response with status may differ next time.
func (t *Transport) retryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, 420, 430, 509: // these three: see mayBeRefusal
		return true
	}
	// From Cloudflare about an origin that it could not reach or understand. 529 is
	// a throttle.
	return status >= 520 && status <= 528 || slices.Contains(t.cfg.AlsoRetry, status)
}

// idempotent reports whether the request may be sent twice: because of its method (RFC 9110,
// section 9.2.2) or an idempotency key. net/http also accepts such keys, but not PUT and
// DELETE. Config.Idempotent has not been asked yet.
func (c *call) idempotent() bool {
	req := c.req
	switch req.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return c.o.Idempotent || req.Header["Idempotency-Key"] != nil || req.Header["X-Idempotency-Key"] != nil
}

// hopeless reports whether err would occur again: there is no such server, or it is not the
// one that was meant. It looks at types only; few errors of net/http itself have one, see
// wellFormed.
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

// neverWritten reports whether err occurred before anything was written: there was no
// connection, or an HTTP/2 server rejected the stream.
func neverWritten(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var stream streamError
	return errors.As(err, &stream) && stream.Code == refusedStream
}

// A streamError is filled by errors.As from an error of net/http about an HTTP/2 stream.
// Those errors are not exported, but fill any struct with these fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error.
func (e streamError) Error() string { return "stream error" }

// Codes of RFC 9113, section 7.
const (
	refusedStream   = 0x7 // "prior to any application processing"
	enhanceYourCalm = 0xb // the client "might be generating excessive load"
)

// canceled reports whether the deprecated Request.Cancel of req is closed, which the base
// transport honors in each attempt.
func canceled(req *http.Request) bool {
	select {
	case <-req.Cancel: //lint:ignore SA1019 an http.Client with a Timeout sets it, too
		return true
	default:
		return false
	}
}

// wellFormed reports whether net/http would send req at all. Its errors for other requests
// have no type.
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

// token reports whether s is a token (RFC 9110, section 5.6.2).
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// invalidValue reports whether s has control characters.
func invalidValue(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0
}

// retriedOutside reports whether req is a retry by an SDK, which says so in the header.
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
