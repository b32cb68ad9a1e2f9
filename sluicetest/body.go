package sluicetest

import (
	"io"
	"net/http"
)

// A Body is the body of an answer, as a client treated it.
type Body struct {
	// Method and URL are of the request, Status is of the answer.
	Method, URL string
	Status      int
	// Read is how many bytes the client has read. AtEnd says that it has read
	// on until the end or an error, Closed that it has closed the body.
	Read   int64
	AtEnd  bool
	Closed bool
}

// Watch returns a RoundTripper that sends requests through rt and notes in the
// record of s what the client does to the bodies of the answers. Whether the
// body of an answer is read or closed is not to be seen at the server. Methods
// of rt that are not RoundTrip are hidden, but CloseIdleConnections works. A
// body can still be written to if it could before, after an upgrade.
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
	b.is = Body{Method: r.Method, URL: r.URL.String(), Status: resp.StatusCode}
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

// A watched is a body under watch.
type watched struct {
	io.ReadCloser
	book *book
	is   Body // belongs to the book
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.book.mu.Lock()
	defer b.book.mu.Unlock()
	b.is.Read += int64(n)
	b.is.AtEnd = b.is.AtEnd || err != nil && !b.is.Closed // else the error may be about that
	return n, err
}

func (b *watched) Close() error {
	b.book.mu.Lock()
	b.is.Closed = true
	b.book.mu.Unlock()
	return b.ReadCloser.Close()
}
