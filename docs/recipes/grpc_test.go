package recipes

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-go/sluice"
)

// begin grpc
func paced(gate *sluice.Gate) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return sluice.Retry(ctx, gate, sluice.RetryPolicy{}, func(ctx context.Context) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			switch status.Code(err) {
			case codes.OK:
				return nil
			case codes.ResourceExhausted:
				return sluice.RetryAfter(err, retryDelay(err)) // pauses all calls of the gate
			case codes.Unavailable:
				return err // is retried
			}
			return sluice.Permanent(err)
		})
	}
}

// retryDelay is what the server asks for, or 0.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// end grpc

func TestGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		refuse := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if calls.Add(1) == 3 {
				s, err := status.New(codes.ResourceExhausted, "too many").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
				if err != nil {
					t.Error(err)
				}
				return nil, s.Err()
			}
			return next(ctx, req)
		}
		listener := bufconn.Listen(1 << 16)
		srv := grpc.NewServer(grpc.UnaryInterceptor(refuse))
		defer srv.Stop()
		grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
		go srv.Serve(listener)

		gate, err := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("passthrough:test",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(paced(gate)),
		)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		parallel(t, 10, func() error {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			return err
		})
		if took := time.Since(began); took < time.Minute || took > 62*time.Second {
			t.Errorf("took %v, want a pause of a minute", took)
		}
	})
}
