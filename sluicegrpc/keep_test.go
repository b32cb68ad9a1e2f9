package sluicegrpc_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-go/sluice/sluicegrpc"
)

// An inbox reads the messages of a client: one byte each, 0, 1, 2 and so on.
type inbox interface {
	Recv() (*pb.StreamingInputCallRequest, error)
}

// read reads most messages, or all if most is negative, and returns how many came. They must
// come in order.
func read(tb testing.TB, in inbox, most int) (n int) {
	for n != most {
		m, err := in.Recv()
		if err != nil {
			return n
		}
		if got := m.GetPayload().GetBody(); len(got) == 0 || got[0] != byte(n) {
			tb.Errorf("message %d has the body %.10v", n, got)
		}
		n++
	}
	return n
}

// A sender sends such messages from one buffer.
type sender struct {
	s    grpc.ClientStreamingClient[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]
	body [1]byte
	sent int
}

func (s *sender) send() error {
	s.body[0] = byte(s.sent)
	s.sent++
	return s.s.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: s.body[:]}})
}

var sorry = failure(codes.ResourceExhausted, after(time.Minute))

// TestStream_SendsAgainWhatWasSent: the server throttles a stream after some messages. Whoever
// notices first opens it again, and all messages come once, in order.
func TestStream_SendsAgainWhatWasSent(t *testing.T) {
	const messages = 5
	for _, seen := range []int{0, 2, messages, -1} { // messages, when the server throttles
		for _, idle := range []int{-1, 0, 3, messages} { // messages, after which the client does something else
			t.Run(fmt.Sprintf("%d, %d", seen, idle), func(t *testing.T) {
				inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
					w.in = func(n int, s pb.TestService_StreamingInputCallServer) error {
						if n < 3 {
							read(t, s, seen)
							return sorry
						}
						return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(read(t, s, -1))})
					}
					in, err := w.client.StreamingInputCall(w.Context())
					wantCode(t, err, codes.OK)
					from := sender{s: in}
					for n := range messages + 1 {
						if n == idle {
							synctest.Wait()
						}
						if n < messages {
							wantCode(t, from.send(), codes.OK)
						}
					}
					reply, err := in.CloseAndRecv()
					wantCode(t, err, codes.OK)
					if got := reply.GetAggregatedPayloadSize(); got != messages {
						t.Errorf("%d messages came, want %d", got, messages)
					}
					w.wantCame(0, time.Minute, 2*time.Minute)
					w.wantInFlight(0)
					if !slices.Equal(w.previous, []string{"", "1", "2"}) {
						t.Errorf("previous attempts %q", w.previous)
					}
				})
			})
		}
	}
}

// TestStream_SendsWhileItIsOpenedAgain: one goroutine sends and another receives, while the server
// throttles again and again.
func TestStream_SendsWhileItIsOpenedAgain(t *testing.T) {
	const messages = 100
	for seed := range uint64(20) {
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 0))
			server := rand.New(rand.NewPCG(seed, 1)) // attempts are served one after another
			w.both = func(n int, s pb.TestService_FullDuplexCallServer) error {
				most := server.IntN(2 * messages)
				if n > 8 {
					most = -1
				}
				came := 0
				for came != most {
					m, err := s.Recv()
					if err == io.EOF {
						break
					}
					if err != nil {
						return err
					}
					if int(m.GetPayload().GetBody()[0]) != came {
						t.Errorf("message %d has the body %v", came, m.GetPayload().GetBody())
					}
					came++
				}
				if n <= 8 {
					return failure(codes.ResourceExhausted, after(time.Duration(server.IntN(20)+1)*ms))
				}
				return s.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte{byte(came)}}})
			}
			s, err := w.client.FullDuplexCall(w.Context())
			wantCode(t, err, codes.OK)
			var wg sync.WaitGroup
			wg.Go(func() {
				reply, err := s.Recv()
				wantCode(t, err, codes.OK)
				if got := reply.GetPayload().GetBody(); err == nil && got[0] != messages {
					t.Errorf("%v messages came, want %d", got, messages)
				}
				if _, err := s.Recv(); err != io.EOF {
					t.Errorf("%v, want io.EOF", err)
				}
			})
			for n := range messages {
				time.Sleep(time.Duration(r.IntN(5)) * ms)
				wantCode(t, s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte{byte(n)}}}), codes.OK)
			}
			wantCode(t, s.CloseSend(), codes.OK)
			wg.Wait()
			w.wantInFlight(0)
			if n := w.calls(); n != 9 {
				t.Errorf("%d attempts, want 9", n)
			}
		})
	}
}

// TestStream_ThatIsNotSentAgain: its messages are not kept. The gate is paused all the same.
func TestStream_ThatIsNotSentAgain(t *testing.T) {
	send := func(n int) func(*sender) {
		return func(from *sender) {
			for range n {
				_ = from.send() // CloseAndRecv has the error
			}
		}
	}
	for _, test := range []struct {
		name    string
		header  bool // the server sends it before it rejects
		with    sluicegrpc.Overrides
		options []grpc.DialOption
		do      func(from *sender)
	}{
		{"too large", false, sluicegrpc.Overrides{}, nil, func(from *sender) {
			_ = from.s.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 256<<10)}})
		}},
		{"too many", false, sluicegrpc.Overrides{}, nil, send(4000)},
		{"NoRetry", false, sluicegrpc.Overrides{NoRetry: true}, nil, send(2)},
		{"retryPolicy", false, sluicegrpc.Overrides{}, []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}, send(2)},
		{"other codec", false, sluicegrpc.Overrides{}, nil, func(from *sender) { _ = from.s.SendMsg(raw{}) }},
		{"lost after a header", true, sluicegrpc.Overrides{}, nil, func(from *sender) {
			_ = from.send()
			synctest.Wait()
			if err := from.send(); err != io.EOF {
				t.Errorf("%v, want io.EOF", err)
			}
		}},
		{"Header", true, sluicegrpc.Overrides{}, nil, func(from *sender) {
			_ = from.send()
			if _, err := from.s.Header(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := append(test.options, grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
			inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
				w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
					if test.header {
						_ = s.SendHeader(nil)
					}
					for _, err := s.Recv(); err == nil && test.name == "too many"; {
						_, err = s.Recv()
					}
					return sorry
				}
				in, err := w.client.StreamingInputCall(sluicegrpc.WithOverrides(w.Context(), test.with))
				wantCode(t, err, codes.OK)
				from := sender{s: in}
				test.do(&from)
				_, err = in.CloseAndRecv()
				wantCode(t, err, codes.ResourceExhausted)
				w.wantCame(0)
				if left := time.Until(w.stats().PausedUntil); left != time.Minute {
					t.Errorf("paused for %v, want a minute", left)
				}
				w.wantInFlight(0)
			}, options...)
		})
	}
}

// A raw message is not of protobuf, and empty.
type raw struct{}

// A rawCodec encodes raw messages as well.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	if v == (raw{}) {
		return nil, nil
	}
	return proto.Marshal(v.(proto.Message))
}

func (rawCodec) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }

func (rawCodec) Name() string { return "proto" }

// TestStream_OldMessage: a message of the old API of protobuf is sent again as well.
func TestStream_OldMessage(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
		w.in = func(n int, s pb.TestService_StreamingInputCallServer) error {
			came := read(t, s, 1)
			if n == 1 {
				return sorry
			}
			return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(came)})
		}
		in, err := w.client.StreamingInputCall(w.Context())
		wantCode(t, err, codes.OK)
		m := &oldRequest{Payload: &oldPayload{Body: []byte{0}}}
		wantCode(t, in.SendMsg(m), codes.OK)
		m.Payload.Body[0] = 9
		reply, err := in.CloseAndRecv()
		wantCode(t, err, codes.OK)
		if reply.GetAggregatedPayloadSize() != 1 {
			t.Errorf("%d messages came, want 1", reply.GetAggregatedPayloadSize())
		}
		w.wantCame(0, time.Minute)
	})
}

// An oldRequest is a StreamingInputCallRequest as it was generated before 2020.
type oldRequest struct {
	Payload *oldPayload `protobuf:"bytes,1,opt,name=payload,proto3"`
}

func (m *oldRequest) Reset()         { *m = oldRequest{} }
func (m *oldRequest) String() string { return "old request" }
func (*oldRequest) ProtoMessage()    {}

// An oldPayload is a Payload of the same time.
type oldPayload struct {
	Body []byte `protobuf:"bytes,2,opt,name=body,proto3"`
}

func (m *oldPayload) Reset()         { *m = oldPayload{} }
func (m *oldPayload) String() string { return "old payload" }
func (*oldPayload) ProtoMessage()    {}

// TestStream_SendsWhileItIsSentAgain: what a client sends while messages are sent again comes
// after them, and so does the end.
func TestStream_SendsWhileItIsSentAgain(t *testing.T) {
	slow := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return &slowStream{ClientStream: s}, err
	}
	for _, closes := range []bool{false, true} {
		inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
			w.in = func(n int, s pb.TestService_StreamingInputCallServer) error {
				if n == 1 {
					_, _ = s.Recv()
					return sorry
				}
				return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(read(t, s, -1))})
			}
			in, err := w.client.StreamingInputCall(w.Context())
			wantCode(t, err, codes.OK)
			from := sender{s: in}
			wantCode(t, from.send(), codes.OK)
			want := int32(1)
			time.AfterFunc(61*time.Second, func() { // while the message is sent again, from 60 to 62 s
				if !closes {
					want++
					wantCode(t, from.send(), codes.OK)
				}
				wantCode(t, in.CloseSend(), codes.OK)
			})
			var reply pb.StreamingInputCallResponse
			wantCode(t, in.RecvMsg(&reply), codes.OK)
			if reply.AggregatedPayloadSize != want {
				t.Errorf("%d messages came, want %d", reply.AggregatedPayloadSize, want)
			}
			if got := w.calls(); got != 2 {
				t.Errorf("%d attempts, want 2", got)
			}
		}, grpc.WithChainStreamInterceptor(slow))
	}
}

// A slowStream needs 2 s to send its first message.
type slowStream struct {
	grpc.ClientStream
	sent atomic.Bool
}

func (s *slowStream) SendMsg(m any) error {
	if !s.sent.Swap(true) {
		time.Sleep(2 * time.Second)
	}
	return s.ClientStream.SendMsg(m)
}

// TestStream_EndsWhileSendMsgWaits: SendMsg returns when the context ends.
func TestStream_EndsWhileSendMsgWaits(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: one, Retry: seconds}, func(w *world) {
		w.in = func(int, pb.TestService_StreamingInputCallServer) error { return sorry }
		ctx, cancel := context.WithCancel(w.Context())
		time.AfterFunc(time.Second, cancel)
		in, err := w.client.StreamingInputCall(ctx)
		wantCode(t, err, codes.OK)
		synctest.Wait()
		from := sender{s: in}
		wantCode(t, from.send(), codes.Canceled)
		if took := time.Since(w.start); took != time.Second {
			t.Errorf("SendMsg returned after %v, want 1s", took)
		}
		_, err = in.CloseAndRecv()
		wantCode(t, err, codes.Canceled)
		w.wantCame(0)
	})
}
