package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// quotaExceeded is a problem type of the draft about RateLimit header fields.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A problem is an answer of the proxy itself: application/problem+json (RFC 9457), and a
// Proxy-Status (RFC 9209), which tells it from an answer of the upstream.
type problem struct {
	status int
	kind   string // its type, "" for about:blank
	title  string
	detail string
	proxy  string        // the error of Proxy-Status
	after  time.Duration // of Retry-After; 0 for none
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Proxy-Status", "sluice; error="+p.proxy)
	said := map[string]any{"title": p.title, "status": p.status}
	if p.detail != "" {
		said["detail"] = p.detail
	}
	if p.kind != "" {
		said["type"] = p.kind
	}
	if p.after > 0 {
		seconds := seconds(p.after)
		h.Set("Retry-After", seconds)
		said["retry_after"], _ = strconv.ParseInt(seconds, 10, 64)
	}
	text, _ := json.Marshal(said) // texts and numbers can be encoded
	w.WriteHeader(p.status)
	_, _ = w.Write(append(text, '\n'))
}

// seconds returns d as a Retry-After, rounded up, and at least 1.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Max(1, math.Ceil(d.Seconds()))), 10)
}

// tooLong is the problem of a wait that is longer than the patience of the caller: of need, if that
// is known and not 0, because of cause.
func tooLong(need time.Duration, cause limits.Cause, why string) *problem {
	p := &problem{status: http.StatusTooManyRequests, kind: quotaExceeded, title: "The wait is longer than the caller's patience", proxy: "connection_limit_reached"}
	p.detail = "The call would have to wait"
	if cause != "" {
		p.detail += " for the " + string(cause)
		if why != "" {
			p.detail += " (" + why + ")"
		}
	}
	p.detail += "."
	if p.after = need; need == limits.Never {
		p.after = 0
		p.detail += " It could never be sent."
	} else if need <= 0 {
		p.after = time.Second
	}
	return p
}

// problemOf returns the answer to a call that ended with err, or nil if the caller has hung up.
// It names no URL or header of the call.
func problemOf(c *call, err error) *problem {
	_, cause := c.wasHeldBy()
	if wait, ok := errors.AsType[*limits.WaitError](err); ok {
		return tooLong(wait.Need, wait.For, wait.Why)
	}
	if p := problemOfBody(err); p != nil { // net/http ends the context, too, if a body stalls
		return p
	}
	stopped, _ := errors.AsType[*sluice.RetryError](err)
	switch {
	case context.Cause(c.Context) == errPatience:
		return tooLong(0, cause, "")
	case c.Context.Err() != nil:
		return nil
	case errors.Is(err, limits.ErrClosed):
		return &problem{status: http.StatusServiceUnavailable, title: "The proxy is shutting down", proxy: "proxy_internal_response", after: time.Second}
	case errors.Is(err, sluice.ErrServerWait):
		p := tooLong(0, limits.ByPause, "the server requests a long wait")
		if stopped != nil && !stopped.RetryAt.IsZero() {
			p.after = max(time.Second, time.Until(stopped.RetryAt))
		}
		return p
	}
	return problemOfConnection(err)
}

// problemOfBody returns the answer if err is about the request of the caller, or nil.
func problemOfBody(err error) *problem {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large, errors.Is(err, errBodyTooLarge):
		return &problem{status: http.StatusRequestEntityTooLarge, title: "The body is too large", proxy: "http_request_error"}
	case errors.Is(err, errSlowBody):
		return &problem{status: http.StatusRequestTimeout, title: "The body does not arrive", proxy: "http_request_error"}
	}
	return nil
}

// problemOfConnection returns the answer if there was no response from the upstream.
func problemOfConnection(err error) *problem {
	_, private := errors.AsType[*privateError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case private:
		return &problem{status: http.StatusBadGateway, title: "The upstream has a private address", detail: "A -route to it allows it.", proxy: "destination_ip_prohibited"}
	case certificate:
		return &problem{status: http.StatusBadGateway, title: "The certificate of the upstream is not valid", proxy: "tls_certificate_error"}
	case unresolved:
		return &problem{status: http.StatusBadGateway, title: "The name of the upstream cannot be resolved", proxy: "dns_error"}
	case ok && timeout.Timeout():
		return &problem{status: http.StatusGatewayTimeout, title: "The upstream does not answer", proxy: "connection_timeout"}
	}
	return &problem{status: http.StatusBadGateway, title: "The upstream cannot be reached", proxy: "destination_unavailable"}
}
