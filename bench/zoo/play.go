package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const defaultWorkers = 32

// A game is one run: one client at one server, or several that share its limit.
type game struct {
	Server  string
	Clients string // a+b
	Seed    uint64
	Lasts   float64 // seconds that the items last at the limit
	Most    float64 // it is cut off after so many times the ideal, and 15 s
	Workers int     // goroutines of each client
	Jitter  float64 // ms
	Trace   bool
}

// A place is where a game takes place: how a server is reached.
type place struct {
	url     string
	base    http.RoundTripper
	change  func() // of a server whose limit changes: changes it
	cleanup func(func())
}

// play plays g at a server that has been started.
func (g *game) play(p *place, trace func(string)) (*result, error) {
	s := find(g.Server)
	chosen, err := chooseClients(g.Clients)
	if err != nil {
		return nil, err
	}
	together := chosen[0]
	items := s.itemsFor(g.Lasts) / len(together)
	start := time.Now()
	ideal := s.limit.ideal(float64(items*len(together)), start)
	ctx, cancel := context.WithTimeout(context.Background(), seconds(g.Most*ideal+15))
	defer cancel()
	if s.limit.change > 0 && p.change != nil {
		defer time.AfterFunc(seconds(s.limit.change), p.change).Stop()
	}
	var all sync.WaitGroup
	users := make([]*user, len(together))
	for i, c := range together {
		u := &user{client: c, tap: &tap{base: p.base, server: s, start: start}}
		users[i] = u
		t := &target{url: p.url, tap: u.tap, server: s, trace: trace, cleanup: p.cleanup}
		begin := c.http
		if s.limiter == grpcLimiter {
			if begin = c.grpc; begin == nil {
				return nil, fmt.Errorf("%s has no gRPC", c.name)
			}
		}
		u.do, u.said = begin(t)
		all.Go(func() { u.work(ctx, items, cmp.Or(c.workers, g.Workers), start) })
	}
	all.Wait()
	return g.result(s, users, start), nil
}

// A user is a client at work.
type user struct {
	client     *client
	tap        *tap
	do         caller
	said       func() string
	items      int
	done, lost atomic.Int64
	first      atomic.Pointer[string] // why the first item was lost
	took       time.Duration
}

// work makes one call for each item, by so many workers.
func (u *user) work(ctx context.Context, items, workers int, start time.Time) {
	u.items = items
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				item := int(next.Add(1))
				if item > items || ctx.Err() != nil {
					return
				}
				err := u.do(ctx, item)
				switch {
				case err == nil:
					u.done.Add(1)
				case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
					// The run was cut off: a client that gives up just before its deadline,
					// because no answer can come in time, has lost nothing else.
				default:
					u.lost.Add(1)
					why := err.Error()
					u.first.CompareAndSwap(nil, &why)
				}
			}
		})
	}
	group.Wait()
	u.took = time.Since(start)
}

func (g *game) result(s *server, users []*user, start time.Time) *result {
	r := &result{Server: s.name, Group: s.group, Client: g.Clients, Seed: g.Seed, Lasts: g.Lasts}
	both := users[0].took
	for _, u := range users {
		both = min(both, u.took)
	}
	var seen []sight
	for _, u := range users {
		u.tap.mu.Lock()
		mine := slices.Clone(u.tap.seen)
		u.tap.mu.Unlock()
		seen = append(seen, mine...)
		r.Items += u.items
		r.Done += int(u.done.Load())
		r.Lost += int(u.lost.Load())
		r.Seconds = max(r.Seconds, u.took.Seconds())
		if why := u.first.Load(); why != nil && r.Why == "" {
			r.Why = *why
		}
		r.Said = cmp.Or(r.Said, u.said())
		if len(users) > 1 {
			r.Shares = append(r.Shares, share{u.client.name, grantedUntil(mine, both) / both.Seconds()})
		}
	}
	slices.SortFunc(seen, func(a, b sight) int { return cmp.Compare(a.back, b.back) })
	r.count(seen)
	r.judge(s.limit, start)
	return r
}
