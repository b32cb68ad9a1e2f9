package sluicegrpc_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/sluice-go/sluice/sluicegrpc"
)

// A held stream delivers its first message, or its end, so much later.
type held struct {
	grpc.ClientStream
	once sync.Once
	by   time.Duration
}

func (h *held) RecvMsg(m any) error {
	err := h.ClientStream.RecvMsg(m)
	h.once.Do(func() { time.Sleep(h.by) })
	return err
}

// holding is an interceptor that holds the first stream of each context with a hold.
func holding(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if by, ok := ctx.Value(hold{}).(*time.Duration); ok && err == nil {
		s, *by = &held{ClientStream: s, by: *by}, 0
	}
	return s, err
}

type hold struct{}

// numbered sends three messages by which a client can tell the attempts apart.
func numbered(n int, send func(*pb.StreamingOutputCallResponse) error) error {
	for i := range 3 {
		if err := send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: fmt.Appendf(nil, "%d.%d", n, i)}}); err != nil {
			return err
		}
	}
	return nil
}

// seen reads up to most messages and returns them, and the code of the end if it came.
func seen(s grpc.ClientStream, most int) (all []string) {
	for range most {
		m := new(pb.StreamingOutputCallResponse)
		switch err := s.RecvMsg(m); err {
		case nil:
			all = append(all, string(m.Payload.Body))
		case io.EOF:
			return append(all, "EOF")
		default:
			return append(all, status.Code(err).String())
		}
	}
	return all
}

// TestStream_MessageBesideTheEnd: the first message reaches the client just before, when or
// just after its attempt is ended by a timer or a lost lease. The client sees all of the
// first attempt or all of the second, and never a part of both. Only at the same instant may
// an attempt end that the client has seen a part of.
func TestStream_MessageBesideTheEnd(t *testing.T) {
	first, second := []string{"1.0", "1.1", "1.2", "EOF"}, []string{"2.0", "2.1", "2.2", "EOF"}
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	for _, test := range []struct {
		name, method  string
		lease, client bool
	}{
		{"timeout", "StreamingOutputCall", false, false},
		{"lost lease", "StreamingOutputCall", true, false},
		{"lost lease, bidi", "FullDuplexCall", true, true},
	} {
		for by, want := range map[time.Duration][][]string{
			2*time.Second - 1: {first},
			2 * time.Second:   {first, second},
			2*time.Second + 1: {second},
		} {
			t.Run(fmt.Sprint(test.name, " ", by), func(t *testing.T) {
				inWorld(t, sluicegrpc.Config{}, func(w *world) {
					cfg := sluicegrpc.Config{Retry: policy, Idempotent: idempotent}
					if test.lease {
						shop := &shop{lost: make(chan struct{})}
						time.AfterFunc(2*time.Second, func() { close(shop.lost) })
						cfg.Gate.Semaphore, cfg.Retry.AttemptTimeout = shop, 0
					}
					w.conn.Close()
					w.reconnect(cfg, grpc.WithChainStreamInterceptor(holding))
					w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error { return numbered(n, s.Send) }
					w.both = func(n int, s pb.TestService_FullDuplexCallServer) error {
						if _, err := s.Recv(); err != nil {
							t.Errorf("attempt %d came without a request: %v", n, err)
						}
						return numbered(n, s.Send)
					}
					w.start = time.Now()
					var ended []error
					ctx := context.WithValue(w.Context(), hold{}, &by)
					desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: test.client}
					s, err := w.conn.NewStream(ctx, desc, "/grpc.testing.TestService/"+test.method, grpc.OnFinish(func(err error) { ended = append(ended, err) }))
					wantCode(t, err, codes.OK)
					wantCode(t, s.SendMsg(request), codes.OK)
					wantCode(t, s.CloseSend(), codes.OK)
					got := seen(s, 9)
					synctest.Wait() // OnFinish may be called in another goroutine
					if len(want) == 2 && ended[0] != nil && len(ended) == 1 && got[0] == "1.0" {
						if slices.ContainsFunc(got, func(m string) bool { return m[0] == '2' }) {
							t.Errorf("the client saw %v", got)
						}
						return
					}
					if !slices.ContainsFunc(want, func(one []string) bool { return slices.Equal(one, got) }) {
						t.Errorf("the client saw %v, want one of %v", got, want)
					}
					if len(ended) != 1 || ended[0] != nil {
						t.Errorf("OnFinish was called with %v, want nil once", ended)
					}
					if calls := fmt.Sprint(w.calls()); calls != got[0][:1] {
						t.Errorf("%s calls came, the client saw %v", calls, got)
					}
				})
			})
		}
	}
}

// TestStream_MessagesAtRandomInstants: the same for many streams, some of which are canceled
// or not read on at the same instants.
func TestStream_MessagesAtRandomInstants(t *testing.T) {
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(0), AttemptTimeout: 10}
	cfg := sluicegrpc.Config{Gate: sluice.Config{RetryBudget: -1, Adaptive: sluice.Adaptive{Disabled: true}}, Retry: policy, Idempotent: idempotent}
	inWorld(t, cfg, func(w *world) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error { return numbered(n, s.Send) }
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				by := 9 + rand.N[time.Duration](3)
				ctx, cancel := context.WithCancel(context.WithValue(w.Context(), hold{}, &by))
				defer cancel()
				if rand.N(2) == 0 {
					time.AfterFunc(9+rand.N[time.Duration](3), cancel)
				}
				ended := make(chan error, 9)
				s, err := w.client.StreamingOutputCall(ctx, request, grpc.OnFinish(func(err error) { ended <- err }))
				if err == nil {
					time.Sleep(rand.N[time.Duration](15))
					got := seen(s, rand.N(6))
					for _, one := range got {
						if one[:1] != got[0][:1] && one != "EOF" && one != "Canceled" && one != "DeadlineExceeded" {
							w.Errorf("the client saw %v", got)
						}
					}
				}
				cancel()
				<-ended // or the bubble deadlocks
				time.Sleep(time.Second)
				if len(ended) != 0 {
					w.Error("OnFinish was called twice")
				}
			})
		}
		wg.Wait()
	}, grpc.WithChainStreamInterceptor(holding))
}

// TestStream_DueAndNotRead: an attempt ends in time for another one, but the client does not
// read. Its context ends the stream, exactly then.
func TestStream_DueAndNotRead(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: policy, Idempotent: idempotent}, func(w *world) {
		w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error {
			<-s.Context().Done()
			return nil
		}
		ctx, cancel := context.WithCancel(w.Context())
		var ended []error
		s, err := w.client.StreamingOutputCall(ctx, request, grpc.OnFinish(func(err error) { ended = append(ended, err) }))
		wantCode(t, err, codes.OK)
		time.Sleep(time.Hour)
		w.wantInFlight(0)
		if len(ended) != 0 || s.Context() != ctx {
			t.Errorf("OnFinish was called with %v, too early; context %v", ended, s.Context())
		}
		cancel()
		synctest.Wait()
		if len(ended) != 1 || status.Code(ended[0]) != codes.Canceled {
			t.Fatalf("OnFinish was called with %v, want Canceled once", ended)
		}
		_, err = s.Recv()
		wantCode(t, err, codes.Canceled)
		if header, err := s.Header(); len(header) != 0 || len(ended) != 1 {
			t.Errorf("header %v, %v; OnFinish was called %d times", header, err, len(ended))
		}
		w.wantCame(0)
	})
}

// TestStream_DueAndReadLater: what the client asks for before it reads neither commits the
// stream nor loses its request.
func TestStream_DueAndReadLater(t *testing.T) {
	policy := seconds
	policy.AttemptTimeout = 2 * time.Second
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: policy, Idempotent: idempotent}, func(w *world) {
		w.out = func(n int, s pb.TestService_StreamingOutputCallServer) error {
			if n == 1 {
				<-s.Context().Done()
			}
			return numbered(n, s.Send)
		}
		s, err := w.client.StreamingOutputCall(w.Context(), request)
		wantCode(t, err, codes.OK)
		time.Sleep(time.Hour)
		_, _ = s.Context(), s.Trailer()
		if got, want := seen(s, 9), []string{"2.0", "2.1", "2.2", "EOF"}; !slices.Equal(got, want) {
			t.Errorf("the client saw %v, want %v", got, want)
		}
		w.wantCame(0, time.Hour+time.Second) // the backoff begins when there is somebody to wait
	})
}

// A puppet is a stream whose RecvMsg does what a test says. grpc calls OnFinish when it has
// seen an end, whatever RecvMsg returns at that time.
type puppet struct {
	grpc.ClientStream
	recv func() error
}

func (p puppet) RecvMsg(any) error            { return p.recv() }
func (p puppet) SendMsg(any) error            { return nil }
func (p puppet) Header() (metadata.MD, error) { return nil, nil }

// TestStream_EndsTwice: gRPC reports a failure while RecvMsg is about to return io.EOF or a
// message. The failure was decided first, so the client sees the next attempt.
func TestStream_EndsTwice(t *testing.T) {
	for _, late := range []error{nil, io.EOF} {
		synctest.Test(t, func(t *testing.T) {
			key := func(context.Context, string, string) string { return "key" }
			i := mustNew(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent, Key: key})
			n := 0
			streamer := func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				n++
				if n > 1 {
					return puppet{recv: func() error { return io.EOF }}, nil
				}
				return puppet{recv: func() error {
					for _, o := range opts {
						if o, ok := o.(grpc.OnFinishCallOption); ok {
							o.OnFinish(failure(codes.Unavailable))
						}
					}
					return late
				}}, nil
			}
			ended := 0
			s, err := i.Stream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, empty, streamer, grpc.OnFinish(func(error) { ended++ }))
			wantCode(t, err, codes.OK)
			wantCode(t, s.SendMsg(request), codes.OK)
			start := time.Now()
			if err := s.RecvMsg(nil); err != io.EOF || n != 2 || ended != 1 || time.Since(start) != time.Second {
				t.Errorf("%v after %d attempts and %v, OnFinish was called %d times; want io.EOF of the second after 1s, once", err, n, time.Since(start), ended)
			}
		})
	}
}

// An eager stream has been rejected, but Header calls that a success, as in grpc-go between
// the frame that ends a stream and its status.
type eager struct {
	grpc.ClientStream
	onFinish func(error)
	reads    int
}

func (e *eager) SendMsg(any) error { return io.EOF }

func (e *eager) Header() (metadata.MD, error) {
	e.onFinish(nil)
	return nil, nil
}

func (e *eager) RecvMsg(any) error {
	e.reads++
	return failure(codes.ResourceExhausted)
}

func (e *eager) Trailer() metadata.MD { return metadata.Pairs("grpc-retry-pushback-ms", "7000") }

// TestStream_EndsBeforeItsStatus: a rejection that gRPC takes for a success for a moment is a
// rejection, whichever method notices that the stream has ended. After Header it is final.
func TestStream_EndsBeforeItsStatus(t *testing.T) {
	for _, first := range []string{"SendMsg", "Header", "Header beside RecvMsg"} {
		synctest.Test(t, func(t *testing.T) {
			key := func(context.Context, string, string) string { return "key" }
			i := mustNew(t, sluicegrpc.Config{Retry: seconds, Idempotent: idempotent, Key: key})
			var once *eager
			streamer := func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if once != nil {
					return puppet{recv: func() error { return io.EOF }}, nil
				}
				once = &eager{}
				for _, o := range opts {
					if o, ok := o.(grpc.OnFinishCallOption); ok {
						once.onFinish = o.OnFinish
					}
				}
				return once, nil
			}
			var ended []codes.Code
			s, err := i.Stream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, nil, empty, streamer,
				grpc.OnFinish(func(err error) { ended = append(ended, status.Code(err)) }))
			wantCode(t, err, codes.OK)
			start, want := time.Now(), codes.ResourceExhausted
			switch first {
			case "SendMsg": // the next attempt has its message
				want = codes.OK
				wantCode(t, s.SendMsg(request), codes.OK)
			case "Header":
				_, _ = s.Header()
			default:
				go func() { _, _ = s.Header() }()
			}
			err = s.RecvMsg(nil)
			if err == io.EOF {
				err = nil
			}
			synctest.Wait()
			if first == "Header beside RecvMsg" && err == nil { // RecvMsg was the first
				want = codes.OK
			}
			wantCode(t, err, want)
			if !slices.Equal(ended, []codes.Code{want}) || once.reads == 0 {
				t.Errorf("%s: OnFinish was called with %v after %d reads, want %v once", first, ended, once.reads, want)
			}
			if first == "SendMsg" && time.Since(start) != 7*time.Second {
				t.Errorf("%s: the next attempt ended after %v, want 7s", first, time.Since(start))
			}
		})
	}
}
