package sluiceredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Config is what a [Store] may be told. The zero value is usual.
type Config struct {
	// Prefix begins every key, except those of [Store.Throttle]. It must not
	// contain braces. Empty means "sluice".
	Prefix string

	// Timeout is the longest that a call waits for the server, if its context
	// does not end before. 0 means 1 s.
	Timeout time.Duration
}

// A Store keeps limits in a Redis, for all machines that use the same one with
// the same prefix. It is the beginning of everything here: its methods make the
// limits.
//
// A Store is safe for use by multiple goroutines, must be made by [New] and must
// not be copied. It starts no goroutine that outlives the calls made through
// it, and need not be closed.
type Store struct {
	client  Client
	prefix  string
	timeout time.Duration

	buckets commit[cell, *taking]
	logs    commit[logKey, *asking]
	fixeds  commit[fixedKey, *asking]
	pacers  commit[paceKey, *pacing]

	ways    commit[uint64, *sending] // what is on its way, by number
	most    uint64                   // how many of them there may be; 0: no bound, and nothing gathers
	nextWay atomic.Uint64

	stats counters

	id    string // of this store, in names that no other one gives
	names atomic.Uint64
}

// New returns a store in the Redis of client. It returns an error if client is
// nil, the prefix has braces or the timeout is negative.
func New(client Client, cfg Config) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("sluiceredis: no client")
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, fmt.Errorf("sluiceredis: prefix %q: braces belong to the rest of a key", cfg.Prefix)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("sluiceredis: negative timeout %v", cfg.Timeout)
	}
	s := &Store{client: client, prefix: cfg.Prefix, timeout: cfg.Timeout}
	if s.prefix == "" {
		s.prefix = "sluice"
	}
	if s.timeout == 0 {
		s.timeout = time.Second
	}
	s.id = rand.Text()[:12]
	s.buckets.init(s, takeFromBucket, giveBackToBucket)
	s.logs.init(s, takeFromLog, giveBackToLog)
	s.fixeds.init(s, takeFromFixed, giveBackToFixed)
	s.pacers.init(s, reserveSlots, giveBackSlots)
	s.ways.init(s, send, nil)
	if p, ok := client.(Pipeliner); ok {
		s.most = uint64(max(0, p.Pipelines()))
	}
	return s, nil
}

// unique returns a name that nobody has given before.
func (s *Store) unique() string { return s.id + strconv.FormatUint(s.names.Add(1), 36) }

// run runs a script that replies its code, and what a code below 0 says about
// a key as an error. It counts what became of it.
func (s *Store) run(ctx context.Context, script *Script, keys, args []string) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.stats.calls.Add(1)
	reply, err := s.send(bounded, Call{script, keys, args})
	switch {
	case errors.Is(err, ErrAmbiguous):
		s.stats.ambiguous.Add(1)
	case err != nil:
		s.stats.failed.Add(1)
	case len(reply) == 0:
		return nil, fmt.Errorf("sluiceredis: %s replied nothing", script.name)
	case reply[0] < 0:
		s.stats.data.Add(1)
		which := int64(0)
		if len(reply) == 3 {
			which = reply[2]
		}
		return nil, dataError(keys[which], reply[0])
	}
	return reply, err
}

// A sending is a call on its way, and its reply.
type sending struct {
	call  Call
	reply Reply
}

// send has a call made, with those for other keys if that pays.
func (s *Store) send(ctx context.Context, call Call) ([]int64, error) {
	if s.most == 0 {
		return s.client.Run(ctx, call.Script, call.Keys, call.Args)
	}
	c := sending{call: call}
	if err := s.ways.do(ctx, s.nextWay.Add(1)%s.most, &c); err != nil {
		return nil, err
	}
	return c.reply.Ints, c.reply.Err
}

// send makes calls that go the same way.
func send(s *Store, ctx context.Context, _ uint64, requests []*sending) error {
	if len(requests) == 1 {
		c := requests[0]
		c.reply.Ints, c.reply.Err = s.client.Run(ctx, c.call.Script, c.call.Keys, c.call.Args)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	calls := make([]Call, len(requests))
	for i, c := range requests {
		calls[i] = c.call
	}
	for i, reply := range s.client.RunMany(ctx, calls) {
		requests[i].reply = reply
	}
	return nil
}

// expect returns an error unless a script replied so many integers.
func expect(script *Script, reply []int64, n int) error {
	if len(reply) != n {
		return fmt.Errorf("sluiceredis: %s replied %d integers, not %d", script.name, len(reply), n)
	}
	return nil
}

// A counters is what Stats tells.
type counters struct {
	calls, decisions, ambiguous, failed, data, clamped, refunded, stranded, lost, leasesLost atomic.Uint64
}

// Stats is what a [Store] has done since it was made. Numbers only grow.
type Stats struct {
	Calls      uint64 // scripts run, each one round trip
	Decisions  uint64 // requests that were answered by them
	Ambiguous  uint64 // scripts of which it is unknown whether they ran
	Failed     uint64 // scripts that certainly did not run: no connection, an error reply
	Data       uint64 // keys found with unexpected data
	Clamped    uint64 // states repaired that were impossible: a clock stepped back, or a limit shrank
	Refunded   uint64 // units and slots given back
	Stranded   uint64 // units that were too late to be given back
	LostSlots  uint64 // slots of pacers that nobody used
	LeasesLost uint64 // leases that ended before they were released
}

// decided notes that script has decided so many requests. By our reading of its
// reply it granted as many as it says itself: reply[1], beside the clamps in
// reply[2].
func (s *Store) decided(script *Script, requests int, reply []int64, granted int64) error {
	s.stats.decisions.Add(uint64(requests))
	s.stats.clamped.Add(uint64(reply[2]))
	if granted != reply[1] {
		return fmt.Errorf("sluiceredis: %s granted %d, which should be %d", script.name, reply[1], granted)
	}
	return nil
}

// Stats returns what the store has done.
func (s *Store) Stats() Stats {
	c := &s.stats
	return Stats{
		Calls: c.calls.Load(), Decisions: c.decisions.Load(),
		Ambiguous: c.ambiguous.Load(), Failed: c.failed.Load(), Data: c.data.Load(),
		Clamped: c.clamped.Load(), Refunded: c.refunded.Load(), Stranded: c.stranded.Load(),
		LostSlots: c.lost.Load(), LeasesLost: c.leasesLost.Load(),
	}
}

// mustNotBeNegative is the rule of all our packages.
func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("sluiceredis: n < 0: %d", n))
	}
}
