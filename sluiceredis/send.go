package sluiceredis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// # How do many keys need few scripts?
//
// Most work of the server for a decision is for the script and not for the limits: to find the
// script, to make its functions, to read the time, to reply. Callers of one key share that: see
// gather. Callers of many keys, whose calls are in one pipeline, share it as well: one script
// decides for all of them.
//
//	pipeline   take a │ take b │ take c │ reserve d
//	           └──────────────────────┘
//	               take a, b, c         │ reserve d
//
// Sets that ask for the same, but for the key, say it once: each argument costs the server
// 0.1 µs, of 3 for a bucket.
//
// A set of limits is as good as alone in such a script: an error of one does not affect others.
// Only an answer that does not come is missing for all of them, as for all in a pipeline. Sliding
// windows have their own scripts, because each may write 10,000 units.

// mostSets is the maximum number of sets that one script decides. 64 buckets take the server 0.4 ms,
// and more would gain nothing.
const mostSets = 64

// A sending is a call on its way, and its reply.
type sending struct {
	call   ScriptCall
	reply  Reply
	within bounded // for as long as its caller waits

	place   string        // where it goes
	probe   *outage.Place // if it is a probe
	sent    time.Time     // or a little earlier
	hearing *hearing      // nil if its caller waits until it ends
}

// patience returns a channel that ends the wait of c for others.
func (c *sending) patience() (ctx context.Context, until time.Time) {
	return c.within.Context, c.within.limit
}

// send has a call made, with those for other keys if that pays.
func (s *Store) send(c *sending) ([]int64, error) {
	if s.most == 0 {
		return s.client.Run(&c.within, c.call.Script, c.call.Keys, c.call.Args)
	}
	if err := s.ways.Do(&c.within, s.nextWay.Add(1)%s.most, c); err != nil {
		return nil, err
	}
	return c.reply.Ints, c.reply.Err
}

// sendAll makes calls that go the same way.
func (s *Store) sendAll(ctx context.Context, _ uint64, requests []*sending) error {
	if _, is := ctx.Deadline(); !is { // that of a call which goes alone is bounded
		within := new(bounded)
		within.begin(ctx, time.Now().Add(s.timeout))
		defer within.end()
		ctx = within
	}
	if len(requests) == 1 {
		c := requests[0]
		c.reply.Ints, c.reply.Err = s.client.Run(ctx, c.call.Script, c.call.Keys, c.call.Args)
		return nil
	}
	byScript, groups := map[*Script]int{}, make([][]*sending, 0, len(requests))
	for _, c := range requests {
		i, ok := byScript[c.call.Script]
		if !ok || s.sharded || !c.call.Script.joins || len(groups[i]) == mostSets {
			i = len(groups)
			byScript[c.call.Script] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	calls := make([]ScriptCall, len(groups))
	for i, group := range groups {
		calls[i] = joinSets(group, s.strict)
	}
	for i, reply := range s.client.RunMany(ctx, calls) {
		splitSets(groups[i], reply)
	}
	return nil
}

// joinSets returns the call of one script for the sets of them all.
func joinSets(requests []*sending, strict bool) ScriptCall {
	last := requests[0].call
	if len(requests) == 1 {
		return last
	}
	call := ScriptCall{last.Script, make([]string, 0, len(requests)+1), make([]string, 0, (len(requests)+1)*len(last.Args))}
	end := 0
	if strict {
		end = 1 // one epoch for all
	}
	for i, c := range requests {
		call.Keys = append(call.Keys, c.call.Keys[:len(c.call.Keys)-end]...)
		if i > 0 && len(c.call.Args) == shortArgs && slices.Equal(c.call.Args, requests[i-1].call.Args) {
			call.Args = append(call.Args, "=")
			continue
		}
		call.Args = append(call.Args, c.call.Args[:len(c.call.Args)-end]...)
	}
	call.Keys = append(call.Keys, last.Keys[len(last.Keys)-end:]...)
	call.Args = append(call.Args, last.Args[len(last.Args)-end:]...)
	return call
}

// splitSets gives each of them its part of the reply, as it would have come alone.
func splitSets(requests []*sending, reply Reply) {
	if len(requests) == 1 || reply.Err != nil || len(reply.Ints) > 0 && reply.Ints[0] < 0 {
		for _, c := range requests {
			c.reply = reply
		}
		return
	}
	all, rest := make([]int64, 0, len(reply.Ints)+2*len(requests)), reply.Ints
	for i, c := range requests {
		if i == 0 && len(rest) > 0 {
			rest = rest[1:]
		}
		if len(rest) > 1 && rest[0] < 0 { // of a short set
			begin := len(all)
			all = append(all, 0, rest[0], reply.Ints[len(reply.Ints)-1])
			c.reply.Ints, rest = all[begin:len(all):len(all)], rest[1:]
			continue
		}
		if len(rest) < 2 || rest[0] < 2 || rest[0] > int64(len(rest)-2) {
			c.reply.Err = fmt.Errorf("sluiceredis: %s replied %d integers for %d sets", c.call.Script.Name, len(reply.Ints), len(requests))
			continue
		}
		if rest[1] < 0 { // a code, and which of its keys it is about
			c.reply.Ints, rest = []int64{rest[1], reply.Ints[len(reply.Ints)-1], rest[2]}, rest[3:]
			continue
		}
		begin := len(all)
		all = append(append(append(all, 0), rest[:1+rest[0]]...), reply.Ints[len(reply.Ints)-1])
		c.reply.Ints, rest = all[begin:len(all):len(all)], rest[1+rest[0]:]
	}
}
