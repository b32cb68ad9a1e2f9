package sluicegrpc_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
)

// A fragile listener has connections that break.
type fragile struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *fragile) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
	}
	return c, err
}

// cut breaks all connections.
func (l *fragile) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// TestStress: calls and streams of all kinds, to a server on loopback that throttles, fails
// and loses connections, and whose clients give up. Never more than four are in flight; at the
// end there are none, and each OnFinish was called once.
func TestStress(t *testing.T) { stress(t, sluicegrpc.Config{}) }

// TestStress_Cost: the same with costs, so that streams are opened by their message.
func TestStress_Cost(t *testing.T) {
	stress(t, sluicegrpc.Config{
		Cost:  func(string, any) sluice.Costs { return sluice.Costs{"tokens": 10} },
		Usage: func(_ string, _ any, used sluice.Costs) { used["tokens"] = 1 },
	})
}

// stress runs TestStress with a Config that has more than it needs.
func stress(t *testing.T, cfg sluicegrpc.Config) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &fragile{Listener: tcp}
	w := &world{T: t, start: time.Now()}
	var inFlight, most atomic.Int64
	enter := func() func() {
		n := inFlight.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				return func() { inFlight.Add(-1) }
			}
		}
	}
	fault := func() error {
		switch rand.IntN(30) {
		case 0:
			return failure(codes.ResourceExhausted, after(ms))
		case 1:
			return failure(codes.Unavailable)
		case 2:
			return failure(codes.NotFound)
		case 3:
			listener.cut()
		}
		return nil
	}
	w.unary = func(context.Context, int) error { return fault() }
	w.out = func(_ int, s pb.TestService_StreamingOutputCallServer) error { _ = s.Send(response); return fault() }
	w.both = func(_ int, s pb.TestService_FullDuplexCallServer) error {
		_, _ = s.Recv()
		_ = s.Send(response)
		return fault()
	}
	w.in = func(_ int, s pb.TestService_StreamingInputCallServer) error {
		early := rand.IntN(2) == 0
		if early {
			if err := fault(); err != nil {
				return err
			}
		}
		n := int32(read(t, s, -1))
		if !early {
			if err := fault(); err != nil {
				return err
			}
		}
		return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
	}
	w.serve(listener)
	defer w.server.Stop()
	tokens := limits.Must(leaky.New(limits.Rate{Count: 1e6, Per: time.Second, Burst: 1e6}))
	cfg.Gate = sluice.Config{
		Concurrency: 4, Rate: sluice.Rate{Count: 1e6, Per: time.Second}, RetryBudget: -1,
		Limits: []sluice.Limit{{Name: "tokens", Unit: "tokens", Limiter: tokens}},
	}
	cfg.Retry = sluice.RetryPolicy{Backoff: sluice.Constant(ms), ThrottleBackoff: sluice.Constant(ms)}
	cfg.Idempotent = idempotent
	w.connect(tcp.Addr().String(), cfg,
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: ms, Multiplier: 1, MaxDelay: ms}}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			defer enter()()
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	defer w.conn.Close()

	var begun, finished, ok atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 40 {
				begun.Add(1)
				once := grpc.OnFinish(func(error) { finished.Add(1) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if rand.IntN(5) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, cancel)
				}
				switch err := w.any(ctx, once); status.Code(err) {
				case codes.OK:
					ok.Add(1)
				case codes.NotFound, codes.Unavailable, codes.ResourceExhausted, codes.Canceled:
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if err := w.i.Shutdown(t.Context()); err != nil { // waits for what the canceled streams hold
		t.Error(err)
	}
	if n := w.stats().InFlight; n != 0 || most.Load() > 4 {
		t.Errorf("%d in flight at the end, %d at most; want 0, at most 4", n, most.Load())
	}
	if ok.Load() == 0 || finished.Load() != begun.Load() {
		t.Errorf("%d calls, %d ended, %d well", begun.Load(), finished.Load(), ok.Load())
	}
}

// any makes a call of any kind.
func (w *world) any(ctx context.Context, opts ...grpc.CallOption) error {
	var read func() error
	switch rand.IntN(4) {
	case 0:
		return w.call(ctx, opts...)
	case 1:
		s, err := w.client.StreamingInputCall(ctx, opts...)
		if err != nil {
			return err
		}
		from := sender{s: s}
		for range 5 {
			if err := from.send(); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
		reply, err := s.CloseAndRecv()
		if err == nil && reply.AggregatedPayloadSize != 5 {
			err = fmt.Errorf("%d messages came, want 5", reply.AggregatedPayloadSize)
		}
		return err
	case 2:
		s, err := w.client.StreamingOutputCall(ctx, request, opts...)
		if err != nil {
			return err
		}
		read = func() error { _, err := s.Recv(); return err }
	default:
		s, err := w.client.FullDuplexCall(ctx, opts...)
		if err != nil {
			return err
		}
		_ = s.Send(request) // its error comes from Recv
		_ = s.CloseSend()
		read = func() error { _, err := s.Recv(); return err }
	}
	for {
		switch err := read(); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
