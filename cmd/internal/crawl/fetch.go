package crawl

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// An answer is what a host answered, or why there is none.
type answer struct {
	status int
	header http.Header
	body   []byte
	cut    bool // whether there was more of it
	err    error

	sent   time.Time
	waited time.Duration // before that, for the gate
	took   time.Duration
}

// failure is why the answer is no good, or nil.
func (a answer) failure() error {
	switch {
	case a.err != nil:
		return a.err
	case a.status >= 500 && a.status != http.StatusNotImplemented:
		return &statusError{a.status}
	}
	return nil
}

// hopeless reports a failure that will be the same again.
func (a answer) hopeless() bool {
	var wrong *tls.CertificateVerificationError
	var name *net.DNSError
	var address *url.Error
	if errors.As(a.err, &wrong) || errors.As(a.err, &name) && name.IsNotFound {
		return true
	}
	return a.err != nil && !errors.As(a.err, &address) && errors.Is(a.err, errRequest)
}

// cause is what went wrong, in few words. There must be a failure.
func (a answer) cause() string {
	if a.err == nil {
		return a.failure().Error()
	}
	var name *net.DNSError
	var system syscall.Errno
	var address *url.Error
	switch {
	case errors.As(a.err, &name):
		return name.Err
	case errors.As(a.err, &system):
		return system.Error()
	case errors.As(a.err, &address):
		return address.Err.Error()
	}
	return a.err.Error()
}

var errRequest = errors.New("not a request")

// sniffed is of how many bytes http.DetectContentType looks at.
const sniffed = 512

// get makes one request. want says how many bytes of the answer to read; it reads one more,
// to know whether there is more.
func (c *crawler) get(address string, l *link, want func(*http.Response) int64) (a answer) {
	v := c.vigil()
	defer v.end()
	req, err := http.NewRequestWithContext(v.ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer{err: errors.Join(errRequest, err)}
	}
	req.Body = once{} // see there
	maps.Copy(req.Header, c.o.headerFor(req.URL))
	req.Header.Set("User-Agent", c.o.agent)
	if l.etag != "" {
		req.Header.Set("If-None-Match", l.etag)
	}
	if l.modified != "" {
		req.Header.Set("If-Modified-Since", l.modified)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return answer{err: v.cause(err)}
	}
	v.answered()
	defer resp.Body.Close()
	body := bufio.NewReaderSize(watched{resp.Body, v}, sniffed)
	if resp.StatusCode/100 == 2 && strings.TrimSpace(resp.Header.Get("Content-Type")) == "" {
		// What it looks like, as browsers see it; but not the charset, which is a guess.
		begin, _ := body.Peek(sniffed) // an error comes again
		kind, _, _ := strings.Cut(http.DetectContentType(begin), ";")
		resp.Header.Set("Content-Type", kind)
	}
	a = answer{status: resp.StatusCode, header: resp.Header}
	most := want(resp)
	if most == 0 {
		// A short rest is read, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, body, 4<<10)
		return a
	}
	a.body, a.err = io.ReadAll(io.LimitReader(body, most+1))
	a.err = v.cause(a.err)
	if int64(len(a.body)) > most {
		a.body, a.cut = a.body[:most], true
	}
	return a
}

// once is an empty body, which is not sent: but net/http does not know that it can be sent
// again. Without it a request on a connection that the server closes is sent a second time,
// past the gate.
type once struct{}

func (once) Read([]byte) (int, error) { return 0, io.EOF }
func (once) Close() error             { return nil }
