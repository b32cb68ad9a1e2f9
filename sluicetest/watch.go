package sluicetest

import (
	"io"
	"net/http"
)

// A body is the body of a response, as a client treated it.
type body struct {
	method, url string // of the request
	status      int
	read        int64 // bytes
	atEnd       bool  // read to the end or to an error
	closed      bool
}

// Watch returns a RoundTripper that sends requests through rt and records the client's use of the
// bodies of the responses, for [Record.CheckBodies]. Of the methods of rt, only RoundTrip and
// CloseIdleConnections are available.
func (s *Server) Watch(rt http.RoundTripper) http.RoundTripper { return &watcher{rt, &s.book} }

type watcher struct {
	http.RoundTripper
	book *book
}

func (t *watcher) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *watcher) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	empty := resp.ContentLength == 0 && resp.StatusCode != http.StatusSwitchingProtocols
	if empty || r.Method == http.MethodHead {
		return resp, nil
	}
	b := &watched{ReadCloser: resp.Body, book: t.book}
	b.is = body{method: r.Method, url: r.URL.String(), status: resp.StatusCode}
	t.book.mu.Lock()
	t.book.bodies = append(t.book.bodies, b)
	t.book.mu.Unlock()
	resp.Body = b
	if w, ok := b.ReadCloser.(io.Writer); ok {
		resp.Body = struct {
			*watched
			io.Writer
		}{b, w}
	}
	return resp, nil
}

// A watched is a body that notes how it is used.
type watched struct {
	io.ReadCloser
	book *book
	is   body // guarded by book.mu
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.book.mu.Lock()
	defer b.book.mu.Unlock()
	b.is.read += int64(n)
	b.is.atEnd = b.is.atEnd || err != nil && !b.is.closed // an error after Close says nothing
	return n, err
}

func (b *watched) Close() error {
	b.book.mu.Lock()
	b.is.closed = true
	b.book.mu.Unlock()
	return b.ReadCloser.Close()
}
