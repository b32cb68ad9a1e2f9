package sluicegrpc

import (
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

// numbered adds the number of earlier attempts to the metadata of ctx, as gRPC does.
func (c *call) numbered(ctx context.Context) context.Context {
	if c.made <= 1 || c.outside {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, previousAttempts, strconv.Itoa(c.made-1))
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
