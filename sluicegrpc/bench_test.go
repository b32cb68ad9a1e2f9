package sluicegrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// gated is a gate that delays no call here.
var gated = sluicegrpc.Config{Gate: sluice.Config{Concurrency: 1000, Rate: sluice.Rate{Count: 1e9, Per: time.Second, Burst: 1e9}}}

// BenchmarkUnary: a call to a server on loopback, by the client alone and through a gate.
func BenchmarkUnary(b *testing.B) {
	for _, bench := range []struct {
		name string
		cfg  *sluicegrpc.Config
	}{{"bare", nil}, {"zero", &sluicegrpc.Config{}}, {"gated", &gated}} {
		b.Run(bench.name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := grpc.NewServer()
			pb.RegisterTestServiceServer(server, &world{})
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
			if bench.cfg != nil {
				options = append(options, grpc.WithUnaryInterceptor(mustNew(b, *bench.cfg).Unary))
			}
			conn, err := grpc.NewClient(listener.Addr().String(), options...)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			client, request := pb.NewTestServiceClient(conn), &pb.SimpleRequest{}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.UnaryCall(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInterceptor: what the interceptor adds to a call that does nothing.
func BenchmarkInterceptor(b *testing.B) {
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	i := mustNew(b, gated)
	nothing := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	request := &pb.SimpleRequest{}
	b.ReportAllocs()
	for b.Loop() {
		if err := i.Unary(b.Context(), empty, request, request, conn, nothing); err != nil {
			b.Fatal(err)
		}
	}
}

func mustNew(tb testing.TB, cfg sluicegrpc.Config) *sluicegrpc.Interceptor {
	tb.Helper()
	i, err := sluicegrpc.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}
