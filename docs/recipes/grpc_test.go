package recipes

import (
	"context"
	"io"
	"net"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicegrpc"
)

func pacedConn(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	// begin grpc
	interceptor, err := sluicegrpc.New(sluicegrpc.Config{
		Gate:       sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
		Idempotent: func(method string) bool { return strings.HasPrefix(path.Base(method), "Get") },
	})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, append(options,
		grpc.WithChainUnaryInterceptor(interceptor.Unary),
		grpc.WithChainStreamInterceptor(interceptor.Stream),
	)...)
	// end grpc
}

// A shop refuses its third call for a minute.
type shop struct {
	pb.UnimplementedTestServiceServer
	calls atomic.Int64
}

func (s *shop) refuse() error {
	if s.calls.Add(1) != 3 {
		return nil
	}
	sorry, err := status.New(codes.ResourceExhausted, "too many").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		return err
	}
	return sorry.Err()
}

func (s *shop) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	return &pb.Empty{}, s.refuse()
}

func (s *shop) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, out pb.TestService_StreamingOutputCallServer) error {
	if err := s.refuse(); err != nil {
		return err
	}
	return out.Send(&pb.StreamingOutputCallResponse{})
}

func (s *shop) StreamingInputCall(in pb.TestService_StreamingInputCallServer) error {
	if err := s.refuse(); err != nil {
		return err
	}
	n := int32(0)
	for _, err := in.Recv(); err != io.EOF; _, err = in.Recv() {
		if err != nil {
			return err
		}
		n++
	}
	return in.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
}

func TestGRPC(t *testing.T) {
	unary := func(ctx context.Context, client pb.TestServiceClient) error {
		_, err := client.EmptyCall(ctx, &pb.Empty{})
		return err
	}
	stream := func(ctx context.Context, client pb.TestServiceClient) error {
		s, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
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
	upload := func(ctx context.Context, client pb.TestServiceClient) error {
		s, err := client.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		for range 5 {
			if err := s.Send(&pb.StreamingInputCallRequest{}); err != nil && err != io.EOF {
				return err
			}
		}
		reply, err := s.CloseAndRecv()
		if err == nil && reply.GetAggregatedPayloadSize() != 5 {
			t.Errorf("%d messages came, want 5", reply.GetAggregatedPayloadSize())
		}
		return err
	}
	for name, call := range map[string]func(context.Context, pb.TestServiceClient) error{"unary": unary, "stream": stream, "upload": upload} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := bufconn.Listen(1 << 16)
				srv := grpc.NewServer()
				defer srv.Stop()
				served := new(shop)
				pb.RegisterTestServiceServer(srv, served)
				go srv.Serve(listener)
				conn, err := pacedConn("passthrough:test",
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
					grpc.WithTransportCredentials(insecure.NewCredentials()),
				)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				began := time.Now()
				parallel(t, 10, func() error { return call(t.Context(), pb.NewTestServiceClient(conn)) })
				// The third call, at 200 ms, pauses the gate; it and the other seven follow.
				// gRPC itself repeats none.
				if took, calls := time.Since(began), served.calls.Load(); took != time.Minute+900*time.Millisecond || calls != 11 {
					t.Errorf("%d calls took %v, want 11 and 1m0.9s", calls, took)
				}
			})
		})
	}
}
