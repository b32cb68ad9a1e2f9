package rueidisclient

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/slot"
)

// adapter is a sluiceredis.Client with its own connections.
type adapter struct {
	client  rueidis.Client
	cluster bool
	closed  atomic.Bool
}

var _ sluiceredis.Topology = (*adapter)(nil)

// New connects as option says, to a single server, to one that Sentinel names, or to a Cluster. It
// returns a client and a function that closes its connections when all replies have come, or after
// a second.
//
// New returns an error if it cannot connect, except with ForceSingleClient: then it connects on
// first use. The options ReplicaOnly, SendToReplicas and Standalone.ReplicaAddress are errors,
// because scripts must run on masters, and ConnLifetime and Standalone.EnableRedirect, with which
// scripts may be sent twice. New sets DisableRetry and DisableCache.
//
// A deadline is honored, with two exceptions. A script call that comes while a connection is being
// made waits for it, for at most Dialer.Timeout (5 s if 0). One that finds more than
// 2^RingScaleEachConn others without a reply (1,024 if 0) waits for room, for at most
// ConnWriteTimeout (10 s if 0). A canceled context is noticed immediately if the script shares a
// pipeline or the context has no deadline; otherwise when the reply comes. With AlwaysPipelining it
// always is, but single callers wait longer.
//
// On a cluster a [sluiceredis.Store] treats all servers as unavailable when several scripts in a row
// have failed: the client does not know which server has a key.
func New(option rueidis.ClientOption) (client sluiceredis.Client, closes func(), err error) {
	switch { // a client that exists does not reveal these, so New makes its own
	case option.ReplicaOnly, option.SendToReplicas != nil, len(option.Standalone.ReplicaAddress) > 0:
		return nil, nil, errors.New("rueidisclient: the client reads from replicas: limits must be asked of masters")
	case option.ConnLifetime > 0:
		return nil, nil, errors.New("rueidisclient: a client with ConnLifetime sends scripts again whose outcome it does not know")
	case option.Standalone.EnableRedirect:
		return nil, nil, errors.New("rueidisclient: a client with EnableRedirect sends scripts again that were executed")
	}
	option.DisableRetry, option.DisableCache = true, true
	option.DialCtxFn = dialer(&option)
	own, err := rueidis.NewClient(option)
	if own == nil {
		return nil, nil, fmt.Errorf("rueidisclient: %w", err)
	}
	c := &adapter{client: own, cluster: own.Mode() == rueidis.ClientModeCluster}
	return c, c.close, nil
}

func (c *adapter) close() {
	c.closed.Store(true)
	c.client.Close()
}

// ready returns an error if nothing may be sent.
func (c *adapter) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.closed.Load() {
		return rueidis.ErrClosing
	}
	return nil
}

// command returns EVALSHA or EVAL. It is not marked as one that may be sent
// again.
func (c *adapter) command(name, what string, keys, args []string) rueidis.Completed {
	return c.client.B().Arbitrary(name, what, digits(len(keys))).Keys(keys...).Args(args...).Build()
}

// Pipelines implements sluiceredis.Topology. rueidis has its own pipelines,
// but to wake each caller on its own costs it a fifth more processor time than a
// batch. It also limits the unanswered commands when a server stalls.
func (c *adapter) Pipelines() int {
	if c.cluster {
		return 0
	}
	return 2
}

// Place implements sluiceredis.Topology. rueidis does not tell which server has a key.
func (c *adapter) Place(string) string { return "" }

// Sharded implements sluiceredis.Topology.
func (c *adapter) Sharded() bool { return c.cluster }

// Run implements sluiceredis.Client.
func (c *adapter) Run(ctx context.Context, s *sluiceredis.Script, keys, args []string) ([]int64, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if err := c.oneSlot(keys); err != nil {
		return nil, err
	}
	result := c.client.Do(ctx, c.command("EVALSHA", s.Digest, keys, args))
	if isNoScript(result) {
		result = c.client.Do(ctx, c.command("EVAL", s.Text, keys, args))
	}
	return ints(ctx, result)
}

// RunMany implements sluiceredis.Client. Calls whose script a server does not
// know go out again in a second pipeline: rueidis would send SCRIPT LOAD to all
// servers, each time.
func (c *adapter) RunMany(ctx context.Context, calls []sluiceredis.ScriptCall) []sluiceredis.Reply {
	replies := make([]sluiceredis.Reply, len(calls))
	if err := c.ready(ctx); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	// On a cluster rueidis panics about commands without a key among others.
	with, without := make([]int, 0, len(calls)), []int(nil)
	for i, call := range calls {
		switch {
		case c.cluster && len(call.Keys) == 0:
			without = append(without, i)
		default:
			if replies[i].Err = c.oneSlot(call.Keys); replies[i].Err == nil {
				with = append(with, i)
			}
		}
	}
	for _, which := range [][]int{with, without} {
		unknown := c.pipeline(ctx, calls, which, replies, "EVALSHA")
		if len(unknown) > 0 {
			c.pipeline(ctx, calls, unknown, replies, "EVAL")
		}
	}
	return replies
}

// pipeline runs those calls and returns which of them found no script.
func (c *adapter) pipeline(ctx context.Context, calls []sluiceredis.ScriptCall, which []int, replies []sluiceredis.Reply, name string) (unknown []int) {
	if len(which) == 0 {
		return nil
	}
	commands := make([]rueidis.Completed, len(which))
	for i, j := range which {
		script := calls[j].Script.Digest
		if name == "EVAL" {
			script = calls[j].Script.Text
		}
		commands[i] = c.command(name, script, calls[j].Keys, calls[j].Args)
	}
	for i, result := range c.client.DoMulti(ctx, commands...) {
		j := which[i]
		if isNoScript(result) {
			unknown = append(unknown, j)
		}
		replies[j].Ints, replies[j].Err = ints(ctx, result)
	}
	return unknown
}

// oneSlot returns the reply of a cluster to keys that may be on several servers:
// rueidis would panic. Keys of different hash tags that happen to share a slot
// are rejected as well.
func (c *adapter) oneSlot(keys []string) error {
	if !c.cluster || len(keys) < 2 {
		return nil
	}
	for _, key := range keys[1:] {
		if slot.Of(key) != slot.Of(keys[0]) {
			return &sluiceredis.ServerError{Code: "CROSSSLOT", Message: "CROSSSLOT Keys in request don't hash to the same slot"}
		}
	}
	return nil
}
