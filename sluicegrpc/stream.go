package sluicegrpc

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A stream is the stream of a call, however often it is opened.
//
// # Who decides whether a stream is opened again?
//
// gRPC says how a stream ended by calling OnFinish, from the method that ends it or, if the
// context is done or the connection closed, from its own goroutine. That may be just
// when a message of the same stream reaches the client. So there are two decisions, both
// made under stream.mu, and the first one holds:
//
//	open ── commit ──▶ open, committed ── decide ──▶ closed
//	 ├───── decide ──────────────────────────────────▶ closed
//	 └───── decide ──▶ due ── RecvMsg or SendMsg ────▶ the next turn is open
//	                    └──── giveUp ────────────────▶ closed
//
// A committed stream never becomes due. Of a turn that is due nothing more reaches the client:
// commit then returns false, and a message that has just arrived is dropped, as grpc-go does
// when it retries. If the client does not call RecvMsg or SendMsg again, its context ends the
// turn, so the client's OnFinish is always called.
type stream struct {
	*call
	desc     *grpc.StreamDesc
	streamer func(ctx context.Context, more ...grpc.CallOption) (grpc.ClientStream, error)
	finish   func(error) // the OnFinish of the client
	over     sync.Once   // calls finish

	failing chan struct{} // holds a token during another attempt, which may wait
	reading sync.Mutex    // is locked while a message is received from gRPC

	mu        sync.Mutex // also guards the fields of call once the stream is open
	turn      *turn
	committed bool // the client has seen a part of the response, or sent a message that is not kept: no other turn
	answered  bool // the server has sent a message
	kept      kept // the messages of the client
}

// A turn is one attempt of a stream.
type turn struct {
	s      *stream
	permit *sluice.Permit
	bill   bill
	probe  probe
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelCauseFunc // nil if nothing but its client ends it
	timer  *time.Timer             // of the AttemptTimeout, or nil

	// Guarded by s.mu.
	stop   func() bool // stops watching the context of the client
	phase  phase
	nodded bool  // gRPC called OnFinish with nil
	err    error // for the client, of a closed turn
}

// A phase is the decision about a turn.
type phase int

const (
	opened phase = iota
	due          // it has ended, and there must be another attempt
	closed       // it has ended, and there is no other
)

// open opens the stream through the gate, in as many attempts as necessary.
func (s *stream) open() error {
	for {
		permit, err := s.next()
		if err != nil {
			return err
		}
		t := s.newTurn(permit)
		again, err := t.open()
		if !again {
			return err
		}
	}
}

func (s *stream) newTurn(permit *sluice.Permit) *turn {
	t := &turn{s: s, permit: permit, ctx: s.ctx}
	lost, bounded := permit.Lost(), s.timeout > 0 && !s.desc.ClientStreams
	if lost != nil || bounded {
		t.ctx, t.cancel = context.WithCancelCause(s.ctx)
	}
	if bounded { // not a deadline, which would end the stream and not only its beginning
		t.timer = time.AfterFunc(s.timeout, func() { t.cancel(errLate) })
	}
	if lost != nil {
		go func() {
			select {
			case <-lost:
				t.cancel(limits.ErrLeaseLost)
			case <-t.ctx.Done():
			}
		}()
	}
	return t
}

// open opens the stream once. again reports that there must be another attempt.
func (t *turn) open() (again bool, err error) {
	ok := false
	defer func() {
		if !ok { // an error, or a panic
			t.release()
		}
	}()
	t.probe.trailer = untouched
	t.stream, err = t.s.streamer(t.s.numbered(t.ctx), grpc.Trailer(&t.probe.trailer), grpc.OnFinish(t.finished))
	if err != nil {
		again, final := t.end(err)
		if !again && final == nil {
			final = err
		}
		return again, final
	}
	stop := context.AfterFunc(t.s.ctx, t.cancelled)
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	ok = true
	if t.phase != opened {
		stop()
	}
	if t.phase == due { // there is another attempt now: the client has sent nothing yet
		return true, nil
	}
	if before := t.s.turn; before != nil {
		before.unwatch()
	}
	t.s.turn, t.stop = t, stop
	return false, nil
}

// canceled is called when the context of the client ends. gRPC then ends an open stream, but
// streams of interceptors that do not pass options on do not tell t, and a turn that is due
// has no stream any more.
func (t *turn) cancelled() {
	if again, _ := t.end(status.FromContextError(t.s.ctx.Err()).Err()); again {
		t.s.mu.Lock()
		err := t.s.refused(t.s.ctx.Err())
		t.s.mu.Unlock()
		t.giveUp(err)
	}
}

// finished is the OnFinish of t. A success is left to RecvMsg: Header of grpc-go reports one
// for a rejection, too, if the transport has read its frame but not yet set the status.
func (t *turn) finished(err error) {
	t.s.mu.Lock()
	t.probe.ended = true
	t.nodded = err == nil
	t.s.mu.Unlock()
	if err != nil {
		t.end(err)
	}
}

// header waits for the header of t and returns it. If there is none it ends t, provided that
// gRPC has ended the stream: it has called OnFinish or, if over is true, SendMsg has returned io.EOF.
func (t *turn) header(over bool) (metadata.MD, error) {
	header, err := t.stream.Header()
	if header != nil || !t.undecided(over) {
		return header, err
	}
	t.s.reading.Lock() // if RecvMsg is being called, gRPC calls OnFinish now, and it returns
	if !t.undecided(over) {
		t.s.reading.Unlock()
		return header, err
	}
	end := t.stream.RecvMsg(nil) // where there is no header there is no message
	t.s.reading.Unlock()
	if end == io.EOF {
		end = nil
	}
	trailer := t.stream.Trailer()
	t.s.mu.Lock()
	t.probe.trailer = trailer
	t.s.mu.Unlock()
	t.end(end)
	return header, err
}

// undecided reports whether t is open though gRPC has ended its stream, which over says, too.
func (t *turn) undecided(over bool) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.phase == opened && (over || t.nodded)
}

// end ends t, once, with err, nil for a success. again reports that there must be another
// attempt; if not, final is nil or the error for the client.
func (t *turn) end(err error) (again bool, final error) {
	again, final = t.decide(err)
	t.release()
	if !again {
		t.s.finished(final)
	}
	return again, final
}

// inTime ends the AttemptTimeout: the client has seen a part of the response, or the turn ends.
func (t *turn) inTime() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// decide ends an open turn. A turn that has ended stays as it was decided.
func (t *turn) decide(err error) (again bool, final error) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != opened {
		return t.phase == due, t.err
	}
	t.phase = closed
	if err == nil {
		s.answer()
	} else {
		s.last = s.judge(t.ctx, err, &t.probe, s.committed)
		if s.last.refused {
			t.bill.void(s.call)
		}
		again, why := s.attempts.Done(s.ctx, s.last.marked)
		if t.err = s.final(why); again {
			t.phase = due
		}
	}
	if t.phase == closed {
		t.unwatch()
	}
	return t.phase == due, t.err
}

// giveUp closes t if it is due, with err: there will be no other attempt. It returns the error
// for the client.
func (t *turn) giveUp(err error) error {
	t.s.mu.Lock()
	if t.phase == due {
		t.phase, t.err = closed, err
		t.unwatch()
	}
	err = t.err
	t.s.mu.Unlock()
	t.s.finished(err)
	return err
}

// unwatch stops watching the context of the client, with s.mu locked.
func (t *turn) unwatch() {
	if t.stop != nil { // nil while t is being opened, and open then does it
		t.stop()
	}
}

// commit decides that the client sees a part of the response of t: a message if answered is
// true, and otherwise something that comes earlier. It returns false, and the client must not
// see that, if t is due or has been replaced.
func (t *turn) commit(answered bool) bool {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase == due || s.turn != t {
		return false
	}
	if s.committed = true; answered {
		s.answer()
	}
	return true
}

// release releases the permit and ends the context of the turn.
func (t *turn) release() {
	t.bill.settle(t.permit)
	t.permit.Release()
	t.inTime()
	if t.cancel != nil {
		t.cancel(nil)
	}
}

// finished calls the OnFinish of the client, once. As with gRPC it has returned before the
// client is given the error, whichever goroutine called it.
func (s *stream) finished(err error) { s.over.Do(func() { s.finish(err) }) }

// current returns the turn whose stream was opened last.
func (s *stream) current() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	for {
		t := s.current()
		s.reading.Lock()
		err := t.stream.RecvMsg(m)
		s.reading.Unlock()
		if (err == nil || err == io.EOF) && t.commit(true) {
			s.received(t, m, err)
			return err
		}
		if err := s.failed(t, err); err != nil {
			return err
		}
	}
}

// failed is called when t has failed with err. It opens the stream again and returns nil, or
// returns the error for the client.
func (s *stream) failed(t *turn, err error) error {
	s.failing <- struct{}{}
	defer func() { <-s.failing }()
	if s.current() != t { // SendMsg and RecvMsg have both failed
		return nil
	}
	for {
		again, final := t.end(err)
		switch {
		case !again && final == nil: // it ended otherwise just before
			return err
		case !again:
			return final
		}
		if err := s.i.use(s.call, s.open); err != nil {
			return t.giveUp(err)
		}
		t = s.current()
		if err = s.resend(t); err == nil {
			return nil
		}
	}
}

// received is called after the message m of t or, if err is io.EOF, the end of t.
func (s *stream) received(t *turn, m any, err error) {
	t.inTime()
	if err == nil {
		t.bill.read(s.call, m)
	}
	if err != nil || !s.desc.ServerStreams {
		t.end(nil)
	}
}

// answer records, with s.mu locked, that the server has answered.
func (s *stream) answer() {
	if !s.answered {
		s.answered, s.committed, s.kept.messages = true, true, nil
		s.attempts.Done(s.ctx, nil)
	}
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	for {
		t := s.ready()
		err := t.stream.SendMsg(m)
		if err == io.EOF && s.desc.ClientStreams {
			_, _ = t.header(true) // ends t, unless there is a header
		}
		switch {
		case err != nil && err != io.EOF:
		case !s.keep(t, m, err == nil):
			return err // io.EOF: RecvMsg has the error
		}
		if err := s.failed(t, err); err != nil {
			return err
		}
	}
}

// CloseSend implements grpc.ClientStream.
func (s *stream) CloseSend() error {
	s.failing <- struct{}{}
	defer func() { <-s.failing }()
	s.mu.Lock()
	s.kept.half = true
	t := s.turn
	s.mu.Unlock()
	return t.stream.CloseSend()
}

// Header implements grpc.ClientStream. If there must be another attempt, the header is that
// of the next one.
func (s *stream) Header() (metadata.MD, error) {
	for {
		t := s.current()
		if t.commit(false) {
			header, err := t.header(false)
			t.inTime()
			return header, err
		}
		if s.failed(t, nil) != nil {
			return nil, nil // RecvMsg has the error, as in gRPC
		}
	}
}

// Context implements grpc.ClientStream. If there must be another attempt, it does not wait
// for that: it is the context of the client.
func (s *stream) Context() context.Context {
	if t := s.current(); t.commit(false) {
		return t.stream.Context()
	}
	return s.ctx
}

// Trailer implements grpc.ClientStream.
func (s *stream) Trailer() metadata.MD { return s.current().stream.Trailer() }
