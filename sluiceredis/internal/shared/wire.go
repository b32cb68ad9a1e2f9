package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/sluiceredis"
)

// The admitted units are read from the wire, by code that shares nothing with that which
// decides: a script that admitted too much could not hide it here. See lua/pacer.lua and
// lua/take.lua for the arguments and replies.

// A script is a call of one that was answered.
type script struct {
	Now     int64   // of the server, µs since 1970
	Before  int64   // ns: how far the next slot was ahead, or the bucket from empty
	Granted int64   // how many requests
	Reply   int64   // as many as the script said itself
	Costs   []int64 `json:",omitempty"` // ns, of those admitted, in order
}

// wire is a Client that notes the calls through it.
type wire struct {
	sluiceredis.Topology // the measured calls must go the same way as without us
	kind                 string

	mu      sync.Mutex
	scripts []script
	other   int
}

// Run implements sluiceredis.Client.
func (w *wire) Run(ctx context.Context, s *sluiceredis.Script, keys, args []string) ([]int64, error) {
	ints, err := w.Topology.Run(ctx, s, keys, args)
	w.note(s, args, ints, err)
	return ints, err
}

// RunMany implements sluiceredis.Client.
func (w *wire) RunMany(ctx context.Context, calls []sluiceredis.ScriptCall) []sluiceredis.Reply {
	replies := w.Topology.RunMany(ctx, calls)
	for i, r := range replies {
		w.note(calls[i].Script, calls[i].Args, r.Ints, r.Err)
	}
	return replies
}

func (w *wire) note(s *sluiceredis.Script, args []string, reply []int64, err error) {
	if err != nil {
		return // counted by the store
	}
	var read func([]string, []int64) (script, error)
	switch {
	case w.kind == "pacer" && s.Name == "pacer":
		read = readReserve
	case w.kind == "leaky" && s.Name == "take":
		read = readTake
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if read == nil {
		w.other++
		return
	}
	call, err := read(args, reply)
	if err != nil {
		w.other++
		return
	}
	w.scripts = append(w.scripts, call)
}

func (w *wire) recorded() ([]script, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scripts, w.other
}

// readReserve reads a call of pacer that reserves slots.
func readReserve(args []string, reply []int64) (script, error) {
	numbers, err := integers(args[1:])
	if err != nil || args[0] != "reserve" || len(reply) != 7 || len(numbers) < 2 || len(numbers)%2 != 0 {
		return script{}, fmt.Errorf("pacer of %q replied %d: %w", args, reply, err)
	}
	free := reply[3]
	s := script{Now: reply[6], Before: free, Reply: reply[1]}
	for i := 2; i < len(numbers); i += 2 {
		if free <= numbers[i+1] {
			s.Costs = append(s.Costs, numbers[i])
			free += numbers[i]
			s.Granted++
		}
	}
	return s, nil
}

// readTake reads a call of take for one bucket, with one run of requests.
func readTake(args []string, reply []int64) (script, error) {
	if len(args) == 3 { // a short set
		args = []string{"bucket", args[1], args[2], "1", "1", args[0]}
		if len(reply) == 3 && reply[0] == 0 && reply[1] < 0 {
			reply = []int64{0, 3, (-1 - reply[1]) % 2, 0, (-1 - reply[1]) / 2, reply[2]}
		}
	}
	isText := func(text string) bool { return text == "bucket" || strings.HasPrefix(text, " ") } // the tag
	numbers, err := integers(slices.DeleteFunc(slices.Clone(args), isText))
	if err != nil || len(reply) != 6 || len(numbers) != 4 || numbers[1] != 1 || reply[0] != 0 {
		return script{}, fmt.Errorf("take of %q replied %d: %w", args, reply, err)
	}
	level := reply[4]
	s := script{Now: reply[5], Before: level, Reply: reply[2]}
	for range numbers[2] {
		if level+numbers[3] <= numbers[0] {
			s.Costs = append(s.Costs, numbers[3])
			level += numbers[3]
			s.Granted++
		}
	}
	return s, nil
}

func integers(texts []string) ([]int64, error) {
	numbers := make([]int64, len(texts))
	for i, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	return numbers, nil
}
