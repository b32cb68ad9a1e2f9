package sluicegrpc_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// All calls of a connection pass the gate of its target.
func Example() {
	dialer, stop := server(2) // stands for the internet, and rejects the second call
	defer stop()

	interceptor, err := sluicegrpc.New(sluicegrpc.Config{
		Gate:  sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 1000, Per: time.Second}},
		Retry: sluice.RetryPolicy{ThrottleBackoff: sluice.Constant(time.Millisecond)}, // an example may not dawdle
	})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("passthrough:api.example.com",
		grpc.WithTransportCredentials(insecure.NewCredentials()), dialer,
		grpc.WithChainUnaryInterceptor(interceptor.Unary),
		grpc.WithChainStreamInterceptor(interceptor.Stream),
	)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for range 3 {
		fmt.Println(status.Code(conn.Invoke(context.Background(), "/example.Shop/Buy", &pb.HealthCheckRequest{}, &pb.HealthCheckResponse{})))
	}
	interceptor.Gates().Stats(func(key string, s sluice.Stats) bool {
		fmt.Println(key, s.Admitted, "calls,", s.Retried, "retry")
		return true
	})
	// Output:
	// OK
	// OK
	// OK
	// passthrough:///api.example.com 4 calls, 1 retry
}

// A gate for each method; one method is expensive, and may be called twice.
func ExampleWithOverrides() {
	dialer, stop := server(0)
	defer stop()
	interceptor, err := sluicegrpc.New(sluicegrpc.Config{
		Key:  sluicegrpc.ByMethod,
		Gate: sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second, Burst: 10}, RateUnit: sluice.Cost},
	})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("passthrough:api.example.com", dialer,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(interceptor.Unary))
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	ctx := sluicegrpc.WithOverrides(context.Background(), sluicegrpc.Overrides{Cost: 10, Idempotent: true})
	err = conn.Invoke(ctx, "/example.Shop/Search", &pb.HealthCheckRequest{}, &pb.HealthCheckResponse{})
	fmt.Println(status.Code(err))
	// Output:
	// OK
}

// server answers all methods, and rejects the n-th call.
func server(n int) (dialer grpc.DialOption, stop func()) {
	calls := 0
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if calls++; calls == n {
			return status.Error(codes.ResourceExhausted, "too many")
		}
		if err := s.RecvMsg(&pb.HealthCheckRequest{}); err != nil {
			return err
		}
		return s.SendMsg(&pb.HealthCheckResponse{})
	}))
	go func() { _ = srv.Serve(listener) }()
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}), srv.Stop
}
