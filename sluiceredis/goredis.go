package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// goRedis is a Client on one of go-redis.
type goRedis struct{ client redis.UniversalClient }

// NewGoRedis returns a [Client] that sends scripts through client, which the caller must close.
// Scripts are never sent twice, whatever MaxRetries is. It returns an error unless the option
// ContextTimeoutEnabled of client is set, and for a redis.Ring. A context that is canceled before
// its deadline is noticed when the reply is there, or after the ReadTimeout of client.
func NewGoRedis(client redis.UniversalClient) (Client, error) {
	var obeys bool
	switch c := client.(type) {
	case *redis.Client: // Sentinel's is one, too
		if c == nil {
			return nil, errors.New("sluiceredis: no client")
		}
		obeys = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("sluiceredis: no client")
		}
		if c.Options().ReadOnly || c.Options().RouteByLatency || c.Options().RouteRandomly {
			return nil, errors.New("sluiceredis: the client reads from replicas: limits must be asked of masters")
		}
		obeys = c.Options().ContextTimeoutEnabled
	case nil:
		return nil, errors.New("sluiceredis: no client")
	default:
		return nil, fmt.Errorf("sluiceredis: a client of type %T is not supported", client)
	}
	if !obeys {
		return nil, errors.New("sluiceredis: the client must have the option ContextTimeoutEnabled, or it does not obey deadlines")
	}
	return &goRedis{client}, nil
}

// once is a command that is never sent again on its own: not by the client after
// a timeout, and not along with others of its pipeline.
type once struct{ *redis.Cmd }

// Never overrides the check of go-redis before it sends a command again.
func (once) NoRetry() bool { return true }

// newOnce returns EVALSHA or EVAL.
func newOnce(ctx context.Context, name, what string, c ScriptCall) once {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	args = append(args, name, what, len(c.Keys))
	for i := range c.Keys { // their addresses: a string in an any is an allocation
		args = append(args, &c.Keys[i])
	}
	for i := range c.Args {
		args = append(args, &c.Args[i])
	}
	return once{redis.NewCmd(ctx, args...)}
}

// Pipelines implements Topology.
func (g *goRedis) Pipelines() int {
	if _, ok := g.client.(*redis.Client); !ok {
		return 0
	}
	return 4
}

// Sharded implements Topology.
func (g *goRedis) Sharded() bool {
	_, ok := g.client.(*redis.ClusterClient)
	return ok
}

// Place implements Topology: the address of the master that has key, if client is a
// cluster and knows it.
func (g *goRedis) Place(key string) string {
	c, ok := g.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := c.MasterForKey(done, key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// done is a context that ended.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Run implements Client.
func (g *goRedis) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call := ScriptCall{s, keys, args}
	cmd := newOnce(ctx, "evalsha", s.Digest, call)
	err := g.client.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = newOnce(ctx, "eval", s.Text, call)
		err = g.client.Process(ctx, cmd)
	}
	if err != nil {
		return nil, outcome(err)
	}
	return ints(cmd)
}

// RunMany implements Client. Calls whose script a server does not know go out
// again in a second pipeline: go-redis does not do that.
func (g *goRedis) RunMany(ctx context.Context, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	if err := ctx.Err(); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	unknown := g.pipeline(ctx, calls, all, replies, "evalsha")
	if len(unknown) > 0 {
		g.pipeline(ctx, calls, unknown, replies, "eval")
	}
	return replies
}

// pipeline runs those calls and returns which of them found no script.
func (g *goRedis) pipeline(ctx context.Context, calls []ScriptCall, which []int, replies []Reply, name string) (unknown []int) {
	pipe := g.client.Pipeline()
	cmds := make([]once, len(which))
	for i, j := range which {
		script := calls[j].Script.Digest
		if name == "eval" {
			script = calls[j].Script.Text
		}
		cmds[i] = newOnce(ctx, name, script, calls[j])
		_ = pipe.Process(ctx, cmds[i]) // only queues it
	}
	_, whole := pipe.Exec(ctx)
	for i, j := range which {
		err := cmds[i].Err()
		switch {
		case isNoScript(err):
			unknown = append(unknown, j)
			replies[j] = Reply{Err: outcome(err)}
		case err != nil:
			replies[j] = Reply{Err: outcome(err)}
		case cmds[i].Val() == nil && whole != nil: // never got that far
			replies[j] = Reply{Err: outcome(whole)}
		default:
			replies[j].Ints, replies[j].Err = ints(cmds[i])
		}
	}
	return unknown
}

func isNoScript(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOSCRIPT")
}

// outcome returns err as one that tells whether the call may have been executed.
func outcome(err error) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return errors.New("sluiceredis: a script replied nil, not a list")
	case errors.As(err, &reply):
		return newServerError(reply.Error())
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &op) && op.Op == "dial":
		return err // it was not sent
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.DeadlineExceeded) {
		// The connection was given the deadline of the context and noticed first.
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return ambiguous(err)
}

// ints returns the integers that a script replied.
func ints(cmd once) ([]int64, error) {
	list, ok := cmd.Val().([]any)
	if !ok {
		return nil, fmt.Errorf("sluiceredis: a script replied %T, not a list", cmd.Val())
	}
	out := make([]int64, len(list))
	for i, v := range list {
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("sluiceredis: a script replied %T at %d, not an integer", v, i)
		}
		out[i] = n
	}
	return out, nil
}
