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
)

// A remote is a server in virtual time: what scripts do, done by a memory, whose
// answers are those of a server (see TestInProcessAnswersAsAServerDoes).
type remote struct {
	mu    sync.Mutex
	m     *memory
	alive map[string]time.Time
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
		return nil, Ambiguous(ctx.Err())
	}
	reply, err := l.to.run(s, keys, args)
	time.Sleep(time.Duration(l.delay.Load()))
	if l.lost.Load() {
		<-ctx.Done()
		return nil, Ambiguous(ctx.Err())
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

func (l *line) ServerID(context.Context, string) (string, error) { return "virtual", nil }

// tagged returns the cell of a bucket by what stands behind its instant.
func tagged(key, tag string) cell {
	c := cell{key: key}
	if _, err := fmt.Sscanf(tag, " %d@%d", &c.of.capacity, &c.of.interval); err != nil {
		panic(err)
	}
	c.interval, c.capacity = c.of.interval, c.of.capacity
	return c
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
	switch s {
	case leakyTake, leakyUsual:
		w, at := v.m.buckets.Get(key)
		c := tagged(key, args[1])
		p, _ := w.by(&c, at)
		level, granted := p.Own.Level, int64(0)
		reply := []int64{0, 0, 0, level / int64(time.Second), level % int64(time.Second), now}
		for i := 2; i < len(n); i += 2 {
			fit := min(n[i+1], max(0, n[0]-level)/n[i])
			level, granted = level+fit*n[i], granted+fit
		}
		if reply[1] = granted; s == leakyUsual {
			reply = []int64{0, now, granted, reply[3], reply[4]}
		}
		return reply, v.m.buckets.Update(key, func(water, time.Duration) water { return pour(&c, p, level-p.Own.Level, at) })
	case logTake:
		before := v.m.log(n[1]).TakeLimit(key, n[0], 0)
		reply := []int64{0, 0, n[0] - before.Remaining, 0}
		if before.ResetAfter > 0 {
			reply[3] = now + before.ResetAfter.Microseconds() - n[1]
		}
		for i := 3; i < len(n); i += 2 {
			fit, wait := int64(0), int64(0)
			for range n[i+1] {
				if !v.m.log(n[1]).TakeLimit(key, n[0], n[i]).Allowed() {
					break
				}
				fit++
			}
			if res := v.m.log(n[1]).TakeLimit(key, n[0], n[i]); fit < n[i+1] {
				wait = now + res.RetryAfter.Microseconds()
			} else if res.Allowed() { // that was one too many
				_, _ = v.m.adjustLog(logKey{key: key, window: n[1]}, -n[i], 0)
			}
			reply = append(reply, fit, wait)
		}
		return append(reply, now), nil
	case fixedTake:
		k := fixedKey{key: key, limit: n[0], window: n[1], offset: n[2]}
		old, at := v.m.fixeds.Get(key)
		w := old.at(k, now, at)
		used, left := w.found(k.limit, now)
		reply := []int64{0, 0, 0, used, left.Microseconds(), now}
		for i := 3; i < len(n); i += 2 {
			for range n[i+1] {
				a := &asking{n: n[i]}
				if err := v.m.takeFromFixed(k, []*asking{a}); err != nil {
					return nil, err
				}
				if a.result.Allowed() {
					reply[1]++
				}
			}
		}
		return reply, nil
	case adjust:
		var changed int64
		var err error
		switch args[0] {
		case "leaky":
			c := tagged(key, args[2])
			changed, err = v.m.adjustBucket(c, n[3])
		case "log":
			changed, err = v.m.adjustLog(logKey{key: key, window: n[2]}, n[4], micro(n[5]))
		case "fixed":
			changed, err = v.m.adjustFixed(fixedKey{key: key, window: n[2], offset: n[3]}, n[4], micro(n[5]))
		}
		return []int64{0, changed, now}, err
	case pacerReserve:
		k := paceKey{key: key, missed: n[0], horizon: n[1]}
		look := &pacing{}
		if err := v.m.reserveSlots(k, 1, []*pacing{look}); err != nil {
			return nil, err
		}
		free, pause, granted := look.slot-now*1000, int64(0), int64(0)
		if look.pause > 0 {
			pause = look.pause - now*1000
		}
		for i := 2; i < len(n); i += 2 {
			r := &pacing{takes: n[i], patience: n[i+1]}
			if err := v.m.reserveSlots(k, 1, []*pacing{r}); err != nil {
				return nil, err
			}
			if r.ok {
				granted++
			}
		}
		const s = int64(time.Second)
		return []int64{0, granted, 0, free / s, free % s, pause / s, pause % s, 0, 0, now}, nil
	case pacerCancel:
		end, _ := strconv.ParseInt(args[0], 10, 64)
		if v.m.cancelSlots(paceKey{key: key}, end, n[1], n[2]) {
			return []int64{1, now}, nil
		}
		return []int64{0, now}, nil
	case alive:
		for id, heard := range v.alive {
			if time.Since(heard) >= micro(n[1]) {
				delete(v.alive, id)
			}
		}
		if delete(v.alive, args[0]); args[2] == "1" {
			v.alive[args[0]] = time.Now()
		}
		return []int64{0, int64(len(v.alive)), now}, nil
	}
	return nil, newServerError("ERR virtual: no such script: " + s.name)
}
