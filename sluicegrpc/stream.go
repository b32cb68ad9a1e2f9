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
// gRPC says how a stream ended by calling OnFinish, from the method that ends it or, if the
// context is done or the connection closed, from a goroutine of its own. So turn.end decides
// on another attempt, and RecvMsg or SendMsg makes it.
type stream struct {
	*call
	desc     *grpc.StreamDesc
	streamer func(ctx context.Context, more ...grpc.CallOption) (grpc.ClientStream, error)
	finish   func(error) // the OnFinish of the client

	failing chan struct{} // holds a token during another attempt, which may wait

	mu        sync.Mutex // also guards the fields of call once the stream is open
	turn      *turn
	committed bool // the client has seen a part of the response, or sent what is not kept
	answered  bool // the server has sent a message
	over      bool // finish was called
	kept      kept // what the client has sent
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
	stop  func() bool // stops watching the context of the client
	done  bool
	again bool // there must be another attempt
	err   error
}

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
	opened := false
	defer func() {
		if !opened { // an error, or a panic
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
	// For streams of interceptors that do not pass options on.
	stop := context.AfterFunc(t.s.ctx, func() { t.end(status.FromContextError(t.s.ctx.Err()).Err()) })
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.turn, opened = t, true
	if t.stop = stop; t.done {
		stop() // if there must be another attempt, now: the client has sent nothing yet
	}
	return t.again, nil
}

// finished is the OnFinish of t.
func (t *turn) finished(err error) {
	t.s.mu.Lock()
	t.probe.ended = true
	t.s.mu.Unlock()
	t.end(err)
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

func (t *turn) decide(err error) (again bool, final error) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.done {
		return t.again, t.err
	}
	t.done = true
	switch {
	case err != nil:
		s.last = s.judge(t.ctx, err, &t.probe, s.committed)
		if s.last.refused {
			t.bill.void(s.call)
		}
		var why error
		t.again, why = s.attempts.Ended(s.ctx, s.last.marked)
		t.err = s.final(why)
	default:
		s.answer()
	}
	if t.stop != nil {
		t.stop()
	}
	return t.again, t.err
}

// release gives the permit back and ends the context of the turn.
func (t *turn) release() {
	t.bill.settle(t.permit)
	t.permit.Release()
	t.inTime()
	if t.cancel != nil {
		t.cancel(nil)
	}
}

// finished calls the OnFinish of the client, once.
func (s *stream) finished(err error) {
	s.mu.Lock()
	before := s.over
	s.over = true
	s.mu.Unlock()
	if !before {
		s.finish(err)
	}
}

// current returns the turn whose stream is open. commit reports that the client will see a
// part of its response, so that there is no other.
func (s *stream) current(commit bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = s.committed || commit
	return s.turn
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	for {
		t := s.current(false)
		err := t.stream.RecvMsg(m)
		switch {
		case err == nil:
			s.received(t, m)
			return nil
		case err == io.EOF:
			t.end(nil)
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
	if s.current(false) != t { // SendMsg and RecvMsg have both failed
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
			s.mu.Lock()
			t.again, t.err = false, err // RecvMsg may be called again
			s.mu.Unlock()
			s.finished(err)
			return err
		}
		t = s.current(false)
		if err = s.resend(t); err == nil {
			return nil
		}
	}
}

// received is called after the message m.
func (s *stream) received(t *turn, m any) {
	t.inTime()
	t.bill.read(s.call, m)
	s.mu.Lock()
	s.answer()
	s.mu.Unlock()
	if !s.desc.ServerStreams {
		t.end(nil)
	}
}

// answer records, with s.mu locked, that the server has answered.
func (s *stream) answer() {
	if !s.answered {
		s.answered, s.committed, s.kept.messages = true, true, nil
		s.attempts.Ended(s.ctx, nil)
	}
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	for {
		t := s.ready()
		err := t.stream.SendMsg(m)
		if err == io.EOF && s.desc.ClientStreams {
			_, _ = t.stream.Header() // lets gRPC call OnFinish, unless there is a header
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
		t, again := s.committing()
		if !again {
			header, err := t.stream.Header()
			t.inTime()
			return header, err
		}
		if s.failed(t, nil) != nil {
			return nil, nil // RecvMsg has the error, as in gRPC
		}
	}
}

// committing is current(true), unless there must be another attempt.
func (s *stream) committing() (t *turn, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = s.turn.done && s.turn.again
	s.committed = s.committed || !again
	return s.turn, again
}

// Context implements grpc.ClientStream.
func (s *stream) Context() context.Context { return s.current(true).stream.Context() }

// Trailer implements grpc.ClientStream.
func (s *stream) Trailer() metadata.MD { return s.current(false).stream.Trailer() }
