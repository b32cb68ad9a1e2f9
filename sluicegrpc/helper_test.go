package sluicegrpc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicegrpc"
)

const ms = time.Millisecond

// seconds is a policy whose every backoff is 1 s, so that instants are exact.
var seconds = sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(time.Second)}

const (
	empty  = "/grpc.testing.TestService/EmptyCall"
	target = "passthrough:///test"
)

// A world is a server in memory and a client that comes to it through an interceptor.
type world struct {
	*testing.T
	pb.UnimplementedTestServiceServer

	i      *sluicegrpc.Interceptor
	server *grpc.Server
	conn   *grpc.ClientConn
	client pb.TestServiceClient
	dialer grpc.DialOption
	start  time.Time

	// What the server does with the n-th call, from 1 on.
	unary func(ctx context.Context, n int) error
	out   func(n int, s pb.TestService_StreamingOutputCallServer) error
	in    func(n int, s pb.TestService_StreamingInputCallServer) error
	both  func(n int, s pb.TestService_FullDuplexCallServer) error

	mu       sync.Mutex
	came     []time.Duration
	previous []string // the metadata grpc-previous-rpc-attempts of each call
	refusing bool     // connections
}

// inWorld runs f in a bubble with a client whose interceptor is made of cfg.
func inWorld(t *testing.T, cfg sluicegrpc.Config, f func(w *world), options ...grpc.DialOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, start: time.Now()}
		listener := bufconn.Listen(1 << 16)
		w.serve(listener)
		defer w.server.Stop()
		w.dialer = grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.refusing {
				return nil, errors.New("refused")
			}
			return listener.DialContext(ctx)
		})
		w.connect("passthrough:test", cfg, append(options, w.dialer)...)
		defer func() { w.conn.Close() }()
		f(w)
		synctest.Wait()
		w.i.Gates().Stats(func(key string, s sluice.Stats) bool {
			if s.InFlight != 0 {
				t.Errorf("gate %s: %d in flight at the end", key, s.InFlight)
			}
			return true
		})
	})
}

// serve starts the server.
func (w *world) serve(listener net.Listener) {
	w.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if w.unary == nil {
			return failure(codes.Unimplemented)
		}
		return w.unary(s.Context(), w.arrived(s.Context()))
	}))
	pb.RegisterTestServiceServer(w.server, w)
	grpc_health_v1.RegisterHealthServer(w.server, health.NewServer())
	go func() { _ = w.server.Serve(listener) }()
}

// connect makes the client.
func (w *world) connect(target string, cfg sluicegrpc.Config, options ...grpc.DialOption) {
	w.Helper()
	var err error
	if w.i, err = sluicegrpc.New(cfg); err != nil {
		w.Fatal(err)
	}
	w.conn, err = grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(w.i.Unary),
		grpc.WithChainStreamInterceptor(w.i.Stream),
	}, options...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.client = pb.NewTestServiceClient(w.conn)
}

// arrived notes a call and returns its number.
func (w *world) arrived(ctx context.Context) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	previous := ""
	if md, _ := metadata.FromIncomingContext(ctx); len(md["grpc-previous-rpc-attempts"]) > 0 {
		previous = md["grpc-previous-rpc-attempts"][0]
	}
	w.came = append(w.came, time.Since(w.start))
	w.previous = append(w.previous, previous)
	return len(w.came)
}

// calls returns how many calls have arrived.
func (w *world) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.came)
}

func (w *world) refuse(refusing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusing = refusing
}

func (w *world) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	n := w.arrived(ctx)
	if w.unary == nil {
		return &pb.Empty{}, nil
	}
	return &pb.Empty{}, w.unary(ctx, n)
}

func (w *world) UnaryCall(_ context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, req.ResponseSize)}}, nil
}

func (w *world) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s pb.TestService_StreamingOutputCallServer) error {
	return w.out(w.arrived(s.Context()), s)
}

func (w *world) StreamingInputCall(s pb.TestService_StreamingInputCallServer) error {
	return w.in(w.arrived(s.Context()), s)
}

func (w *world) FullDuplexCall(s pb.TestService_FullDuplexCallServer) error {
	return w.both(w.arrived(s.Context()), s)
}

// call makes a unary call.
func (w *world) call(ctx context.Context, opts ...grpc.CallOption) error {
	_, err := w.client.EmptyCall(ctx, &pb.Empty{}, opts...)
	return err
}

// wantCame checks when calls arrived at the server.
func (w *world) wantCame(want ...time.Duration) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.came, want) {
		w.Errorf("calls arrived at\n\t%v\nwant\n\t%v", w.came, want)
	}
}

// wantCode checks the code of an error.
func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%v: %v, want %v", got, err, want)
	}
}

// wantInFlight checks what is in flight at the only gate.
func (w *world) wantInFlight(want int64) {
	w.Helper()
	synctest.Wait()
	if got := w.stats().InFlight; got != want {
		w.Errorf("%d in flight, want %d", got, want)
	}
}

// stats returns the Stats of the only gate.
func (w *world) stats() (only sluice.Stats) {
	w.Helper()
	n := 0
	w.i.Gates().Stats(func(_ string, s sluice.Stats) bool {
		n++
		only = s
		return true
	})
	if n != 1 {
		w.Fatalf("there are %d gates, want 1", n)
	}
	return only
}

// failing returns a unary that fails the first n calls with err.
func failing(n int, err error) func(context.Context, int) error {
	return func(_ context.Context, nth int) error {
		if nth <= n {
			return err
		}
		return nil
	}
}

// failure returns a status with details.
func failure(code codes.Code, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, "sorry").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// after is the detail with which a server requests a wait.
func after(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// idempotent declares all methods idempotent.
func idempotent(string) bool { return true }

// retryPolicy is a service config with which gRPC itself retries.
const retryPolicy = `{"methodConfig": [{"name": [{"service": "grpc.testing.TestService"}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`
