package sluicegrpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
)

var (
	request  = &pb.StreamingOutputCallRequest{}
	response = &pb.StreamingOutputCallResponse{}
)

// TestStream_HoldsItsPermitToTheEnd: however the stream ends.
func TestStream_HoldsItsPermitToTheEnd(t *testing.T) {
	read := func(s interface {
		Recv() (*pb.StreamingOutputCallResponse, error)
	}) error {
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	until := func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }
	for _, test := range []struct {
		name string
		end  func(w *world, ctx context.Context, cancel func())
	}{
		{"server stream, end", func(w *world, ctx context.Context, _ func()) {
			w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { return s.Send(response) }
			s, err := w.client.StreamingOutputCall(ctx, request)
			wantCode(t, err, codes.OK)
			w.wantInFlight(1)
			if _, err := s.Recv(); err != nil {
				t.Error(err)
			}
			w.wantInFlight(1)
			if err := read(s); err != io.EOF {
				t.Errorf("%v, want io.EOF", err)
			}
		}},
		{"server stream, error", func(w *world, ctx context.Context, _ func()) {
			w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
				_ = s.Send(response)
				return failure(codes.Internal)
			}
			s, err := w.client.StreamingOutputCall(ctx, request)
			wantCode(t, err, codes.OK)
			wantCode(t, read(s), codes.Internal)
		}},
		{"server stream, never read, cancelled", func(w *world, ctx context.Context, cancel func()) {
			w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { return s.Send(response) }
			_, err := w.client.StreamingOutputCall(ctx, request)
			wantCode(t, err, codes.OK)
			w.wantInFlight(1)
			cancel()
		}},
		{"server stream, deadline", func(w *world, ctx context.Context, _ func()) {
			w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { return until(s) }
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			_ = cancel // the deadline ends it
			_, err := w.client.StreamingOutputCall(ctx, request)
			wantCode(t, err, codes.OK)
			time.Sleep(999 * ms)
			w.wantInFlight(1)
			time.Sleep(2 * ms)
		}},
		{"connection closed", func(w *world, ctx context.Context, _ func()) {
			w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error { return until(s) }
			_, err := w.client.FullDuplexCall(ctx)
			wantCode(t, err, codes.OK)
			w.wantInFlight(1)
			w.conn.Close()
		}},
		{"client stream", func(w *world, ctx context.Context, _ func()) {
			w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
				for {
					if _, err := s.Recv(); err == io.EOF {
						return s.SendAndClose(&pb.StreamingInputCallResponse{})
					}
				}
			}
			s, err := w.client.StreamingInputCall(ctx)
			wantCode(t, err, codes.OK)
			for range 3 {
				wantCode(t, s.Send(&pb.StreamingInputCallRequest{}), codes.OK)
			}
			w.wantInFlight(1)
			_, err = s.CloseAndRecv()
			wantCode(t, err, codes.OK)
		}},
		{"client stream, error", func(w *world, ctx context.Context, _ func()) {
			w.in = func(int, pb.TestService_StreamingInputCallServer) error { return failure(codes.NotFound) }
			s, err := w.client.StreamingInputCall(ctx)
			wantCode(t, err, codes.OK)
			_, err = s.CloseAndRecv()
			wantCode(t, err, codes.NotFound)
		}},
		{"both ways", func(w *world, ctx context.Context, _ func()) {
			w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error {
				for {
					if _, err := s.Recv(); err == io.EOF {
						return nil
					}
					_ = s.Send(response)
				}
			}
			s, err := w.client.FullDuplexCall(ctx)
			wantCode(t, err, codes.OK)
			for range 3 {
				wantCode(t, s.Send(request), codes.OK)
				_, err := s.Recv()
				wantCode(t, err, codes.OK)
			}
			w.wantInFlight(1)
			wantCode(t, s.CloseSend(), codes.OK)
			if err := read(s); err != io.EOF {
				t.Errorf("%v, want io.EOF", err)
			}
		}},
		{"message too large to send", func(w *world, ctx context.Context, _ func()) {
			w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error { return until(s) }
			s, err := w.client.FullDuplexCall(ctx, grpc.MaxCallSendMsgSize(10))
			wantCode(t, err, codes.OK)
			wantCode(t, s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 100)}}), codes.ResourceExhausted)
		}},
		{"Header of a stream that failed", func(w *world, ctx context.Context, _ func()) {
			w.both = func(int, pb.TestService_FullDuplexCallServer) error { return failure(codes.NotFound) }
			s, err := w.client.FullDuplexCall(ctx)
			wantCode(t, err, codes.OK)
			if md, err := s.Header(); md != nil || err != nil {
				t.Errorf("%v, %v; want nothing", md, err)
			}
		}},
		{"not opened", func(w *world, ctx context.Context, _ func()) {
			w.refuse(true)
			ctx = sluicegrpc.WithOverrides(ctx, sluicegrpc.Overrides{NoRetry: true})
			_, err := w.client.FullDuplexCall(ctx)
			wantCode(t, err, codes.Unavailable)
		}},
		{"done before", func(w *world, ctx context.Context, cancel func()) {
			wantCode(t, w.call(ctx), codes.OK) // makes the gate
			cancel()
			var ended error
			_, err := w.client.FullDuplexCall(ctx, grpc.OnFinish(func(err error) { ended = err }))
			wantCode(t, err, codes.Canceled)
			wantCode(t, ended, codes.Canceled)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				test.end(w, ctx, cancel)
				w.wantInFlight(0) // before ctx ends
			})
		})
	}
}

// TestStream_PanicOfStreamer releases the permit.
func TestStream_PanicOfStreamer(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one}, func(w *world) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
			w.wantInFlight(0)
		}()
		_, _ = w.i.Stream(w.Context(), &grpc.StreamDesc{}, w.conn, empty, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			panic("oops")
		})
	})
}

// TestStream_OptionsLostOnTheWay: an interceptor that does not pass options on hides the end
// of the stream, but for what its methods return and its context.
func TestStream_OptionsLostOnTheWay(t *testing.T) {
	deaf := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(ctx, desc, cc, method)
	}
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			if n == 1 {
				return failure(codes.ResourceExhausted)
			}
			return s.Send(response)
		}
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		if _, err := s.Recv(); err != nil {
			t.Error(err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Error(err)
		}
		w.wantCame(0, time.Second)
		w.wantInFlight(0)

		w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
			return s.SendAndClose(&pb.StreamingInputCallResponse{})
		}
		in, err := w.client.StreamingInputCall(w.Context())
		wantCode(t, err, codes.OK)
		_, err = in.CloseAndRecv()
		wantCode(t, err, codes.OK)
		w.wantInFlight(0)

		ctx, cancel := context.WithCancel(w.Context())
		_, err = w.client.StreamingOutputCall(ctx, request)
		wantCode(t, err, codes.OK)
		w.wantInFlight(1)
		cancel()
		w.wantInFlight(0)
	}, grpc.WithChainStreamInterceptor(deaf))
}

// TestStream_IsRetriedUntilItsFirstMessage: a single request can be sent again, and the
// client sees one stream.
func TestStream_IsRetriedUntilItsFirstMessage(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			switch n {
			case 1:
				return failure(codes.ResourceExhausted, after(time.Minute))
			case 2:
				return failure(codes.Unavailable)
			}
			s.SetTrailer(metadata.Pairs("n", "3"))
			_ = s.Send(response)
			_ = s.Send(response)
			return failure(codes.Unavailable)
		}
		var ended []error
		s, err := w.client.StreamingOutputCall(w.Context(), request, grpc.OnFinish(func(err error) { ended = append(ended, err) }))
		wantCode(t, err, codes.OK)
		for range 2 {
			_, err := s.Recv()
			wantCode(t, err, codes.OK)
		}
		if len(ended) != 0 {
			t.Errorf("OnFinish was called with %v, too early", ended)
		}
		_, err = s.Recv()
		wantCode(t, err, codes.Unavailable) // after a message
		w.wantCame(0, time.Minute, time.Minute+time.Second)
		if s.Trailer().Get("n")[0] != "3" {
			t.Errorf("trailer %v, want that of the last attempt", s.Trailer())
		}
		if len(ended) != 1 || status.Code(ended[0]) != codes.Unavailable {
			t.Errorf("OnFinish was called with %v, want one Unavailable", ended)
		}
		if got := w.stats().RetryTokens; got != 100 { // 5 for each retry; a minute and the success put them back
			t.Errorf("%d tokens are left, want 100", got)
		}
		if w.previous[2] != "2" {
			t.Errorf("previous attempts %q, want 2", w.previous[2])
		}
	})
}

// TestStream_ThatIsNotRetried: when a client has seen the header or the context, or the call
// must not be retried.
func TestStream_ThatIsNotRetried(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(w *world) error
	}{
		{"Header", func(w *world) error {
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			_, _ = s.Header()
			_, err = s.Recv()
			return err
		}},
		{"Context", func(w *world) error {
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			_ = s.Context()
			_, err = s.Recv()
			return err
		}},
		{"NoRetry", func(w *world) error {
			ctx := sluicegrpc.WithOverrides(w.Context(), sluicegrpc.Overrides{NoRetry: true})
			s, err := w.client.StreamingOutputCall(ctx, request)
			wantCode(t, err, codes.OK)
			_, err = s.Recv()
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
				w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return sorry }
				wantCode(t, test.do(w), codes.ResourceExhausted)
				w.wantCame(0)
				if left := time.Until(w.stats().PausedUntil); left != time.Minute {
					t.Errorf("paused for %v, want a minute", left)
				}
			})
		})
	}
}

// TestStream_ThatCannotBeOpened is retried, whatever its kind: nothing was sent.
func TestStream_ThatCannotBeOpened(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
		w.both = func(int, pb.TestService_FullDuplexCallServer) error { return nil }
		w.refuse(true)
		time.AfterFunc(1500*ms, func() { w.refuse(false) })
		s, err := w.client.FullDuplexCall(w.Context())
		wantCode(t, err, codes.OK)
		if _, err := s.Recv(); err != io.EOF {
			t.Error(err)
		}
		if w.calls() != 1 || w.stats().Retried == 0 {
			t.Errorf("%d streams came after %d retries, want 1 after some", w.calls(), w.stats().Retried)
		}
	})
}

// TestStream_GivesUp: with the status of the server and the reason.
func TestStream_GivesUp(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		code codes.Code
		why  error
		came int
	}{
		{"attempts", failure(codes.Unavailable), codes.Unavailable, sluice.ErrAttempts, 4},
		{"too long a wait", failure(codes.ResourceExhausted, after(time.Hour)), codes.ResourceExhausted, sluice.ErrServerWait, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
				w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return test.err }
				s, err := w.client.StreamingOutputCall(w.Context(), request)
				wantCode(t, err, codes.OK)
				for range 2 { // the second time, too
					_, err = s.Recv()
					wantCode(t, err, test.code)
				}
				if got := status.Convert(err).Message(); got != "sorry" {
					t.Errorf("the message is %q, want that of the server", got)
				}
				if !errors.Is(err, test.why) || w.calls() != test.came {
					t.Errorf("%d came, %v; want %d, %v", w.calls(), err, test.came, test.why)
				}
			})
		})
	}
}

// TestStream_HeaderOfTheNextAttempt: while RecvMsg waits to open the stream again, there is
// no header yet; and if it cannot be opened, RecvMsg has the error.
func TestStream_HeaderOfTheNextAttempt(t *testing.T) {
	for _, last := range []codes.Code{codes.OK, codes.NotFound} {
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
			w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
				switch {
				case n == 1:
					return failure(codes.Unavailable)
				case last != codes.OK:
					return failure(last)
				}
				_ = s.SendHeader(metadata.Pairs("n", "2"))
				return s.Send(response)
			}
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			received := make(chan error)
			go func() {
				_, err := s.Recv()
				received <- err
			}()
			time.Sleep(500 * ms)
			header, err := s.Header()
			if got := time.Since(w.start); err != nil || got != time.Second || last == codes.OK && !slices.Equal(header.Get("n"), []string{"2"}) {
				t.Errorf("header %v, %v after %v; want that of the second attempt, after 1s", header, err, got)
			}
			wantCode(t, <-received, last)
			if last == codes.OK {
				if _, err := s.Recv(); err != io.EOF {
					t.Error(err)
				}
			}
			w.wantCame(0, time.Second)
		})
	}
}

// TestStream_HeaderWithoutAnotherAttempt: the gate rejects it.
func TestStream_HeaderWithoutAnotherAttempt(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.Unavailable) }
		ctx, cancel := context.WithCancel(w.Context())
		s, err := w.client.StreamingOutputCall(ctx, request)
		wantCode(t, err, codes.OK)
		received := make(chan error)
		go func() {
			_, err := s.Recv()
			received <- err
		}()
		time.Sleep(500 * ms)
		time.AfterFunc(100*ms, cancel)
		if header, err := s.Header(); header != nil || err != nil || time.Since(w.start) != 600*ms {
			t.Errorf("header %v, %v after %v; want none after 600ms", header, err, time.Since(w.start))
		}
		wantCode(t, <-received, codes.Canceled)
		w.wantCame(0)
	})
}

// TestStream_EndsInTheBackoff: with its context. OnFinish has returned before the client knows;
// otherwise -race finds that out here.
func TestStream_EndsInTheBackoff(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.ResourceExhausted) }
		ctx, cancel := context.WithCancel(w.Context())
		time.AfterFunc(500*ms, cancel)
		ended := 0
		s, err := w.client.StreamingOutputCall(ctx, request, grpc.OnFinish(func(error) { ended++ }))
		wantCode(t, err, codes.OK)
		for range 2 {
			_, err = s.Recv()
			wantCode(t, err, codes.Canceled)
		}
		w.wantCame(0)
		if ended != 1 || time.Since(w.start) != 500*ms {
			t.Errorf("OnFinish was called %d times, after %v; want once, after 500ms", ended, time.Since(w.start))
		}
	})
}

// TestStream_SendMsgFails: gRPC found no connection for it after all.
func TestStream_SendMsgFails(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal} {
		failures := 2
		fails := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			if failures--; failures < 0 {
				return s, err
			}
			return mute{s, failure(code)}, err
		}
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
			ctx, cancel := context.WithCancel(w.Context()) // ends the streams that only seem to have failed
			defer cancel()
			w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { return s.Send(response) }
			var ended []error
			s, err := w.client.StreamingOutputCall(ctx, request, grpc.OnFinish(func(err error) { ended = append(ended, err) }))
			if code == codes.Internal {
				wantCode(t, err, code)
			} else {
				wantCode(t, err, codes.OK)
				_, err = s.Recv()
				wantCode(t, err, codes.OK)
				_, err = s.Recv()
				if err != io.EOF || time.Since(w.start) != 2*time.Second {
					t.Errorf("%v after %v, want io.EOF after 2s", err, time.Since(w.start))
				}
			}
			if len(ended) != 1 || status.Code(ended[0]) != status.Code(err) && err != io.EOF {
				t.Errorf("OnFinish was called with %v, want once", ended)
			}
			w.wantInFlight(0)
		}, grpc.WithChainStreamInterceptor(fails))
	}
}

// TestStream_SendMsgAndRecvMsgFail immediately: the stream is opened again once.
func TestStream_SendMsgAndRecvMsgFail(t *testing.T) {
	opened := 0
	fails := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if opened++; opened > 1 {
			return s, err
		}
		return deaf{mute{s, failure(codes.Unavailable)}}, err
	}
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context()) // ends the stream that only seems to have failed
		defer cancel()
		w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { return s.Send(response) }
		s, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/grpc.testing.TestService/StreamingOutputCall")
		wantCode(t, err, codes.OK)
		var wg sync.WaitGroup
		wg.Go(func() { wantCode(t, s.RecvMsg(&pb.StreamingOutputCallResponse{}), codes.OK) })
		wantCode(t, s.SendMsg(request), codes.OK)
		wg.Wait()
		if opened != 2 {
			t.Errorf("%d streams were opened, want 2", opened)
		}
	}, grpc.WithChainStreamInterceptor(fails))
}

// A deaf stream cannot receive either. Its error comes a while later.
type deaf struct{ mute }

func (d deaf) RecvMsg(any) error { time.Sleep(ms); return d.err }

// A mute stream cannot send.
type mute struct {
	grpc.ClientStream
	err error
}

func (m mute) SendMsg(any) error { return m.err }

// TestStream_EndsWhileItIsOpened: the connection goes before the client has the stream. It
// is opened again immediately, not after the client has sent messages that nothing repeats.
func TestStream_EndsWhileItIsOpened(t *testing.T) {
	opened := 0
	ends := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if opened++; opened > 1 {
			return streamer(ctx, desc, cc, method, opts...)
		}
		for _, o := range opts {
			if o, ok := o.(grpc.OnFinishCallOption); ok {
				o.OnFinish(failure(codes.Unavailable))
			}
		}
		return deaf{mute{nil, failure(codes.Unavailable)}}, nil
	}
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			return s.Send(response)
		}
		s, err := w.client.FullDuplexCall(w.Context())
		wantCode(t, err, codes.OK)
		wantCode(t, s.Send(request), codes.OK)
		_, err = s.Recv()
		wantCode(t, err, codes.OK)
		if _, err = s.Recv(); err != io.EOF || opened != 2 {
			t.Errorf("%v after %d streams were opened, want io.EOF after 2", err, opened)
		}
		w.wantInFlight(0)
	}, grpc.WithChainStreamInterceptor(ends))
}

// TestStream_ResendEndsWithEOF: io.EOF means that RecvMsg has the error, and not that the
// stream has ended well.
func TestStream_ResendEndsWithEOF(t *testing.T) {
	opened := 0
	ends := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if opened++; opened == 2 {
			s = full{s}
		}
		return s, err
	}
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			if n < 3 {
				return failure(codes.Unavailable)
			}
			return s.Send(response)
		}
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		_, err = s.Recv()
		wantCode(t, err, codes.OK)
		_, err = s.Recv()
		if err != io.EOF {
			t.Errorf("%v, want io.EOF", err)
		}
		w.wantCame(0, time.Second, 2*time.Second)
	}, grpc.WithChainStreamInterceptor(ends))
}

// A full stream sends, but says what gRPC says when a stream has ended.
type full struct{ grpc.ClientStream }

func (f full) SendMsg(m any) error {
	if err := f.ClientStream.SendMsg(m); err != nil {
		return err
	}
	return io.EOF
}

// TestStream_IsRefusedARetry: for good.
func TestStream_IsRefusedARetry(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: sluice.Config{Concurrency: 1, MaxWaiting: 1}, Retry: seconds}, func(w *world) {
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.ResourceExhausted) }
		w.unary = func(context.Context, int) error { time.Sleep(time.Minute); return nil }
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		w.wantInFlight(1)
		var wg sync.WaitGroup
		time.AfterFunc(500*ms, func() {
			for range 2 {
				wg.Go(func() { wantCode(t, w.call(w.Context()), codes.OK) })
				synctest.Wait()
			}
		})
		for range 2 {
			_, err = s.Recv()
			wantCode(t, err, codes.ResourceExhausted)
			if !errors.Is(err, limits.ErrQueueFull) {
				t.Errorf("%v, want ErrQueueFull", err)
			}
			wg.Wait()
		}
		w.wantCame(0, 500*ms, 500*ms+time.Minute)
	})
}

// TestStream_GateIsForgottenBetweenAttempts: the stream gives up rather than to count its
// attempts in another gate.
func TestStream_GateIsForgottenBetweenAttempts(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		var gates *sluice.Keyed[string]
		cfg := sluice.Config{Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventReleased {
				_ = gates.Use("another", func(*sluice.Gate) error { return nil })
			}
		}}
		var err error
		gates, err = sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(cfg) }, sluice.KeyedConfig{
			MaxKeys: 1, Evict: func(*sluice.Gate, bool) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		w.conn.Close()
		w.reconnect(sluicegrpc.Config{Gates: gates, Retry: seconds})
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.ResourceExhausted) }
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		_, err = s.Recv()
		wantCode(t, err, codes.ResourceExhausted)
		w.wantCame(0)
	})
}

// TestStream_LostLease ends a stream whose permit was lost.
func TestStream_LostLease(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		shop := &shop{lost: make(chan struct{})}
		w.conn.Close()
		w.reconnect(sluicegrpc.Config{Gate: sluice.Config{Semaphore: shop}, Retry: seconds, Idempotent: idempotent})
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			if n == 1 {
				close(shop.lost)
				<-s.Context().Done()
			}
			return s.Send(response)
		}
		s, err := w.client.StreamingOutputCall(context.Background(), request) // ends no goroutine
		wantCode(t, err, codes.OK)
		_, err = s.Recv()
		wantCode(t, err, codes.OK)
		w.wantCame(0, time.Second)
		if _, err := s.Recv(); err != io.EOF {
			t.Error(err)
		}
	})
}

// TestStream_AttemptTimeout: it bounds the wait for the first message; then the stream lasts
// as long as it likes. go-grpc-middleware#636.
func TestStream_AttemptTimeout(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	for _, safe := range []bool{true, false} {
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: policy, Idempotent: func(string) bool { return safe }}, func(w *world) {
			w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
				if _, ok := s.Context().Deadline(); ok {
					t.Error("the server sees a deadline, which would be that of the stream")
				}
				if n < 3 {
					<-s.Context().Done()
					return s.Context().Err()
				}
				time.Sleep(1900 * ms)
				_ = s.Send(response)
				time.Sleep(time.Minute)
				return s.Send(response)
			}
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			_, err = s.Recv()
			if !safe {
				wantCode(t, err, codes.DeadlineExceeded)
				w.wantCame(0)
				if got := time.Since(w.start); got != 2*time.Second {
					t.Errorf("after %v, want 2s", got)
				}
				return
			}
			wantCode(t, err, codes.OK)
			w.wantCame(0, 3*time.Second, 6*time.Second)
			if got := w.stats().RetryTokens; got != 100-2*10+5 {
				t.Errorf("%d tokens are left, want 85: a timeout costs 10", got)
			}
			_, err = s.Recv()
			wantCode(t, err, codes.OK)
			if _, err = s.Recv(); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// TestStream_AttemptTimeout_None: where it does not apply, or no longer. The client has seen
// the header, may send several messages, or has overridden it; and the server may return the
// code on its own.
func TestStream_AttemptTimeout_None(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	slow := func(_ int, s pb.TestService_StreamingOutputCallServer) error {
		_ = s.SendHeader(nil)
		time.Sleep(time.Minute)
		return s.Send(response)
	}
	never := sluicegrpc.Overrides{AttemptTimeout: -1}
	for name, test := range map[string]struct {
		code codes.Code
		took time.Duration
		do   func(w *world) error
	}{
		"Header": {codes.OK, time.Minute, func(w *world) error {
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			if _, err := s.Header(); err != nil {
				t.Error(err)
			}
			return drain(s)
		}},
		"Overrides": {codes.OK, time.Minute, func(w *world) error {
			s, err := w.client.StreamingOutputCall(sluicegrpc.WithOverrides(w.Context(), never), request)
			wantCode(t, err, codes.OK)
			return drain(s)
		}},
		"several messages": {codes.OK, time.Minute, func(w *world) error {
			w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
				time.Sleep(time.Minute)
				return s.SendAndClose(&pb.StreamingInputCallResponse{})
			}
			s, err := w.client.StreamingInputCall(w.Context())
			wantCode(t, err, codes.OK)
			_, err = s.CloseAndRecv()
			return err
		}},
		"the server": {codes.DeadlineExceeded, 0, func(w *world) error {
			w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.DeadlineExceeded) }
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			return drain(s)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sluicegrpc.Config{Gate: one, Retry: policy, Idempotent: idempotent}, func(w *world) {
				w.out = slow
				wantCode(t, test.do(w), test.code)
				w.wantCame(0)
				if got := time.Since(w.start); got != test.took {
					t.Errorf("after %v, want %v", got, test.took)
				}
			})
		})
	}
}

// drain receives messages until the stream ends, and returns its error.
func drain(s pb.TestService_StreamingOutputCallClient) error {
	for {
		switch _, err := s.Recv(); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// TestStream_LeavesRetriesToTheServiceConfig: as for unary calls.
func TestStream_LeavesRetriesToTheServiceConfig(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds, Idempotent: idempotent}, func(w *world) {
		w.out = func(int, pb.TestService_StreamingOutputCallServer) error { return failure(codes.Unavailable) }
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		_, err = s.Recv()
		wantCode(t, err, codes.Unavailable)
		if s := w.stats(); w.calls() != 3 || s.Admitted != 1 || s.Retried != 0 {
			t.Errorf("%d calls, %d permits, %d retries; want 3, 1 and 0", w.calls(), s.Admitted, s.Retried)
		}
	}, grpc.WithDefaultServiceConfig(retryPolicy))
}

// TestStream_CountsAsOneSuccess: for the retry budget, with however many messages.
func TestStream_CountsAsOneSuccess(t *testing.T) {
	inWorld(t, sluicegrpc.Config{}, func(w *world) {
		w.unary = failing(1, failure(codes.NotFound))
		messages := 3
		w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
			for range messages {
				_ = s.Send(response)
			}
			return nil
		}
		w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
			return s.SendAndClose(&pb.StreamingInputCallResponse{})
		}
		wantTokens := func(want int) {
			t.Helper()
			if got := w.stats().RetryTokens; got != want {
				t.Errorf("%d tokens are left, want %d", got, want)
			}
		}
		wantCode(t, w.call(metadata.AppendToOutgoingContext(w.Context(), "x-retry-attempty", "1")), codes.NotFound)
		wantTokens(95)
		for want := 96; want <= 97; want++ {
			s, err := w.client.StreamingOutputCall(w.Context(), request)
			wantCode(t, err, codes.OK)
			for range messages {
				_, err := s.Recv()
				wantCode(t, err, codes.OK)
			}
			if _, err := s.Recv(); err != io.EOF {
				t.Error(err)
			}
			wantTokens(want)
			messages = 0
		}
		s, err := w.client.StreamingInputCall(w.Context())
		wantCode(t, err, codes.OK)
		_, err = s.CloseAndRecv()
		wantCode(t, err, codes.OK)
		wantTokens(98)
	})
}

// TestStream_FirstMessageEndsTheSlowStart: not the end of a long stream.
func TestStream_FirstMessageEndsTheSlowStart(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Retry: seconds}, func(w *world) {
		pause(t, w.i, target, time.Second)
		w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
			time.Sleep(100 * ms)
			_ = s.Send(response)
			time.Sleep(time.Hour)
			return nil
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				s, err := w.client.StreamingOutputCall(w.Context(), request)
				wantCode(t, err, codes.OK)
				for err == nil {
					_, err = s.Recv()
				}
				if err != io.EOF {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		w.wantCame(time.Second, time.Second+100*ms, time.Second+100*ms)
	})
}
