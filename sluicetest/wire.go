package sluicetest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A net.Pipe would not do. It has no buffer, so a write waits for its read; HTTP/2 and TLS write
// while holding a mutex, and the clock of a bubble stops while a goroutine waits for a mutex. A TLS
// connection over a pipe also takes 5 s to close. Therefore a wire has the properties that the
// kernel gives a socket: a buffer in each direction, and a way to be reset. All waiting is done on
// a sync.Cond, which does not stop the clock.

// buffered is the number of bytes that may be on their way in one direction before a writer waits.
const buffered = 1 << 20

// A stream is one direction of a connection.
type stream struct {
	mu     sync.Mutex
	change sync.Cond
	data   []byte
	ended  bool // the writer has closed: io.EOF after data
	left   bool // the reader has closed
	lost   int  // bytes written since then
	reset  bool // the connection was broken: data is lost
	read   deadline
	write  deadline
}

func newStream() *stream {
	s := &stream{}
	s.change.L = &s.mu
	return s
}

// A deadline of a stream, guarded by the lock of the stream.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		s.change.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer { // otherwise it was replaced as it fired
			d.passed = true
			s.change.Broadcast()
		}
	})
	d.timer = timer
}

// canRead returns why a read fails, or nil. s is locked.
func (s *stream) canRead() error {
	switch {
	case s.left:
		return net.ErrClosed
	case s.read.passed:
		return os.ErrDeadlineExceeded
	case s.reset:
		return os.NewSyscallError("read", errReset)
	case len(s.data) == 0 && s.ended:
		return io.EOF
	}
	return nil
}

// await blocks until there is something to read, and returns with s locked.
func (s *stream) await() error {
	s.mu.Lock()
	for {
		if err := s.canRead(); err != nil {
			return err
		}
		if len(s.data) > 0 {
			return nil
		}
		s.change.Wait()
	}
}

func (s *stream) Read(p []byte) (int, error) {
	err := s.await()
	defer s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n := copy(p, s.data)
	if s.data = s.data[n:]; len(s.data) == 0 {
		s.data = nil // otherwise it would creep along its array
	}
	s.change.Broadcast()
	return n, nil
}

func (s *stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended:
			return n, net.ErrClosed
		case s.write.passed:
			return n, os.ErrDeadlineExceeded
		case s.reset:
			return n, os.NewSyscallError("write", errReset)
		case s.left && s.lost > buffered:
			return n, os.NewSyscallError("write", errPipe)
		case s.left:
			// As on a network, the writer cannot know yet: only a read finds
			// out, after all data that was sent before.
			s.lost += len(p) - n
			return len(p), nil
		}
		if room := min(buffered-len(s.data), len(p)-n); room > 0 {
			s.data = append(s.data, p[n:n+room]...)
			n += room
			s.change.Broadcast()
		}
		if n == len(p) {
			return n, nil
		}
		s.change.Wait()
	}
}

// update changes s and wakes all waiters.
func (s *stream) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.change.Broadcast()
}

// A wire is one end of a connection in memory: a net.Conn with the CloseWrite of a TCP
// connection. It is safe for use by multiple goroutines.
type wire struct {
	in, out       *stream
	local, remote net.Addr
	gone          chan struct{} // closed when one of the ends is closed
	part          func()        // closes gone
}

// newWires returns the two ends of a connection.
func newWires(client, server net.Addr) (*wire, *wire) {
	up, down, gone := newStream(), newStream(), make(chan struct{})
	part := sync.OnceFunc(func() { close(gone) })
	return &wire{down, up, client, server, gone, part}, &wire{up, down, server, client, gone, part}
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	return n, w.failed("read", err)
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	return n, w.failed("write", err)
}

// failed wraps err as package net does: net/http relies on that.
func (w *wire) failed(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: w.local, Addr: w.remote, Err: err}
}

// peek waits for the first byte and returns it without reading it.
func (w *wire) peek() (byte, error) {
	err := w.in.await()
	defer w.in.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return w.in.data[0], nil
}

// CloseWrite lets the other end read io.EOF after the written data.
func (w *wire) CloseWrite() error {
	w.out.update(func() { w.out.ended = true })
	return nil
}

// Close closes both directions. Written data can still be read.
func (w *wire) Close() error {
	_ = w.CloseWrite()
	w.in.update(func() { w.in.left, w.in.data = true, nil })
	_ = w.SetDeadline(time.Time{}) // no timer outlives the connection
	w.part()
	return nil
}

// Reset closes both directions and drops unread data.
func (w *wire) Reset() {
	// The other end first: otherwise our reader could close in good order before
	// that end sees the reset.
	for _, s := range []*stream{w.out, w.in} {
		s.update(func() { s.reset = true })
	}
	_ = w.Close()
}

func (w *wire) LocalAddr() net.Addr  { return w.local }
func (w *wire) RemoteAddr() net.Addr { return w.remote }

func (w *wire) SetReadDeadline(t time.Time) error {
	w.in.setDeadline(&w.in.read, t)
	return nil
}

func (w *wire) SetWriteDeadline(t time.Time) error {
	w.out.setDeadline(&w.out.write, t)
	return nil
}

func (w *wire) SetDeadline(t time.Time) error {
	_ = w.SetReadDeadline(t)
	return w.SetWriteDeadline(t)
}

// An addr is a host and a port that are never resolved.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }
