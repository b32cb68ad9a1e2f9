package rueidisclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/slot"
)

// A Client is a [sluiceredis.Client] with connections of its own: to a single
// server, to one that Sentinel names, or to a Cluster.
//
// It does not tell which server of a cluster has a key, so that it is no
// [sluiceredis.Placer]: a [sluiceredis.Store] takes the cluster for away when several
// calls in a row have failed, whichever of its servers they were for.
//
// A Client is safe for use by multiple goroutines and must be made by [New].
type Client struct {
	client   rueidis.Client
	cluster  bool
	closed   atomic.Bool
	noScript atomic.Uint64
}

var (
	_ sluiceredis.Client    = (*Client)(nil)
	_ sluiceredis.Pipeliner = (*Client)(nil)
	_ sluiceredis.Sharded   = (*Client)(nil)
)

// New connects as option says and returns a Client, which the caller closes. It
// makes the client of rueidis itself because one that is there does not tell its
// options, and some of them break what a limit promises. New returns an error
// if it cannot connect, except with ForceSingleClient: then it connects when it
// is first asked. It also returns an error for the options
//
//   - ReplicaOnly, SendToReplicas and Standalone.ReplicaAddress: limits must be
//     asked of masters;
//   - ConnLifetime: scripts that were sent on a connection which has expired, and
//     not answered within a second, are sent again;
//   - Standalone.EnableRedirect: so are all scripts of a pipeline if the server
//     redirects one of them.
//
// New sets DisableRetry and DisableCache, which scripts need nothing of. Without
// the cache it works with servers that do not have RESP3, too.
//
// A deadline is obeyed, with two exceptions. Who comes while a connection is
// being made waits for it, for at most Dialer.Timeout (5 s if 0). Who finds more
// than 2^RingScaleEachConn calls unanswered (1,024 if 0) waits for room, for at
// most ConnWriteTimeout (10 s if 0), after which a connection without answers is
// closed. A context that is cancelled, rather than reaching its deadline, is
// noticed at once if calls share a pipeline or the context has no deadline;
// otherwise when the reply is there. AlwaysPipelining makes it at once for all,
// and slower for a single caller.
func New(option rueidis.ClientOption) (*Client, error) {
	switch {
	case option.ReplicaOnly, option.SendToReplicas != nil, len(option.Standalone.ReplicaAddress) > 0:
		return nil, errors.New("rueidisclient: the client reads from replicas: limits must be asked of masters")
	case option.ConnLifetime > 0:
		return nil, errors.New("rueidisclient: a client with ConnLifetime sends scripts again whose outcome it does not know")
	case option.Standalone.EnableRedirect:
		return nil, errors.New("rueidisclient: a client with EnableRedirect sends scripts again that were executed")
	}
	option.DisableRetry, option.DisableCache = true, true
	option.DialCtxFn = dialer(&option)
	client, err := rueidis.NewClient(option)
	if client == nil {
		return nil, fmt.Errorf("rueidisclient: %w", err)
	}
	return &Client{client: client, cluster: client.Mode() == rueidis.ClientModeCluster}, nil
}

// Close closes the connections when what is on its way has been answered, or
// after a second.
func (c *Client) Close() {
	c.closed.Store(true)
	c.client.Close()
}

// Reloads returns how often a server did not know a script, so that it was sent
// again with its text.
func (c *Client) Reloads() uint64 { return c.noScript.Load() }

// ready returns an error if nothing may be sent.
func (c *Client) ready(ctx context.Context) error {
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
func (c *Client) command(name, what string, keys, args []string) rueidis.Completed {
	return c.client.B().Arbitrary(name, what, digits(len(keys))).Keys(keys...).Args(args...).Build()
}

// Pipelines implements sluiceredis.Pipeliner. rueidis has pipelines of its own,
// but to wake each caller by itself costs it a fifth more processor time than a
// batch. It also bounds what is unanswered when a server stands still.
func (c *Client) Pipelines() int {
	if c.cluster {
		return 0
	}
	return 2
}

// Sharded implements sluiceredis.Sharded.
func (c *Client) Sharded() bool { return c.cluster }

// Run implements sluiceredis.Client.
func (c *Client) Run(ctx context.Context, s *sluiceredis.Script, keys, args []string) ([]int64, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if err := c.oneSlot(keys); err != nil {
		return nil, err
	}
	result := c.client.Do(ctx, c.command("EVALSHA", s.Digest(), keys, args))
	if isNoScript(result) {
		c.noScript.Add(1)
		result = c.client.Do(ctx, c.command("EVAL", s.Text(), keys, args))
	}
	return ints(ctx, result)
}

// RunMany implements sluiceredis.Client. Calls whose script a server does not
// know go out again in a second pipeline: rueidis would send SCRIPT LOAD to all
// servers, each time.
func (c *Client) RunMany(ctx context.Context, calls []sluiceredis.Call) []sluiceredis.Reply {
	replies := make([]sluiceredis.Reply, len(calls))
	if err := c.ready(ctx); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	// On a cluster rueidis panics about commands without a key beside others.
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
		unknown := c.pipeline(ctx, calls, which, replies, "EVALSHA", (*sluiceredis.Script).Digest)
		if len(unknown) > 0 {
			c.noScript.Add(uint64(len(unknown)))
			c.pipeline(ctx, calls, unknown, replies, "EVAL", (*sluiceredis.Script).Text)
		}
	}
	return replies
}

// pipeline runs those calls and returns which of them found no script.
func (c *Client) pipeline(ctx context.Context, calls []sluiceredis.Call, which []int, replies []sluiceredis.Reply, name string, what func(*sluiceredis.Script) string) (unknown []int) {
	if len(which) == 0 {
		return nil
	}
	commands := make([]rueidis.Completed, len(which))
	for i, j := range which {
		commands[i] = c.command(name, what(calls[j].Script), calls[j].Keys, calls[j].Args)
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

// info is a script, because the server of a key is found by the key of a
// command, and INFO has none.
const info = "return redis.call('INFO', 'server')"

// ServerID implements sluiceredis.Client.
func (c *Client) ServerID(ctx context.Context, key string) (string, error) {
	if err := c.ready(ctx); err != nil {
		return "", err
	}
	text, err := c.client.Do(ctx, c.command("EVAL", info, []string{key}, nil)).ToString()
	if err != nil {
		return "", outcome(ctx, err)
	}
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("rueidisclient: the server does not tell its run_id")
}

// oneSlot returns what a cluster replies to keys that may be on several servers:
// rueidis would panic. Keys of different hash tags that happen to share a slot
// are refused, too.
func (c *Client) oneSlot(keys []string) error {
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
