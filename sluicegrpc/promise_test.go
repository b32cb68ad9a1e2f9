package sluicegrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// TestPromise runs the cells of the table of promises and features that are about gRPC.
func TestPromise(t *testing.T) {
	unary := func(ctx context.Context, client pb.TestServiceClient) error {
		_, err := client.EmptyCall(ctx, &pb.Empty{})
		return err
	}
	claimed := func(ctx context.Context, client pb.TestServiceClient) error {
		_, err := client.EmptyCall(context.WithValue(ctx, tenantKey{}, "a"), &pb.Empty{})
		return err
	}
	stream := func(ctx context.Context, client pb.TestServiceClient) error {
		s, err := client.StreamingOutputCall(ctx, request)
		for err == nil {
			_, err = s.Recv()
		}
		if err == io.EOF {
			return nil
		}
		return err
	}
	upload := func(ctx context.Context, client pb.TestServiceClient) error {
		s, err := client.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		for range 3 {
			if err := s.Send(&pb.StreamingInputCallRequest{}); err != nil && err != io.EOF {
				return err
			}
		}
		_, err = s.CloseAndRecv()
		return err
	}
	promise.Run(t, "sluicegrpc", map[string]promise.Setup{
		"grpc":               overGRPC(unary, false),
		"grpc_claimant":      overGRPC(claimed, false, byTenant),
		"grpc_stream":        overGRPC(stream, false),
		"grpc_client_stream": overGRPC(upload, false),
		"grpc_cost":          overGRPC(unary, true),
		"grpc_stream_cost":   overGRPC(stream, true),
	})
}

// serverWaits are the codes with which a server can set a wait, those for all calls first.
var serverWaits = []promise.ServerWait{
	{Status: int(codes.ResourceExhausted)}, {Status: int(codes.Unavailable)}, {Status: int(codes.Internal), Alone: true},
}

// overGRPC makes subjects whose calls start when they arrive at a server in memory. If cost
// is true, they take tokens in addition to, of which there are many.
func overGRPC(call func(ctx context.Context, client pb.TestServiceClient) error, cost bool, claimant ...func(ctx context.Context, target, method string) sluice.Claimant) promise.Setup {
	return func(tb testing.TB, l promise.Limits) *promise.Subject {
		if l.Policy.MaxServerWait == 0 {
			l.Policy.MaxServerWait = -1 // some pauses here are for an hour
		}
		config := l.Config()
		if cost {
			config.Limits = []sluice.Limit{{Unit: "tokens", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1_000_000}))}}
		}
		gate, err := sluice.New(config)
		if err != nil {
			tb.Fatal(err)
		}
		gates, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return gate, nil })
		if err != nil {
			tb.Fatal(err)
		}
		cfg := sluicegrpc.Config{
			Gates: gates, Retry: l.Policy, Idempotent: idempotent, AlsoRetry: []codes.Code{codes.Internal},
		}
		for _, f := range claimant {
			cfg.Claimant = f
		}
		if cost {
			cfg.Cost = func(string, any) sluice.Costs { return sluice.Costs{"tokens": 2} }
			cfg.Usage = func(_ string, _ any, used sluice.Costs) { used["tokens"] = 1 }
		}
		i := mustNew(tb, cfg)
		desk := &desk{calls: map[string]func() error{}}
		listener := bufconn.Listen(1 << 16)
		server := grpc.NewServer(grpc.WaitForHandlers(true))
		pb.RegisterTestServiceServer(server, desk)
		go func() { _ = server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithUnaryInterceptor(i.Unary), grpc.WithStreamInterceptor(i.Stream))
		if err != nil {
			tb.Fatal(err)
		}
		client := pb.NewTestServiceClient(conn)
		send := func(ctx context.Context, f func() error) error {
			number := desk.expect(f)
			defer desk.forget(number)
			return call(metadata.AppendToOutgoingContext(ctx, callKey, number), client)
		}
		s := &promise.Subject{
			Do: func(ctx context.Context, ask promise.Ask, f func() error) error {
				if ask.Within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, ask.Within)
					defer cancel()
				}
				return send(sluicegrpc.WithOverrides(ctx, sluicegrpc.Overrides{NoRetry: true, Cost: ask.N}), f)
			},
			Call:   send,
			Levels: []*promise.Level{promise.NewLevel("gate", gate)},
			Paced:  l.Interval > 0,
			Remote: true,
			Ways:   serverWaits,
			Close: func() {
				conn.Close()
				server.Stop()
			},
		}
		if cfg.Claimant != nil {
			s.Waiting = func() int64 { return promise.OfClaimants(gate) }
		}
		return s
	}
}

const callKey = "call"

// A desk is a server that answers each call by a function of its caller.
type desk struct {
	pb.UnimplementedTestServiceServer
	mu    sync.Mutex
	last  int
	calls map[string]func() error
}

func (d *desk) expect(f func() error) (number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	number = strconv.Itoa(d.last)
	d.calls[number] = f
	return number
}

func (d *desk) forget(number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, number)
}

func (d *desk) answer(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	d.mu.Lock()
	f := d.calls[md.Get(callKey)[0]]
	d.mu.Unlock()
	if f == nil { // its caller has given up
		return failure(codes.NotFound)
	}
	var wait *promise.ServerWait
	switch err := f(); {
	case err == nil:
		return nil
	case errors.As(err, &wait):
		code := codes.Code(wait.Status)
		if code == codes.OK {
			code = codes.ResourceExhausted
		}
		return failure(code, after(wait.After))
	}
	return failure(codes.Unavailable)
}

func (d *desk) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	return &pb.Empty{}, d.answer(ctx)
}

func (d *desk) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s pb.TestService_StreamingOutputCallServer) error {
	if err := d.answer(s.Context()); err != nil {
		return err
	}
	return s.Send(response)
}

func (d *desk) StreamingInputCall(s pb.TestService_StreamingInputCallServer) error {
	if err := d.answer(s.Context()); err != nil {
		return err
	}
	for _, err := s.Recv(); err != io.EOF; _, err = s.Recv() {
		if err != nil {
			return err
		}
	}
	return s.SendAndClose(&pb.StreamingInputCallResponse{})
}
