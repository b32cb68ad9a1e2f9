package sluicegrpc

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice"
)

// Unary is a [grpc.UnaryClientInterceptor]. It makes the call when the gate admits it, and again if
// Config allows.
//
// The error is the error of the last attempt or, if the gate rejects the call, matches its error;
// docs/grpc.md has the status. If the call is given up although it could be retried, it also matches
// a [*sluice.RetryError], which says why and when to retry.
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
// permit is released when the stream ends, as gRPC requires: when RecvMsg returns an error, io.EOF or
// the only response, when SendMsg or Header ends it with an error, when the context is done, or when
// the connection is closed.
//
// With Config.Cost, a stream on which the client sends a single message is opened when that is
// sent; SendMsg then waits for the gate. Until then Context returns ctx.
//
// A stream that could not be opened is retried like a unary call. Later errors are retried until
// the client has received a message or called Header or Context, and if it has sent no more than
// 256 KiB: its messages are sent again, in order, while SendMsg, RecvMsg or CloseSend block. A client
// never receives messages of two attempts, and its OnFinish is called exactly once: at the latest
// when its context is done.
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

// newCall returns the call that sends request, which is nil if that is not known yet. It
// returns nil if the call passes without a gate.
func (i *Interceptor) newCall(ctx context.Context, method string, request any, cc *grpc.ClientConn) *call {
	i.mustBeMade()
	if passes(method) {
		return nil
	}
	o := overridesOf(ctx)
	c := &call{i: i, ctx: ctx, cc: cc, method: method, key: o.Key, cost: cmp.Or(o.Cost, 1), o: o}
	c.timeout = max(0, cmp.Or(o.AttemptTimeout, i.policy.AttemptTimeout))
	if c.key == "" {
		c.key = i.cfg.Key(ctx, i.canonical(cc), method)
	}
	if c.key == "" {
		return nil
	}
	c.estimate(request)
	return c
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

// begin is called with the gate before the first attempt.
func (c *call) begin(gate *sluice.Gate) {
	policy := c.i.policy
	policy.AttemptTimeout = c.timeout
	c.gate, c.attempts = gate, sluice.NewRetryLoop(gate, policy)
	if md, ok := metadata.FromOutgoingContext(c.ctx); ok {
		c.outside = positive(md, previousAttempts) || positive(md, "x-retry-attempty") // of go-grpc-middleware
		if c.outside {
			c.attempts.ChargeRetry()
		}
	}
}

// next waits for the next attempt.
func (c *call) next() (*sluice.Permit, error) {
	permit, err := c.attempts.Next(c.ctx, c.cost)
	if err != nil {
		return nil, c.refused(err)
	}
	c.made++
	return permit, nil
}

// unary makes a unary call by send, as often as necessary. reply is the response.
func (c *call) unary(reply any, send func(ctx context.Context, more ...grpc.CallOption) error) error {
	for {
		permit, err := c.next()
		if err != nil {
			return err
		}
		again, err := c.attempt(permit, reply, send)
		if !again {
			return err
		}
	}
}

// attempt makes one attempt and releases permit. again reports that there is another one.
func (c *call) attempt(permit *sluice.Permit, reply any, send func(ctx context.Context, more ...grpc.CallOption) error) (again bool, err error) {
	defer permit.Release()
	var b bill
	defer b.settle(permit)
	p := probe{unary: true}
	again, err = c.attempts.Try(c.ctx, permit, func(ctx context.Context) error {
		err := send(c.numbered(ctx), p.options()...)
		if err == nil {
			b.read(c, reply)
			return nil
		}
		if c.last = c.judge(ctx, err, &p, false); c.last.refused {
			b.void(c)
		}
		return c.last.marked
	})
	return again, c.final(err)
}

// final returns the error for the client if the last attempt ended with c.last, and
// sluice.RetryLoop returned err for that.
func (c *call) final(err error) error {
	if err == nil {
		return nil
	}
	why, ok := err.(*sluice.RetryError)
	if !ok || why.Why == sluice.ErrPermanent || c.ctx.Err() != nil {
		return c.last.err
	}
	return &callError{why, c.last.status}
}

// ownFinish takes the callbacks of grpc.OnFinish out of opts and returns them as one. gRPC
// would call them at the end of each attempt, and promises to call them once.
func ownFinish(opts []grpc.CallOption) ([]grpc.CallOption, func(error)) {
	var all []func(error)
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			all = append(all, o.OnFinish)
		}
	}
	if all == nil {
		return opts, func(error) {}
	}
	var others []grpc.CallOption
	for _, o := range opts {
		if _, ok := o.(grpc.OnFinishCallOption); !ok {
			others = append(others, o)
		}
	}
	return others, func(err error) {
		for _, f := range all {
			f(err)
		}
	}
}
