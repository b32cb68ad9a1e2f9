package sluicehttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A body is sent more than once as follows:
//
//	none                       nothing to do
//	GetBody is set             a new one for each attempt
//	known length, ≤ 64 KiB     read into memory before the first attempt
//	unknown length             kept as the first attempt reads it, if it ends within 64 KiB
//	anything else              again only if nothing has been read of it
//
// The last case happens if there was no connection. The base transport closes the body all
// the same, so it gets a shield, which closes the body of the caller only after a read, or
// when there is no other attempt.

const smallBody = 64 << 10

// A replay is the body of a request, for several attempts.
type replay struct {
	body    io.ReadCloser                 // the caller's; nil if there is none or it was read into memory
	getBody func() (io.ReadCloser, error) // nil if there is none
	last    *shield                       // of the last attempt, if there is no getBody
	used    bool                          // an attempt was made
}

// newReplay returns the body of req. If again is true and the body is small, it reads and
// closes the body, until ctx is done. An error is that of the body or of ctx; then the body
// is closed.
func newReplay(ctx context.Context, req *http.Request, again bool) (replay, error) {
	p := replay{body: req.Body, getBody: req.GetBody}
	if req.Body == nil || req.Body == http.NoBody {
		return replay{}, nil
	}
	if !again || p.getBody != nil || req.ContentLength <= 0 || req.ContentLength > smallBody {
		return p, nil
	}
	content, err := readSmall(ctx, req.Body, req.ContentLength)
	if err != nil {
		return replay{}, err
	}
	return replay{getBody: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}, nil
}

// readSmall reads and closes body, which has n bytes. The body may be a pipe that blocks, so
// if ctx can end, another goroutine reads. As in net/http, it may outlive a request that was
// given up, until the body notices that it was closed.
func readSmall(ctx context.Context, body io.ReadCloser, n int64) ([]byte, error) {
	if ctx.Done() == nil {
		return readAndClose(body, n)
	}
	type result struct {
		content []byte
		err     error
	}
	read := make(chan result, 1)
	go func() {
		content, err := readAndClose(body, n)
		read <- result{content, err}
	}()
	select {
	case r := <-read:
		return r.content, r.err
	case <-ctx.Done():
		go body.Close() // may wait for the Read
		return nil, ctx.Err()
	}
}

// readAndClose is readSmall without a context. A body of another length is an error, because
// each attempt would fail.
func readAndClose(body io.ReadCloser, n int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(body, n+1))
	if closed := body.Close(); err == nil {
		err = closed
	}
	switch got := int64(len(content)); {
	case err != nil:
		return nil, err
	case got < n:
		return nil, fmt.Errorf("sluicehttp: the request has a ContentLength of %d, and its body %d bytes", n, got)
	case got > n:
		return nil, fmt.Errorf("sluicehttp: the request has a ContentLength of %d, and its body more bytes", n)
	}
	return content, nil
}

// begin reads the first bytes of the body into buf and returns them; none if it can be read
// only once.
func (p *replay) begin(buf []byte) []byte {
	if p.getBody == nil {
		return nil
	}
	body, err := p.getBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	n, _ := io.ReadFull(body, buf)
	return buf[:n]
}

// can reports whether there is a body for another attempt.
func (p *replay) can() bool {
	return p.body == nil || p.getBody != nil || p.last != nil && !p.last.spent()
}

// next returns req for the next attempt: the request of the caller at first, unless it needs
// another body, and then copies. again is that of newReplay.
func (p *replay) next(req *http.Request, again bool) (*http.Request, error) {
	first := !p.used
	p.used = true
	original := p.body != nil && (p.getBody != nil || !again)
	none := p.body == nil && p.getBody == nil
	if first && (none || original) {
		return req, nil
	}
	req = shallow(req)
	if p.getBody == nil && p.last != nil {
		if kept, whole := p.last.content(); whole {
			p.getBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
		}
	}
	switch {
	case none:
	case p.getBody != nil:
		body, err := p.getBody()
		if err != nil {
			return nil, fmt.Errorf("sluicehttp: the body for another attempt: %w", err)
		}
		req.Body, req.GetBody = body, p.getBody
	default:
		p.last = &shield{body: p.body, keeps: req.ContentLength <= 0}
		req.Body = p.last
	}
	return req, nil
}

// end closes the body if the attempts have left it open.
func (p *replay) end() {
	switch {
	case p.last != nil:
		p.last.lower()
	case p.body != nil && !p.used:
		p.body.Close() // its error does not matter
	}
}

// shallow returns a copy of req that shares its header, which no RoundTripper may change.
func shallow(req *http.Request) *http.Request {
	r := new(http.Request)
	*r = *req
	return r
}

// A shield is a body that another attempt can use as long as nothing has been read. An
// attempt that is over gets an error from Read. If it keeps what is read, another attempt can send
// that as soon as it is whole.
type shield struct {
	body io.ReadCloser

	mu     sync.Mutex
	read   bool // something was read, or lower was called: body may be closed
	closed bool // by the attempt

	keeps bool   // what is read, up to smallBody
	kept  []byte // not changed any more once it is whole
	whole bool   // all was read and kept
}

// Read implements io.Reader.
func (s *shield) Read(p []byte) (int, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	s.read = true
	s.mu.Unlock()
	n, err := s.body.Read(p)
	s.mu.Lock()
	s.keep(p[:n], err)
	s.mu.Unlock()
	return n, err
}

// keep keeps b, which was read with err. s.mu is held.
func (s *shield) keep(b []byte, err error) {
	switch {
	case !s.keeps || s.whole:
	case len(s.kept)+len(b) > smallBody || err != nil && err != io.EOF:
		s.keeps, s.kept = false, nil
	default:
		s.kept, s.whole = append(s.kept, b...), err == io.EOF
	}
}

// Close implements io.Closer.
func (s *shield) Close() error {
	s.mu.Lock()
	read := s.read
	s.closed = true
	s.mu.Unlock()
	if !read {
		return nil
	}
	return s.body.Close()
}

// spent returns true if something has been read that is not kept. Otherwise it takes the body away
// from the attempt and returns false.
func (s *shield) spent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read {
		s.closed = true
	}
	return s.read && !s.whole
}

// content returns the whole body, and whether it was read and kept.
func (s *shield) content() (kept []byte, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, s.whole
}

// lower lets the body be closed: at once if the attempt has already closed it.
func (s *shield) lower() {
	s.mu.Lock()
	late := s.closed && !s.read
	s.read = true
	s.mu.Unlock()
	if late {
		s.body.Close() // its error does not matter
	}
}
