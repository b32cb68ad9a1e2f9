package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/server"
)

// A work is what is asked, and by how many at the same time.
type work struct {
	keys, callers int
}

var works = []work{{1, 1}, {1, 64}, {1, 512}, {10_000, 512}}

// name returns hot/64 for 64 callers of one key.
func (w work) name() string {
	if w.keys == 1 {
		return fmt.Sprint("hot/", w.callers)
	}
	return fmt.Sprint(w.keys, "/", w.callers)
}

// A cell is one library at one work, in one round.
type cell struct {
	Round   int    `json:"round"`
	Work    string `json:"work"`
	Library string `json:"library"`

	PerSecond float64 `json:"per_second"`    // decisions
	P50       float64 `json:"p50_us"`        // from question to answer
	P99       float64 `json:"p99_us"`        //
	Client    float64 `json:"cpu_us"`        // processor time of this process, for each decision
	Server    float64 `json:"server_cpu_us"` // and that of the server
	Failed    int64   `json:"failed"`        // decisions that were none
}

// of returns a number of c by its unit.
func (c cell) of(unit string) float64 {
	switch unit {
	case "p50":
		return c.P50
	case "p99":
		return c.P99
	case "client":
		return c.Client
	case "server":
		return c.Server
	}
	return c.PerSecond
}

// warmUp is how long a library works before it is looked at: it must connect.
const warmUp = 50 * time.Millisecond

// measure has l do w for so long, on an empty server.
func measure(ctx context.Context, s *server.Server, l library, w work, d time.Duration) (cell, error) {
	c := cell{Work: w.name(), Library: l.name}
	if err := s.Admin.FlushAll(ctx).Err(); err != nil {
		return c, err
	}
	ask, end, err := l.open(s.Addr)
	if err != nil {
		return c, err
	}
	defer end()
	if _, _, err := drive(ctx, ask, w, warmUp); err != nil {
		return c, err
	}
	before, err := s.CPU(ctx)
	if err != nil {
		return c, err
	}
	own, began := machine.CPUTime(), time.Now()
	times, failed, err := drive(ctx, ask, w, d)
	took, used := time.Since(began), machine.CPUTime()-own
	if err != nil {
		return c, err
	}
	after, err := s.CPU(ctx)
	if err != nil {
		return c, err
	}
	n := len(times)
	if n == 0 {
		return c, errors.New("no decision at all")
	}
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	c.PerSecond, c.Failed = float64(n)/took.Seconds(), failed
	c.P50, c.P99 = us(times[n/2]), us(times[n*99/100])
	c.Client, c.Server = us(used)/float64(n), us(after-before)/float64(n)
	return c, nil
}

// drive has callers ask for so long, and returns how long each decision took. An
// error is a failed decision, unless there are nothing but errors.
func drive(ctx context.Context, ask ask, w work, d time.Duration) (times []time.Duration, failed int64, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var stop atomic.Bool
	var errs atomic.Int64
	for caller := range w.callers {
		wg.Go(func() {
			var own []time.Duration
			var last error
			began := time.Now()
			for i := caller; !stop.Load(); i += w.callers {
				e := ask(ctx, keys[i%w.keys])
				now := time.Now()
				if e != nil {
					errs.Add(1)
					last = e
				} else {
					own = append(own, now.Sub(began))
				}
				began = now
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
			if len(own) == 0 && last != nil {
				err = last
			}
		})
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	stop.Store(true)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	if len(times) > 0 {
		err = nil
	}
	return times, errs.Load(), err
}

// A size is what a library keeps for each key, as MEMORY USAGE has it.
type size struct {
	Library string  `json:"library"`
	Keys    int     `json:"keys"`  // redis keys for each key
	Bytes   float64 `json:"bytes"` // for each key
	Text    float64 `json:"text"`  // of which are the bytes of the redis key
}

// weigh has l decide once about each of a thousand keys.
func weigh(ctx context.Context, s *server.Server, l library) (size, error) {
	const n = 1000
	m := size{Library: l.name}
	ask, end, err := l.open(s.Addr)
	if err != nil {
		return m, err
	}
	defer end()
	for _, key := range keys[:n] {
		one, err := weighOne(ctx, s, ask, key)
		for again := 0; err == redis.Nil && again < 5; again++ { // a key has expired: the machine stalled for a second
			one, err = weighOne(ctx, s, ask, key)
		}
		if err != nil {
			return m, err
		}
		m.Keys, m.Bytes, m.Text = one.Keys, m.Bytes+one.Bytes/n, m.Text+one.Text/n
	}
	return m, nil
}

// weighOne returns what is kept for one key.
func weighOne(ctx context.Context, s *server.Server, ask ask, key string) (m size, err error) {
	if err := s.Admin.FlushAll(ctx).Err(); err != nil {
		return m, err
	}
	if err := ask(ctx, key); err != nil {
		return m, err
	}
	found, err := s.Admin.Keys(ctx, "*").Result()
	if err != nil {
		return m, err
	}
	for _, key := range found {
		bytes, err := s.Admin.MemoryUsage(ctx, key).Result()
		if err != nil {
			return m, err
		}
		m.Bytes += float64(bytes)
		m.Text += float64(len(key))
	}
	m.Keys = len(found)
	return m, nil
}
