package sluiceredis

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-go/sluice/sluiceredis/internal/slot"
)

// # Which state may a server have lost?
//
// One that was killed has lost the writes that had not reached its log: all, the last second, or
// nothing. A replica that took over may not have received the last writes. Then neither the content
// of a key nor its absence can be believed. How much is missing is unknown. But it was admitted
// before the loss was noticed, and no longer applies some time after that: after as long as a full
// bucket takes to leak, a window or a lease lasts. So from when it is noticed, the epoch, every
// limit is treated as used up, and recovers as it always does:
//
//	level                    ┌ the epoch
//	  D ┤                    ●
//	    │ granted  ····      │╲
//	    │  ╱╲╱╲╱       lost  │ ╲     never below that line
//	  0 ┤                    │  ╲________
//	                            ← D →
//
// A bucket that survived is no better than one that did not: it may have been
// written before the last that was admitted. And the units that a call takes after the epoch
// comes on top of the line. So one rule is enough for both: never below the line.
//
// How is it noticed? Each script asks the server for the id of its replication
// history, which is another one after a restart and after a promotion, and
// compares that with the one next to the epoch; which costs about 5 µs. To ask only
// on new connections would be cheaper, but a client does not know over which
// connection a script will leave, nor which server is behind it; and to ask after errors
// would miss a failover between two calls.
//
// The script that finds another id notes it, decides nothing, and says so: it
// is run again, and finds the epoch.

var epochVouch = script("epoch_vouch", "epoch")

// ErrNoHistory reports that strict mode is impossible: the user is not allowed INFO replication, or
// the server has no id of its history. Nothing was taken.
var ErrNoHistory = errors.New("sluiceredis: strict mode needs the master_replid of INFO replication, which the server did not return")

// errRestless reports a server that is another one at each call.
var errRestless = errors.New("sluiceredis: the server changes from call to call: are there several behind one address?")

// mostEpochs is the number of times one call may find that an epoch has just begun. More
// than one is a failover in between.
const mostEpochs = 3

// epochKey returns where the epoch of the server that has key is: one for each
// slot of a cluster, as a script must find all its keys in one.
func (s *Store) epochKey(key string) string {
	if !s.sharded {
		return s.prefix + ":epoch1"
	}
	return s.prefix + ":epoch1:{" + slot.Tags()[slot.Of(key)] + "}"
}

// keysOf returns the keys of a call of script: keys and, if that matters, the
// epoch of the first.
func (s *Store) keysOf(script *Script, keys []string) []string {
	if !s.strict || !script.strict {
		return keys
	}
	return append(keys[:len(keys):len(keys)], s.epochKey(keys[0]))
}

// sendStrictly is send, and notes when an epoch begins.
func (s *Store) sendStrictly(c *sending) ([]int64, error) {
	c.call.Keys = s.keysOf(c.call.Script, c.call.Keys)
	if s.strict && c.call.Script.marked {
		c.call.Args = append(c.call.Args, "epoch")
	}
	for i := range mostEpochs {
		if i > 0 {
			s.stats.scripts.Add(1)
		}
		reply, err := s.send(c)
		switch {
		case err != nil || len(reply) == 0:
			return reply, err
		case reply[0] == noHistory:
			return nil, ErrNoHistory
		case reply[0] != newEpoch:
			return reply, nil
		}
		s.stats.epochs.Add(1)
	}
	return nil, errRestless
}

// ConfirmIntact records that the server has lost nothing: it is new, or was restarted or replaced
// in good order. It ends the wait of [Config.Strict]. It is for an operator: a program that calls
// it at each start has no strict mode. On a cluster it takes a few hundred round trips. After an
// error it may be called again. It returns an error if the mode is not strict.
func (s *Store) ConfirmIntact(ctx context.Context) error {
	if !s.strict {
		return errors.New("sluiceredis: nothing to vouch for: the mode is not strict")
	}
	keys := []string{s.epochKey("")}
	if s.sharded {
		keys = make([]string, slot.Count)
		for i, tag := range slot.Tags() {
			keys[i] = s.epochKey(tag)
		}
	}
	for some := range slices.Chunk(keys, 64) {
		if err := s.vouchFor(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// vouchFor notes in those epochs that nothing is missing.
func (s *Store) vouchFor(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	calls := make([]ScriptCall, len(keys))
	for i := range keys {
		calls[i] = ScriptCall{epochVouch, keys[i : i+1], nil}
	}
	s.stats.scripts.Add(uint64(len(calls)))
	for i, r := range s.client.RunMany(ctx, calls) {
		switch {
		case r.Err != nil:
			return r.Err
		case len(r.Ints) > 0 && r.Ints[0] == noHistory:
			return ErrNoHistory
		case len(r.Ints) > 0 && r.Ints[0] < 0:
			return dataError(keys[i], r.Ints[0])
		}
	}
	return nil
}
