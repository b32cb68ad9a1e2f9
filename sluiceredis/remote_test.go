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
)

// A remote is a server in virtual time: what scripts do, done by a memory, whose
// answers are those of a server (see TestInProcessAnswersAsAServerDoes).
type remote struct {
	mu    sync.Mutex
	m     *memory
	alive map[string]time.Time
}

// take takes from one limit. Runs are of a number of requests and what one takes, or the
// other way round.
func (v *remote) take(m member, now int64, runs []int64, bucket bool) []int64 {
	reply := []int64{0, 0}
	m.local(v.m, func(st state) (asked bool) {
		reply = append(reply, found(m, st, now)...)
		for i := 0; i < len(runs); i += 2 {
			count, n := runs[i], runs[i+1]/m.unit()
			if bucket {
				count, n = runs[i+1], runs[i]/m.unit()
			}
			fit := int64(0)
			for fit < count && st.wait(n) == 0 {
				st.take(n)
				fit++
			}
			reply[1] += fit
			if m.kind() == slidingKind {
				when := int64(0)
				if wait := st.wait(n); wait > 0 && wait != limits.Never {
					when = now + wait.Microseconds()
				}
				reply = append(reply, when)
			}
			asked = true
		}
		return asked
	})
	return append(reply, now)
}

func newRemote() *remote { return &remote{m: newMemory(), alive: map[string]time.Time{}} }

// A line is a Client of a remote, with faults of its own.
type line struct {
	to     *remote
	calls  atomic.Int64
	silent atomic.Bool  // no reply ever comes
	lost   atomic.Bool  // the server gets the call, but no reply comes
	delay  atomic.Int64 // replies come so many ns later

	mu    sync.Mutex
	fails error // replied at once, and nothing is done; or nil
}

func (l *line) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// newStore returns a store on a line of its own.
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

func (l *line) RunMany(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	for i, c := range calls {
		replies[i].Ints, replies[i].Err = l.Run(ctx, c.Script, c.Keys, c.Args)
	}
	return replies
}

// limitOf returns the limit that a script is asked for, and how many of args that takes.
func limitOf(kind, key string, args []string) (m member, used int) {
	n := make([]int64, 3)
	for i := range min(3, len(args)) {
		n[i], _ = strconv.ParseInt(args[i], 10, 64)
	}
	a := spot{key: key}
	switch kind {
	case "bucket":
		var capacity, interval int64
		if _, err := fmt.Sscanf(args[1], " %d@%d", &capacity, &interval); err != nil {
			panic(err)
		}
		c, err := newCell(limits.Rate{Count: 1, Per: time.Duration(interval), Burst: capacity})
		if err != nil {
			panic(err)
		}
		c.key = key
		return &c, 2
	case "sliding":
		return &slidingWindow{a, n[0], n[1]}, 3
	case "pace":
		return &pace{a, n[0], n[1], 1}, 2
	case "fixed":
		return &fixedWindow{a, n[0], n[1], n[2]}, 3
	}
	return nil, 0
}

// found returns what a script tells of a state, before anything was taken.
func found(m member, st state, now int64) []int64 {
	switch st := st.(type) {
	case *cellState:
		return []int64{0, st.level}
	case *slidingLocal:
		remaining, _, reset := st.holds()
		newest := int64(0)
		if reset > 0 {
			newest = now + reset.Microseconds() - st.window.window
		}
		return []int64{0, m.limit() - remaining, newest}
	case *fixedState:
		return []int64{0, st.used, st.left.Microseconds()}
	}
	panic(fmt.Sprintf("%T", st))
}

func (v *remote) run(s *Script, keys, args []string) ([]int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var n []int64
	for _, arg := range args {
		i, _ := strconv.ParseInt(arg, 10, 64)
		n = append(n, i)
	}
	now, key := v.m.clock(), keys[0]
	if s == bucketTake {
		m, _ := limitOf("bucket", key, args)
		return v.take(m, now, n[3:], true), nil
	}
	switch {
	case len(keys) > 1: // it decides for no two
	case s.name == "take":
		m, used := limitOf(args[0], key, args[1:])
		return v.take(m, now, n[1+used:], false), nil
	case s.name == "add":
		m, used := limitOf(args[0], key, args[1:])
		delta := n[1+used]
		if m.unit() == 1 {
			made := int64(0)
			m.local(v.m, func(st state) bool {
				made, _ = st.add(delta, micro(n[2+used]), 0)
				return true
			})
			return []int64{0, made, now}, nil
		}
		changed := int64(0)
		m.local(v.m, func(st state) bool {
			c := st.(*cellState)
			before := c.level
			c.level = min(max(0, before+delta), longest)
			changed = max(c.level-before, before-c.level)
			return true
		})
		return []int64{0, changed, now}, nil
	}
	switch {
	case s == pacerScript && args[0] == "reserve":
		k := &pace{spot: spot{key: key}, missed: n[1], horizon: n[2], interval: 1}
		look := &pacing{}
		v.m.reserveSlots(k, 1, []*pacing{look})
		free, pause, granted := look.slot-now*1000, int64(0), int64(0)
		if look.pause > 0 {
			pause = look.pause - now*1000
		}
		for i := 3; i < len(n); i += 2 {
			r := &pacing{takes: n[i], patience: n[i+1]}
			v.m.reserveSlots(k, 1, []*pacing{r})
			if r.ok {
				granted++
			}
		}
		return []int64{0, granted, 0, free, pause, 0, now}, nil
	case s == pacerScript && args[0] == "cancel":
		back := int64(0)
		if v.m.cancelSlots(&pace{spot: spot{key: key}}, n[3], n[4], n[5]) {
			back = 1
		}
		return []int64{0, back, 0, 0, 0, 0, now}, nil
	case s == alive:
		for id, heard := range v.alive {
			if time.Since(heard) >= micro(n[1]) {
				delete(v.alive, id)
			}
		}
		v.alive[args[0]] = time.Now()
		return []int64{0, int64(len(v.alive)), now}, nil
	}
	return nil, newServerError("ERR virtual: no such script: " + s.name)
}
