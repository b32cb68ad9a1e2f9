package sluicegrpc

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sluice-go/sluice"
)

// A call is a call of the client, however often it is made.
type call struct {
	i      *Interceptor
	ctx    context.Context // of the client
	cc     *grpc.ClientConn
	method string
	key    string
	cost   int64
	costs  sluice.Costs // by Config.Cost
	o      *Overrides

	timeout  time.Duration // of an attempt, 0 for none
	gate     *sluice.Gate  // nil before the first attempt
	attempts sluice.RetryLoop
	made     int      // attempts
	last     *failure // of the last attempt, or nil
	outside  bool     // an outer loop has counted the attempts
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

// previousAttempts is the metadata by which gRPC numbers the attempts of a call.
const previousAttempts = "grpc-previous-rpc-attempts"

// positive reports whether the first value of key is a number above 0.
func positive(md metadata.MD, key string) bool {
	values := md[key]
	if len(values) == 0 {
		return false
	}
	n, err := strconv.Atoi(values[0])
	return err == nil && n > 0
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

// numbered adds the number of earlier attempts to the metadata of ctx, as gRPC does.
func (c *call) numbered(ctx context.Context) context.Context {
	if c.made <= 1 || c.outside {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, previousAttempts, strconv.Itoa(c.made-1))
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

// A probe learns from gRPC how an attempt ended.
type probe struct {
	unary   bool
	trailer metadata.MD
	ended   bool // gRPC called OnFinish, so it has seen the options
}

// untouched is the trailer of an attempt for which gRPC did not open a stream.
var untouched = metadata.MD{"sluicegrpc-no-stream": nil}

// options returns the options for the attempt.
func (p *probe) options() []grpc.CallOption {
	p.trailer = untouched
	return []grpc.CallOption{grpc.Trailer(&p.trailer), grpc.OnFinish(func(error) { p.ended = true })}
}

// unsent reports whether the attempt ended before anything was sent: gRPC sets the trailer
// only if there was a stream, even one that got no response.
func (p *probe) unsent() bool {
	_, untouched := p.trailer["sluicegrpc-no-stream"]
	return p.ended && untouched
}
