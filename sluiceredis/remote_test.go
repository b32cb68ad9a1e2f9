package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"github.com/sluice-go/sluice/sluiceredis/internal/memory"
)

// A remote is a server in virtual time: what scripts do, done by a memory, whose
// answers are those of a server (see TestInProcessAnswersAsAServerDoes).
type remote struct {
	mu    sync.Mutex
	m     *memory.Memory
	alive map[string]time.Time
}

// take takes from one limit. Runs are of a number of requests and what one takes.
func (v *remote) take(key string, m kinds.Rule, now int64, runs []int64) []int64 {
	st, asked := v.m.Open(key, m), false
	reply := append([]int64{0, 0, 0}, found(m, st.Held, now)...)
	for i := 0; i < len(runs); i += 2 {
		count, n := runs[i], runs[i+1]/m.Each()
		fit := int64(0)
		for fit < count && st.Wait(n) == 0 {
			st.Take(n)
			fit++
		}
		reply[2] += fit
		if m.Kind().When() {
			when := int64(0)
			if wait := st.Wait(n); wait > 0 && wait != limits.Never {
				when = now + wait.Microseconds()
			}
			reply = append(reply, when)
		}
		asked = true
	}
	st.Close(asked)
	reply[1] = int64(len(reply) - 2)
	return append(reply, now)
}

// onPacer calls f with the state of a pacer.
func (v *remote) onPacer(key string, m kinds.Rule, f func(*kinds.PaceHeld)) {
	h := v.m.Open(key, m)
	f(h.Held.(*kinds.PaceHeld))
	h.Close(false)
}

func newRemote() *remote { return &remote{m: memory.New(), alive: map[string]time.Time{}} }

// A line is a Client of a remote, with its own faults.
type line struct {
	to     *remote
	calls  atomic.Int64
	silent atomic.Bool  // no reply ever comes
	lost   atomic.Bool  // the server gets the call, but no reply comes
	delay  atomic.Int64 // replies come so many ns later

	mu    sync.Mutex
	fails error // replied immediately, and nothing is done; or nil
	left  int   // after so many calls they fail; 0: as fails says
}

// failAfter has that many calls answered, and those behind them fail.
func (l *line) failAfter(calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails, l.left = nil, calls+1
}

func (l *line) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// newStore returns a store on its own line.
func (v *remote) newStore(t testing.TB, cfg Config) (*Store, *line) {
	t.Helper()
	l := &line{to: v}
	s, err := New(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

var errRefused = errors.New("dial tcp: connection refused")

// Run implements Client.
func (l *line) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.calls.Add(1)
	l.mu.Lock()
	if l.left == 1 {
		l.fails = errRefused
	}
	l.left = max(0, l.left-1)
	err := l.fails
	l.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case l.silent.Load():
		<-ctx.Done()
		return nil, ambiguous(ctx.Err())
	}
	reply, err := l.to.run(s, keys, args)
	time.Sleep(time.Duration(l.delay.Load()))
	if l.lost.Load() {
		<-ctx.Done()
		return nil, ambiguous(ctx.Err())
	}
	return reply, err
}

func (l *line) RunMany(ctx context.Context, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	for i, c := range calls {
		replies[i].Ints, replies[i].Err = l.Run(ctx, c.Script, c.Keys, c.Args)
	}
	return replies
}

// limitOf returns the limit that a script is asked for, and how many of args that takes.
func limitOf(kind string, args []string) (m kinds.Rule, used int) {
	n := make([]int64, 3)
	for i := range min(3, len(args)) {
		n[i], _ = strconv.ParseInt(args[i], 10, 64)
	}
	switch kind {
	case "bucket":
		var capacity, interval float64
		if _, err := fmt.Sscanf(args[1], " %g@%g", &capacity, &interval); err != nil {
			panic(err)
		}
		b, err := kinds.NewBucket(limits.Rate{Count: 1, Per: time.Duration(interval), Burst: int64(capacity)}, nil)
		if err != nil {
			panic(err)
		}
		return b, 2
	case "sliding":
		return kinds.NewSliding(n[0], kinds.Micro(n[1])), 3
	case "pace":
		return kinds.NewPace(1, time.Duration(n[0]), time.Duration(n[1])), 2
	case "fixed":
		return kinds.NewFixed(n[0], kinds.Micro(n[1]), n[2] >= 0, kinds.Micro(n[2])), 3
	}
	return nil, 0
}

// found returns what a script replies of a state, before anything was taken.
func found(m kinds.Rule, st kinds.Held, now int64) []int64 {
	switch st := st.(type) {
	case *kinds.BucketHeld:
		return []int64{0, st.Level}
	case *kinds.SlidingHeld:
		remaining, _, reset := st.Holds()
		newest := int64(0)
		if reset > 0 {
			newest = now + (reset - m.Counts()).Microseconds()
		}
		return []int64{0, m.Limit() - remaining, newest}
	case *kinds.FixedHeld:
		return []int64{0, st.Used, st.Left.Microseconds()}
	}
	panic(fmt.Sprintf("%T", st))
}

func (v *remote) run(s *Script, keys, args []string) ([]int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Name == "take" && len(args) == shortArgs {
		args = []string{"bucket", args[1], args[2], "1", "1", args[0]}
	}
	var n []int64
	for _, arg := range args {
		i, _ := strconv.ParseInt(arg, 10, 64)
		n = append(n, i)
	}
	now, key := v.m.Server(), keys[0]
	switch {
	case len(keys) > 1: // it decides for no two
	case s.Name == "take":
		m, used := limitOf(args[0], args[1:])
		return v.take(key, m, now, n[2+used:]), nil
	case s.Name == "add":
		m, used := limitOf(args[0], args[1:])
		delta := n[1+used]
		h := v.m.Open(key, m)
		defer h.Close(true)
		if m.Each() == 1 {
			made, _ := h.Add(delta, kinds.Micro(n[2+used]), 0)
			return []int64{0, made, now}, nil
		}
		b := h.Held.(*kinds.BucketHeld)
		before := b.Level
		b.Level = min(max(0, before+delta), kinds.Longest)
		return []int64{0, max(b.Level-before, before-b.Level), now}, nil
	}
	switch {
	case s == pacerScript && args[0] == "reserve":
		reply, granted := []int64(nil), int64(0)
		v.onPacer(key, kinds.NewPace(1, time.Duration(n[1]), time.Duration(n[2])), func(h *kinds.PaceHeld) {
			free, _ := h.Free()
			pause := int64(0)
			if p := h.Pauses(); p.Pause > 0 {
				pause = p.Pause - p.Now
			}
			reply = []int64{0, 0, 0, free, pause, 0, now}
			for i := 3; i < len(n); i += 2 {
				if free, _ := h.Free(); free <= n[i+1] {
					h.Reserve(n[i])
					granted++
				}
			}
		})
		reply[1] = granted
		return reply, nil
	case s == pacerScript && args[0] == "cancel":
		back := int64(0)
		v.onPacer(key, kinds.NewPace(1, 0, 0), func(h *kinds.PaceHeld) {
			if h.Cancel(n[3], n[4], n[5]) {
				back = 1
			}
		})
		return []int64{0, back, 0, 0, 0, 0, now}, nil
	case s == alive:
		for id, heard := range v.alive {
			if time.Since(heard) >= kinds.Micro(n[1]) {
				delete(v.alive, id)
			}
		}
		v.alive[args[0]] = time.Now()
		return []int64{0, int64(len(v.alive)), now}, nil
	}
	return nil, newServerError("ERR virtual: no such script: " + s.Name)
}
