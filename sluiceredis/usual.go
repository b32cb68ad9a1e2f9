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
// are in one pipeline, can share it, too, if one script decides for all of their
// buckets.
//
//	pipeline   take a │ take b │ take c │ reserve d
//	           └──────────────────────┘
//	               usual a, b, c        │ reserve d
//
// Such a script must be short, or it gains nothing. leaky_usual knows only how
// most buckets are, and leaves others alone: one that was overdrawn, that is fuller
// than its quota now allows, or holds what it must not. For those leaky_take is
// run, as it would have been, and so it is if several costs are asked for at once,
// or if the mode is strict.
//
// A bucket is as good as alone in such a script: what is wrong with one does not
// matter to others. Only an answer that does not come is missing for all of them,
// as for all in a pipeline.

// leakyUsual begins with nothing: see lua/leaky_usual.lua.
var leakyUsual = NewScript("leaky_usual", source("leaky_usual"))

// mostUsual is for how many buckets one script decides. 64 take the server 0.4 ms,
// and more would gain nothing.
const mostUsual = 64

// leftAlone is what leaky_usual replies instead of how many were granted.
const leftAlone = -1

// usual reports whether leaky_usual may be asked instead of call.
func (s *Store) usual(call *Call) bool {
	return call.Script == leakyTake && len(call.Args) == 4 && !s.strict && !s.sharded
}

// askUsual returns the call of leaky_usual for so many buckets that others ask
// for.
func askUsual(requests []*sending) Call {
	keys := slices.Grow(requests[0].call.Keys[:1:1], len(requests)-1) // the caller's own, of one
	for _, c := range requests[1:] {
		keys = append(keys, c.call.Keys[0])
	}
	args := make([]string, 0, 4*len(requests))
	for _, c := range requests {
		args = append(args, c.call.Args...)
	}
	return Call{leakyUsual, keys, args}
}

// answerUsual gives each of them its part of the reply, as leaky_take replies. It
// returns those that were left alone.
func answerUsual(requests []*sending, reply Reply) (left []*sending) {
	if reply.Err == nil {
		reply.Err = expect(leakyUsual, reply.Ints, 2+3*len(requests))
	}
	if reply.Err != nil {
		for _, c := range requests {
			c.reply.Err = reply.Err
		}
		return nil
	}
	now, parts := reply.Ints[1], reply.Ints[2:]
	all := make([]int64, 6*len(requests))
	for i, c := range requests {
		part, own := parts[3*i:3*i+3], all[6*i:6*i+6:6*i+6]
		if part[0] == leftAlone {
			left = append(left, c)
			continue
		}
		own[1], own[3], own[4], own[5] = part[0], part[1], part[2], now
		c.reply.Ints = own
	}
	return left
}

// sendOne makes a call that goes alone.
func (s *Store) sendOne(ctx context.Context, c *sending) {
	if s.usual(&c.call) {
		one := [1]*sending{c}
		ask := askUsual(one[:])
		var reply Reply
		reply.Ints, reply.Err = s.client.Run(ctx, ask.Script, ask.Keys, ask.Args)
		if len(answerUsual(one[:], reply)) == 0 {
			return
		}
		s.stats.calls.Add(1)
	}
	c.reply.Ints, c.reply.Err = s.client.Run(ctx, c.call.Script, c.call.Keys, c.call.Args)
}

// sendMany makes calls that go together.
func (s *Store) sendMany(ctx context.Context, requests []*sending) {
	var usual, others []*sending
	for _, c := range requests {
		if s.usual(&c.call) {
			usual = append(usual, c)
		} else {
			others = append(others, c)
		}
	}
	groups := slices.Collect(slices.Chunk(usual, mostUsual))
	calls := make([]Call, 0, len(groups)+len(others))
	for _, group := range groups {
		calls = append(calls, askUsual(group))
	}
	replies := s.client.RunMany(ctx, append(calls, callsOf(others)...))
	var left []*sending
	for i, group := range groups {
		left = append(left, answerUsual(group, replies[i])...)
	}
	for i, c := range others {
		c.reply = replies[len(groups)+i]
	}
	if len(left) == 0 {
		return
	}
	s.stats.calls.Add(uint64(len(left)))
	for i, reply := range s.client.RunMany(ctx, callsOf(left)) {
		left[i].reply = reply
	}
}

func callsOf(requests []*sending) (calls []Call) {
	for _, c := range requests {
		calls = append(calls, c.call)
	}
	return calls
}
