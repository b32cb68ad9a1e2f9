package sluicegrpc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
)

// An Interceptor sends the calls of gRPC clients through gates. One Interceptor may serve any
// number of connections. It must be made by [New] and is safe for use by multiple goroutines. It
// starts goroutines only for permits that a Semaphore leased, and they end with the call. An
// Interceptor that was made in a testing/synctest bubble belongs to it.
type Interceptor struct {
	cfg    Config
	policy sluice.RetryPolicy // without Retryable, which judge calls
	gates  *sluice.Keyed[string]
	recent atomic.Pointer[target] // most programs have one
	closed atomic.Bool
}

// A target is the canonical one of a connection.
type target struct {
	of        *grpc.ClientConn // which targets as given do not tell apart: grpc.Dial has another default scheme
	canonical string
}

// New returns an Interceptor. It returns an error for a Gate that [sluice.New] rejects, both
// Gate and Gates, or a code of AlsoRetry that is OK, Canceled or unknown.
func New(cfg Config) (*Interceptor, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sluicegrpc: %w", err)
	}
	i := &Interceptor{cfg: cfg.withDefaults(), policy: cfg.Retry, gates: cfg.Gates}
	i.policy.Retryable = nil
	if i.gates != nil {
		return i, nil
	}
	var err error
	i.gates, err = sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
		cfg := i.cfg.Gate
		cfg.Name = key
		return sluice.New(cfg)
	})
	return i, err
}

// Unary is a [grpc.UnaryClientInterceptor]. It makes the call when the gate admits it, and again if
// Config allows.
//
// The error is the error of the last attempt, unchanged if nothing is to be added. If the call is
// given up although it could be retried, the error has the status of the last attempt and matches a
// [*sluice.RetryError], which says why and when to retry. If the gate rejects the call, the error
// matches the error of the gate; docs/grpc.md has its status.
func (i *Interceptor) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := i.newCall(ctx, method, req, cc)
	if c == nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	opts, finish := ownFinish(opts)
	err := i.use(c, func() error {
		return c.unary(reply, func(ctx context.Context, more ...grpc.CallOption) error {
			return invoke(ctx, method, req, reply, cc, append(opts[:len(opts):len(opts)], more...)...)
		})
	})
	finish(err)
	return err
}

// Stream is a [grpc.StreamClientInterceptor]. It opens the stream when the gate admits it. The
// permit is released when the stream ends: when RecvMsg returns an error, io.EOF or the only
// response, when SendMsg or Header ends it with an error, when the context is done, or when the
// connection is closed. As gRPC requires, one of these must happen: a stream that is neither read
// to its end nor canceled holds its permit.
//
// With Config.Cost, a stream on which the client sends a single message is opened when that is
// sent; SendMsg then waits for the gate. Until then Context returns ctx.
//
// A stream that could not be opened is retried like a unary call. Later errors are retried until
// the client has received a message or called Header or Context, and if it has sent no more than
// 256 KiB: its messages are sent again, in order. SendMsg, RecvMsg or CloseSend then block during
// the backoff and the wait for the gate. A client never receives messages of two attempts, and its
// OnFinish is called exactly once: if it does not call RecvMsg after an attempt that is to be
// retried, when its context is done.
func (i *Interceptor) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	open := func(request any) (grpc.ClientStream, error) {
		return i.stream(ctx, desc, cc, method, request, streamer, opts)
	}
	if i.cfg.Cost != nil && !desc.ClientStreams {
		return newPending(ctx, open), nil
	}
	return open(nil)
}

// stream is Stream for a client that sends request, or nil if that is not known yet.
func (i *Interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, request any, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	c := i.newCall(ctx, method, request, cc)
	if c == nil {
		return streamer(ctx, desc, cc, method, opts...)
	}
	opts, finish := ownFinish(opts)
	s := &stream{call: c, desc: desc, finish: finish, failing: make(chan struct{}, 1)}
	s.streamer = func(ctx context.Context, more ...grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], more...)...)
	}
	if err := i.use(c, s.open); err != nil {
		s.finished(err)
		return nil, err
	}
	return s, nil
}

// mustBeMade panics if New did not make i.
func (i *Interceptor) mustBeMade() {
	if i.gates == nil {
		panic("sluice: the zero sluicegrpc.Interceptor cannot be used: sluicegrpc.New makes one")
	}
}

// Gates returns the gates: for package observe, or to pause one manually.
func (i *Interceptor) Gates() *sluice.Keyed[string] { return i.gates }

// Shutdown closes all gates, also those of Config.Gates, and waits until nothing is in flight:
// calls that wait or come later fail with [limits.ErrClosed] and the code Canceled. If ctx is done
// first, it returns ctx.Err(). An Interceptor need not be shut down.
func (i *Interceptor) Shutdown(ctx context.Context) error {
	i.mustBeMade()
	i.closed.Store(true)
	var keys []string
	i.gates.Stats(func(key string, _ sluice.Stats) bool {
		keys = append(keys, key)
		return true
	})
	for _, key := range keys {
		// The error means that the gate has been evicted.
		_ = i.gates.Use(key, func(gate *sluice.Gate) error { gate.Close(); return nil })
	}
	for _, key := range keys {
		var err error
		_ = i.gates.Use(key, func(gate *sluice.Gate) error { err = gate.Shutdown(ctx); return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// use calls f with c.gate set to the gate of c.key, which is not evicted before. An error
// without a gate becomes a rejection.
func (i *Interceptor) use(c *call, f func() error) error {
	switch err := c.ctx.Err(); {
	case err != nil:
		return c.refused(err)
	case c.cost < 0:
		return status.Error(codes.InvalidArgument, "sluicegrpc: negative cost")
	}
	entered := false
	err := i.gates.Use(c.key, func(gate *sluice.Gate) error {
		entered = true
		if i.closed.Load() { // Shutdown may not have seen the gate
			gate.Close()
		}
		if c.gate == nil {
			c.begin(gate)
		}
		if c.gate != gate { // forgotten between two attempts of a stream: c.attempts are of the old one
			return c.last.err
		}
		if i.cfg.Claimant == nil {
			return f()
		}
		who := i.cfg.Claimant(c.ctx, i.canonical(c.cc), c.method)
		return gate.For(who, func(claimant *sluice.Gate) error {
			c.attempts.Move(claimant)
			return f()
		})
	})
	if !entered {
		return c.refused(err)
	}
	return err
}

// canonical returns the canonical target of cc, "" if that is nil.
func (i *Interceptor) canonical(cc *grpc.ClientConn) string {
	if cc == nil {
		return ""
	}
	t := i.recent.Load()
	if t == nil || t.of != cc {
		t = &target{cc, cc.CanonicalTarget()}
		i.recent.Store(t)
	}
	return t.canonical
}

// passes reports whether a method is about the state of the server, which must be visible
// also while calls have to wait.
func passes(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}
