package sluiceredis

import (
	"context"
	"slices"
)

// # How do many keys need few scripts?
//
// Of what the server does for a decision most is for the script and not for the
// bucket: to find the script, to make its functions, to read the time, to reply.
// Callers of one key share that: see commit. Callers of many keys, whose calls
// are in one pipeline, share it, too: one script decides for all of their buckets.
//
//	pipeline   take a │ take b │ take c │ reserve d
//	           └──────────────────────┘
//	               take a, b, c         │ reserve d
//
// A bucket is as good as alone in such a script: what is wrong with one does not
// matter to others. Only an answer that does not come is missing for all of them,
// as for all in a pipeline.

// mostBuckets is for how many buckets one script decides. 64 take the server 0.4 ms,
// and more would gain nothing.
const mostBuckets = 64

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
	if err := s.ways.Do(ctx, s.nextWay.Add(1)%s.most, &c); err != nil {
		return nil, err
	}
	return c.reply.Ints, c.reply.Err
}

// sendAll makes calls that go the same way.
func (s *Store) sendAll(ctx context.Context, _ uint64, requests []*sending) error {
	if _, bounded := ctx.Deadline(); !bounded { // that of a call which goes alone is
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	if len(requests) == 1 {
		c := requests[0]
		c.reply.Ints, c.reply.Err = s.client.Run(ctx, c.call.Script, c.call.Keys, c.call.Args)
		return nil
	}
	buckets, others := make([]*sending, 0, len(requests)), []*sending(nil)
	for _, c := range requests {
		if c.call.Script == bucketTake && !s.sharded {
			buckets = append(buckets, c)
		} else {
			others = append(others, c)
		}
	}
	groups := slices.Collect(slices.Chunk(buckets, mostBuckets))
	var calls []Call
	for _, group := range groups {
		calls = append(calls, joinBuckets(group, s.strict))
	}
	for _, c := range others {
		calls = append(calls, c.call)
	}
	replies := s.client.RunMany(ctx, calls)
	for i, group := range groups {
		splitBuckets(group, replies[i])
	}
	for i, c := range others {
		c.reply = replies[len(groups)+i]
	}
	return nil
}

// joinBuckets returns the call of one script for the buckets of them all.
func joinBuckets(requests []*sending, strict bool) Call {
	if len(requests) == 1 {
		return requests[0].call
	}
	last := requests[0].call
	call := Call{bucketTake, make([]string, 0, len(requests)+1), make([]string, 0, (len(requests)+1)*len(last.Args))}
	for _, c := range requests {
		call.Keys = append(call.Keys, c.call.Keys[0])
		if args := c.call.Args; strict {
			call.Args = append(call.Args, args[:len(args)-1]...)
		} else {
			call.Args = append(call.Args, args...)
		}
	}
	if strict { // one epoch for all
		call.Keys = append(call.Keys, last.Keys[1])
		call.Args = append(call.Args, last.Args[len(last.Args)-1])
	}
	return call
}

// splitBuckets gives each of them its part of the reply, as it would have come alone.
func splitBuckets(requests []*sending, reply Reply) {
	if len(requests) == 1 || reply.Err != nil || len(reply.Ints) > 0 && reply.Ints[0] < 0 {
		for _, c := range requests {
			c.reply = reply
		}
		return
	}
	err := expect(bucketTake, reply.Ints, 2+3*len(requests))
	all := make([]int64, 5*len(requests))
	for i, c := range requests {
		if c.reply.Err = err; err != nil {
			continue
		}
		part, now := reply.Ints[1+3*i:4+3*i], reply.Ints[len(reply.Ints)-1]
		if part[0] < 0 {
			c.reply.Ints = []int64{part[0], now, 0}
		} else {
			own := all[5*i : 5*i+5 : 5*i+5]
			copy(own[1:], part)
			own[4] = now
			c.reply.Ints = own
		}
	}
}
