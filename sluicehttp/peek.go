package sluicehttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

const (
	mostPeeked  = 64 << 10
	mostGlanced = 512
)

// A peeked is a body whose beginning is or was read for an inspector. A goroutine reads it:
// the inspector gets the bytes that arrive within a second, so a server that sends half a body does
// not hold the permit, and later reads return everything, so a slow response is not lost.
type peeked struct {
	body io.ReadCloser
	over chan struct{} // closed when the goroutine is done

	mu     sync.Mutex
	change sync.Cond
	buffer []byte // read by the goroutine, not yet by the caller
	err    error  // after buffer; nil if body goes on
	done   bool   // the goroutine is done
	late   bool   // it was not done in time
}

// peek returns the beginning of the body of resp, or the bytes that arrive within patience, and
// leaves the body whole. Meanwhile it calls hold, unless that is nil, repeatedly with the time
// until which the key must be paused.
func peek(resp *http.Response, patience time.Duration, hold func(time.Time)) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	p := newPeeked(resp)
	began := time.Now()
	if hold != nil {
		hold(began.Add(2 * firstHold))
	}
	go p.fetch(mostPeeked, 4<<10, nil)
	p.wait(began, patience, hold)
	return p.seen()
}

// glance is peek for a response that is probably fine: it reads no further than mostGlanced, nor
// than enough reports, and returns nil if that does not arrive within patience. A second look
// by peek or glance sees the body from its beginning.
func glance(resp *http.Response, patience time.Duration, enough func(head []byte) bool) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	p := newPeeked(resp)
	go p.fetch(mostGlanced, mostGlanced, enough)
	p.wait(time.Now(), patience, nil)
	if head := p.seen(); !p.late {
		return head
	}
	return nil
}

func newPeeked(resp *http.Response) *peeked {
	p := &peeked{body: resp.Body, over: make(chan struct{})}
	p.change.L = &p.mu
	resp.Body = p
	return p
}

// seen returns the bytes that have arrived by the end of the wait.
func (p *peeked) seen() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = !p.done
	return bytes.Clone(p.buffer)
}

// readable returns head, the beginning of the body of resp, without the byte order mark that servers of
// .NET begin JSON with, and unpacked if it is gzip, up to mostPeeked bytes: a request with an
// Accept-Encoding of its own gets that, such as one that httputil.ReverseProxy passes on. What is no
// gzip is returned as it is, and of what is damaged the part before that.
func readable(resp *http.Response, head []byte) []byte {
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		if r, err := gzip.NewReader(bytes.NewReader(head)); err == nil {
			head, _ = io.ReadAll(io.LimitReader(r, mostPeeked)) // the end may be missing
		}
	}
	return bytes.TrimPrefix(head, []byte(byteOrderMark))
}

const firstHold = 10 * time.Millisecond

// wait blocks until fetch is done, for at most patience. It pauses the key for a short time
// at first and twice as long each time, so that little of the pause is left at the end.
func (p *peeked) wait(began time.Time, patience time.Duration, hold func(time.Time)) {
	next := patience
	if hold != nil {
		next = min(firstHold, patience)
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-timer.C:
		}
		if next == patience {
			return
		}
		hold(began.Add(4 * next)) // long enough for the text after the last one
		next = min(2*next, patience)
		timer.Reset(time.Until(began.Add(next)))
	}
}

// fetch reads the beginning of the body: most bytes, in parts, unless enough, if set, is
// satisfied with less.
func (p *peeked) fetch(most, size int, enough func([]byte) bool) {
	defer close(p.over)
	part := make([]byte, size)
	for left := most; ; {
		n, err := p.body.Read(part[:min(left, len(part))])
		p.mu.Lock()
		p.buffer = append(p.buffer, part[:n]...)
		left -= n
		p.err, p.done = err, err != nil || left == 0 || enough != nil && n > 0 && enough(p.buffer)
		done := p.done
		p.change.Broadcast()
		p.mu.Unlock()
		if done {
			return
		}
	}
}

// Read implements io.Reader. The end comes with the last bytes, as in HTTP/1: a JSON decoder reads no further than
// its value, and twilio-go, which does not close the body of an error either, kept a permit for each.
func (p *peeked) Read(b []byte) (int, error) {
	p.mu.Lock()
	for len(p.buffer) == 0 && !p.done {
		p.change.Wait()
	}
	n := copy(b, p.buffer)
	p.buffer = p.buffer[n:]
	var err error
	if len(p.buffer) == 0 && len(b) > 0 {
		err = p.err
	}
	more := n == 0 && len(p.buffer) == 0 && len(b) > 0
	p.mu.Unlock()
	if more && err == nil {
		return p.body.Read(b)
	}
	return n, err
}

// Close implements io.Closer.
func (p *peeked) Close() error { return p.body.Close() }

// stalled reports whether body is a peeked body that did not arrive in time.
func stalled(body io.Reader) bool {
	p, ok := body.(*peeked)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// peeker returns the peek function of an inspector for resp; said is from the header.
// If that pauses the gate, it is paused while peek waits for the body, but only so long: the
// inspector may find a shorter time in the body, and a pause cannot be shortened.
func (st *state) peeker(resp *http.Response, said *ratelimit.Info, now time.Time, patience time.Duration) func() []byte {
	var seen []byte
	asked := false
	return func() []byte {
		if asked {
			return bytes.Clone(seen)
		}
		asked = true
		at, source := said.PauseUntil()
		if said.Throttled && at.IsZero() && said.Floor > 0 {
			at, source = now.Add(said.Floor), "its kind"
		}
		if at.Sub(now) > st.t.mostPause {
			at = now.Add(st.t.mostPause)
		}
		var hold func(time.Time)
		if at.After(now) {
			hold = func(until time.Time) {
				if until.After(at) {
					until = at
				}
				usedup.Hold(st.gate, until, source)
			}
		}
		seen = readable(resp, peek(resp, patience, hold))
		return bytes.Clone(seen)
	}
}
