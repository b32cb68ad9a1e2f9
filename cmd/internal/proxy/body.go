package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// Bounds for callers.
const (
	maxHeader   = 64 << 10         // bytes of a header, both ways
	maxReplay   = 1 << 20          // bytes of a body that is kept, so that it can be sent again
	maxKept     = 256 << 20        // bytes of all kept bodies together
	maxBody     = 1 << 30          // bytes of any body
	slowest     = 30 * time.Second // for the next bytes of a body to arrive
	slowestRead = time.Minute      // for the next bytes of a response to be taken
)

// A body is that of a call. One of a known length of at most maxReplay is read before the call
// waits, so that it can be sent again, a preset sees its model, and net/http notices when the
// caller hangs up. Any other body is passed on as it comes, and sent once.
type body struct {
	content []byte
	room    *semaphore.Weighted // in which content is counted
	held    int64

	mu sync.Mutex
}

// byRoom is the cause of a wait for memory for the body.
const byRoom limits.Cause = "memory of the proxy"

var errBodyTooLarge = errors.New("the body is too large")

// read reads the body of r, the request of c, if it is to be kept, and waits for memory for it.
func (b *body) read(c *call, w *slowWriter, r *http.Request, room *semaphore.Weighted) error {
	n := r.ContentLength
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if n > maxBody {
		return errBodyTooLarge
	}
	slow := &slowBody{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody), w: w}
	if n <= 0 || n > maxReplay {
		_ = w.control.EnableFullDuplex() // the response may begin before the body has ended
		r.Body = slow
		return nil
	}
	c.wait()
	c.heldBy(byRoom)
	err := room.Acquire(c, n)
	c.pause()
	if err != nil {
		return err
	}
	b.room, b.held = room, n
	b.content = make([]byte, n)
	if _, err := io.ReadFull(slow, b.content); err != nil {
		return err
	}
	// Reading to the end makes net/http watch the connection.
	if _, err := slow.Read(make([]byte, 1)); err != nil && err != io.EOF {
		return err
	}
	r.Body = http.NoBody // it has been read
	return nil
}

// attach gives out, the request to the upstream, the body.
func (b *body) attach(out *http.Request) {
	if b.held == 0 {
		return
	}
	out.ContentLength = b.held
	out.GetBody = b.open
	out.Body, _ = b.open()
}

// open returns the body once more.
func (b *body) open() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.content == nil {
		return nil, errors.New("the call has been answered")
	}
	return io.NopCloser(bytes.NewReader(b.content)), nil
}

// drop gives the memory back.
func (b *body) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room != nil {
		b.room.Release(b.held)
		b.room, b.content = nil, nil
	}
}

// A slowBody is a body that must not stall for longer than slowest.
type slowBody struct {
	io.ReadCloser
	w *slowWriter

	mu     sync.Mutex
	closed bool
}

func (s *slowBody) Read(p []byte) (int, error) {
	s.bound(time.Now().Add(slowest))
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.w.stalled.Store(true)
		return n, errSlowBody // the deadline stays: the server must not wait for the rest
	}
	s.bound(time.Time{})
	return n, err
}

// errSlowBody is the error of a body that stalls.
var errSlowBody = errors.New("the body does not arrive")

// bound sets the deadline of reads, but not after Close: then the connection may have another
// request. A connection without deadlines, as in some tests, is left alone.
func (s *slowBody) bound(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = s.w.control.SetReadDeadline(at)
	}
}

func (s *slowBody) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.ReadCloser.Close()
}

// A slowWriter is a response whose reader must not stall for longer than slowestRead.
type slowWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	keep    bool // the deadline may stay until the next write: HTTP/1
	until   time.Time
	missing int64       // bytes of a body of known length
	stalled atomic.Bool // the body of the request does
}

func newSlowWriter(w http.ResponseWriter, r *http.Request) *slowWriter {
	return &slowWriter{ResponseWriter: w, control: http.NewResponseController(w), keep: r.ProtoMajor == 1}
}

// Unwrap is for http.ResponseController.
func (s *slowWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s *slowWriter) WriteHeader(status int) {
	s.missing, _ = strconv.ParseInt(s.Header().Get("Content-Length"), 10, 64)
	s.ResponseWriter.WriteHeader(status)
}

// Write passes on what there is, unless it is the rest of a body of known length, which the server
// sends when the handler returns. A ReverseProxy with a negative FlushInterval wrote such a response
// in two parts, from two goroutines: a tenth of the processor's time. All others it flushes itself.
func (s *slowWriter) Write(p []byte) (int, error) {
	defer s.bound()()
	n, err := s.ResponseWriter.Write(p)
	if s.missing -= int64(n); s.missing > 0 && err == nil {
		err = s.control.Flush()
	}
	return n, err
}

// FlushError is Flush for http.ResponseController.
func (s *slowWriter) FlushError() error {
	defer s.bound()()
	return s.control.Flush()
}

// bound sets the deadline of writes. In HTTP/1 a deadline that passes between writes has no
// effect, so it stays, and is renewed now and then; in HTTP/2 it would end the stream.
func (s *slowWriter) bound() (done func()) {
	now := time.Now()
	if s.keep && s.until.Sub(now) > slowestRead/2 {
		return func() {}
	}
	s.until = now.Add(slowestRead)
	_ = s.control.SetWriteDeadline(s.until) // an error: there are no deadlines
	if s.keep {
		return func() {}
	}
	return func() { _ = s.control.SetWriteDeadline(time.Time{}) }
}
