package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	redisserver "github.com/sluice-go/sluice/bench/internal/server"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// A cutter forwards connections, and cuts all of them now and then.
type cutter struct {
	net.Listener
	to  string
	mu  sync.Mutex
	all map[net.Conn]bool
	run sync.WaitGroup
}

func newCutter(to string) (*cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cutter{Listener: l, to: to, all: map[net.Conn]bool{}}
	c.run.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			c.run.Go(func() { c.forward(a) })
		}
	})
	return c, nil
}

func (c *cutter) forward(a net.Conn) {
	defer a.Close()
	b, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer b.Close()
	c.mu.Lock()
	c.all[a], c.all[b] = true, true
	c.mu.Unlock()
	var both sync.WaitGroup
	copies := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // until it is cut
		_ = to.Close()
	}
	both.Go(func() { copies(a, b) })
	both.Go(func() { copies(b, a) })
	both.Wait()
	c.mu.Lock()
	delete(c.all, a)
	delete(c.all, b)
	c.mu.Unlock()
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.all {
		_ = conn.Close()
	}
}

func (c *cutter) close() {
	_ = c.Listener.Close()
	c.cut()
	c.run.Wait()
}

// leased counts the leases that are held and, as far as their holders know, not lost.
type leased struct {
	mu  sync.Mutex
	all map[limits.Lease]bool
}

func (l *leased) add(lease limits.Lease) (held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[lease] = true
	for lease := range l.all {
		select {
		case <-lease.Lost():
		default:
			held++
		}
	}
	return held
}

func (l *leased) end(lease limits.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, lease)
}

// soakRedis checks a bucket and a semaphore that two programs share, by connections that are cut.
func soakRedis(s *soak, t *tally) {
	server, err := redisserver.Start()
	if err != nil {
		t.skipped = err.Error()
		return
	}
	defer server.Stop()
	c, err := newCutter(server.Addr)
	if err != nil {
		t.breaks("%v", err)
		return
	}
	defer c.close()
	rate := limits.Rate{Count: 100, Per: time.Second, Burst: 10}
	began := time.Now()
	var allowed atomic.Int64
	held := &leased{all: map[limits.Lease]bool{}}
	var programs sync.WaitGroup
	for i := range uint64(2) {
		client := redis.NewClient(&redis.Options{Addr: c.Addr().String(), ContextTimeoutEnabled: true})
		defer client.Close()
		store := limits.Must(sluiceredis.New(limits.Must(sluiceredis.NewGoRedis(client)), sluiceredis.Config{}))
		bucket := limits.Must(store.Bucket("soak", rate))
		semaphore := limits.Must(store.Semaphore("soak", 5, sluiceredis.SemaphoreConfig{}))
		programs.Go(func() {
			s.workers(4, 600+100*i, func(r *rand.Rand) {
				for !s.over() {
					wait, err := bucket.On("key").Admit(context.Background(), 1)
					if t.ended(err); err == nil && wait == 0 {
						t.started()
						if n, most := allowed.Add(1), 11+int64(100*time.Since(began).Seconds()); n > most {
							t.breaks("%d calls where %d are allowed", n, most)
						}
					}
					s.sleep(max(wait, 5*time.Millisecond))
				}
			})
		})
		programs.Go(func() {
			s.workers(6, 650+100*i, func(r *rand.Rand) {
				for !s.over() {
					lease, err := semaphore.Acquire(context.Background(), 1, time.Second)
					if t.ended(err); err != nil {
						s.sleep(20 * time.Millisecond)
						continue
					}
					if n := held.add(lease); n > 5 {
						t.breaks("%d of 5 leases are held", n)
					}
					s.sleep(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
					held.end(lease)
					lease.Release()
				}
			})
		})
	}
	cuts := 0
	for r := s.dice(600); !s.over(); cuts++ {
		s.sleep(time.Duration(1+r.IntN(5)) * time.Second)
		c.cut()
	}
	programs.Wait()
	t.note("%d allowed by the bucket, the connections were cut %d times", allowed.Load(), cuts)
}
