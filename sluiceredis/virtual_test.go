package sluiceredis

import (
	"context"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
	"strconv"
	"sync"
	"time"
)

// A virtual is a server of leaky buckets and of one pacer that keeps the time of a synctest
// bubble, where a script takes no time and the way to it as long as it is told. It
// does what the scripts do, with 64-bit integers.
type virtual struct {
	mu    sync.Mutex
	pacer struct{ free, pause, mark int64 }
	tats  map[string]int64 // when a bucket is empty, ns since 1970
	way   time.Duration    // there, and back
	slow  map[*Script]time.Duration
	down  bool // every call fails
	calls int
}

func newVirtual(way time.Duration) *virtual {
	return &virtual{tats: map[string]int64{}, way: way, slow: map[*Script]time.Duration{}}
}

// machine returns a store of a machine that uses v.
func (v *virtual) machine() *Store {
	s, err := New(v, Config{FailureThreshold: 1 << 30}) // it is never away for long
	if err != nil {
		panic(err)
	}
	return s
}

// Run implements Client.
func (v *virtual) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	v.mu.Lock()
	v.calls++
	there, back, down := v.way+v.slow[s], v.way, v.down
	v.mu.Unlock()
	if down {
		return nil, errAway
	}
	if err := travel(ctx, there); err != nil {
		return nil, ambiguous(err)
	}
	reply := v.script(s, keys, args)
	if err := travel(ctx, back); err != nil {
		return nil, ambiguous(err)
	}
	return reply, nil
}

func travel(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// script does what a script does.
func (v *virtual) script(s *Script, keys, args []string) []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	what, short := "", len(args) == shortArgs
	switch {
	case s.Name == "add", s == pacerScript:
		what, args = args[0], args[1:] // of add the kind, which is bucket
	case s == takes[kinds.BucketKind] && len(args) == shortArgs:
		args = []string{args[1], args[2], "1", args[0]}
	case s == takes[kinds.BucketKind]:
		args = append(args[1:3:3], args[4:]...) // without the kind and the number of runs
	}
	var n []int64
	for _, text := range args {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil && text[0] != ' ' { // a quota: all buckets here have one
			panic(err)
		}
		n = append(n, i)
	}
	us := time.Now().UnixMicro()
	now, tat := us*1000, v.tats[keys[0]]
	before := max(0, tat-now)
	level, granted := before, int64(0)
	switch s {
	case takes[kinds.BucketKind]:
		for i := 2; i < len(n); i += 2 {
			for range n[i] {
				if level+n[i+1] <= n[0] {
					level, granted = level+n[i+1], granted+1
				}
			}
		}
		v.tats[keys[0]] = now + level
		if short {
			return []int64{0, -1 - 2*before - granted, us}
		}
		return []int64{0, 3, granted, 0, before, us}
	case adds[kinds.BucketKind]:
		level = max(0, level+n[2])
		v.tats[keys[0]] = now + level
		return []int64{0, max(level-before, before-level), us}
	}
	p, done := &v.pacer, int64(0)
	ahead := func(at int64) int64 { return max(0, at-now) }
	free := max(p.free, p.pause, now-n[0])
	switch what {
	case "reserve":
		next := free
		for i := 2; i < len(n); i += 2 {
			if next-now <= n[i+1] {
				next, done = next+n[i], done+1
			}
		}
		if done > 0 {
			p.free = next
		}
	case "cancel":
		if p.free == n[2] && ahead(p.mark) == max(0, n[4]-now) {
			p.free, done = p.free-n[3], 1
		}
	case "pause":
		p.pause = max(p.pause, now+n[2])
		p.free = max(p.free, p.pause)
	case "resume":
		if p.pause-now > n[2] {
			p.mark = max(p.free, p.mark+1)
			p.free, p.pause = now+n[3], 0
		}
	default:
		panic(what)
	}
	return []int64{0, done, 0, free - now, ahead(p.pause), ahead(p.mark), us}
}

// RunMany implements Client.
func (v *virtual) RunMany(context.Context, []ScriptCall) []Reply { panic("each alone") }

func (v *virtual) set(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// count returns how many calls there were.
func (v *virtual) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls
}
