package main

import (
	"context"
	"errors"
	"net"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	grpcLimiter = "go-grpc-middleware ratelimit"
	grpcMethod  = "/zoo.Zoo/Call"
)

func init() {
	add(grpcServer("grpc-20", 20, 20))
	add(grpcServer("grpc-200", 200, 40))
}

// allow is a limiter for go-grpc-middleware, as in its example.
type allow struct{ *rate.Limiter }

func (a allow) Limit(context.Context) error {
	if !a.Allow() {
		return errors.New("too many")
	}
	return nil
}

func grpcServer(name string, r float64, burst int) server {
	return server{name: name, group: clock, limiter: grpcLimiter, says: "ResourceExhausted, nothing else", limit: bucketOf(r, float64(burst)),
		start: func(run *real) (string, error) {
			s := grpc.NewServer(grpc.UnaryInterceptor(ratelimit.UnaryServerInterceptor(allow{rate.NewLimiter(rate.Limit(r), burst)})))
			s.RegisterService(&grpc.ServiceDesc{ServiceName: "zoo.Zoo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
				MethodName: "Call",
				Handler: func(_ any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
					in := new(emptypb.Empty)
					if err := decode(in); err != nil {
						return nil, err
					}
					return i(ctx, in, &grpc.UnaryServerInfo{FullMethod: grpcMethod}, func(context.Context, any) (any, error) {
						run.origin.work()
						return new(emptypb.Empty), nil
					})
				},
			}}}, nil)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return "", err
			}
			served := make(chan struct{})
			go func() {
				s.Serve(l)
				close(served)
			}()
			run.cleanup(func() {
				s.Stop()
				<-served
			})
			return l.Addr().String(), nil
		}}
}

// invoke makes calls through gRPC, with an interceptor around the tap if it is not nil.
func (t *target) invoke(around grpc.UnaryClientInterceptor, opts ...grpc.DialOption) caller {
	interceptors := []grpc.UnaryClientInterceptor{t.tap.intercept}
	if around != nil {
		interceptors = []grpc.UnaryClientInterceptor{around, t.tap.intercept}
	}
	conn := must(grpc.NewClient("passthrough:"+t.url, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(interceptors...))...))
	t.cleanup(func() { conn.Close() })
	return func(ctx context.Context, _ int) error {
		return conn.Invoke(ctx, grpcMethod, new(emptypb.Empty), new(emptypb.Empty))
	}
}

func (t *tap) intercept(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, in, out, conn, opts...)
	if code := status.Code(err); code != codes.Canceled && code != codes.DeadlineExceeded {
		t.note(err != nil)
	}
	return err
}
