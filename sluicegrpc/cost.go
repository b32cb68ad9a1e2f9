package sluicegrpc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sluice-go/sluice"
)

// estimate asks Config.Cost for the cost of the call. The cost of a call becomes negative if
// an amount is.
func (c *call) estimate(request any) {
	if c.i.cfg.Cost == nil {
		return
	}
	costs := maps.Clone(c.i.cfg.Cost(c.method, request))
	for _, n := range costs {
		if n < 0 {
			c.cost = n
			return
		}
	}
	if n := costs[sluice.Cost]; n > 0 && c.o.Cost == 0 {
		c.cost = n
	}
	c.costs, c.ctx = costs, sluice.WithCosts(c.ctx, costs)
}

// exhausted returns the unit of costs that the text of a QuotaFailure names, in singular or
// plural, sluice.Calls if that is requests, or "" if it names none or several. A longer name
// counts more than one that it contains, and any more than "tokens": "input tokens" is input.
func exhausted(costs sluice.Costs, quota string) (unit sluice.Unit) {
	quota = strings.ToLower(quota)
	longest := func(a, b sluice.Unit) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }
	var named []sluice.Unit
	for _, u := range slices.SortedFunc(maps.Keys(costs), longest) {
		within := func(other sluice.Unit) bool { return strings.Contains(string(other), string(u)) }
		if strings.Contains(quota, strings.TrimSuffix(string(u), "s")) && !slices.ContainsFunc(named, within) {
			named = append(named, u)
		}
	}
	if len(named) == 2 {
		named = slices.DeleteFunc(named, func(u sluice.Unit) bool { return u == "tokens" })
	}
	switch {
	case len(named) == 1:
		return named[0]
	case len(named) == 0 && len(costs) > 0 && strings.Contains(quota, "request"):
		return sluice.Calls
	}
	return ""
}

// A bill is the cost of an attempt. The message of a response may arrive while its context ends.
type bill struct {
	mu   sync.Mutex
	used sluice.Costs
}

// read passes a message of the response to Config.Usage.
func (b *bill) read(c *call, message any) {
	if c.i.cfg.Usage == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used == nil {
		b.used = make(sluice.Costs)
	}
	c.i.cfg.Usage(c.method, message, b.used)
}

// void notes that the attempt took nothing of the estimate.
func (b *bill) void(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = maps.Clone(c.costs)
	for unit := range b.used {
		b.used[unit] = 0
	}
}

// mostUsed is the largest amount that a response can charge. A larger one is a mistake or an
// attack: it would block the limit for good.
const mostUsed = 1e9

// settle corrects the cost with which permit was admitted. Nothing is corrected while nothing is known.
func (b *bill) settle(permit *sluice.Permit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	actual := maps.Clone(b.used)
	maps.DeleteFunc(actual, func(_ sluice.Unit, n int64) bool { return n < 0 || n > mostUsed })
	if len(actual) > 0 {
		permit.SettleCosts(actual) // only the first time
	}
}

// A pending stream is opened when its client sends its only message, because Config.Cost has
// to see that. RecvMsg, CloseSend and Header open it without one, if they come first.
type pending struct {
	ctx    context.Context
	opener func(request any) (grpc.ClientStream, error)
	stop   func() bool // stops watching ctx

	mu     sync.Mutex
	opened bool
	stream grpc.ClientStream
	err    error
}

// newPending returns a stream for ctx that opener will open. If ctx ends before, opener is
// called as well: it calls the OnFinish of the client.
func newPending(ctx context.Context, opener func(request any) (grpc.ClientStream, error)) *pending {
	p := &pending{ctx: ctx, opener: opener}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = context.AfterFunc(ctx, func() { _, _ = p.open(nil) })
	return p
}

// open opens the stream, once.
func (p *pending) open(request any) (grpc.ClientStream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.opened {
		p.opened = true
		p.stop()
		p.stream, p.err = p.opener(request)
	}
	return p.stream, p.err
}

// SendMsg implements grpc.ClientStream.
func (p *pending) SendMsg(m any) error {
	s, err := p.open(m)
	if err != nil {
		return err
	}
	return s.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (p *pending) RecvMsg(m any) error {
	s, err := p.open(nil)
	if err != nil {
		return err
	}
	return s.RecvMsg(m)
}

// CloseSend implements grpc.ClientStream.
func (p *pending) CloseSend() error {
	s, err := p.open(nil)
	if err != nil {
		return err
	}
	return s.CloseSend()
}

// Header implements grpc.ClientStream.
func (p *pending) Header() (metadata.MD, error) {
	s, err := p.open(nil)
	if err != nil {
		return nil, nil // RecvMsg has the error, as in gRPC
	}
	return s.Header()
}

// Context implements grpc.ClientStream. It does not open the stream: interceptors call it
// before there is a message, and without that Config.Cost would see no request.
func (p *pending) Context() context.Context {
	if s := p.current(); s != nil {
		return s.Context()
	}
	return p.ctx
}

// Trailer implements grpc.ClientStream.
func (p *pending) Trailer() metadata.MD {
	if s := p.current(); s != nil {
		return s.Trailer()
	}
	return nil
}

// current returns the stream, nil if it is not open.
func (p *pending) current() grpc.ClientStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream
}
