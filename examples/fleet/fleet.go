package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// fleet starts everything, breaks it as planned, and watches.
type fleet struct {
	options
	self    string // this program
	dir     string
	api     *api
	queue   *queue
	books   *books
	servers []*ownServer // of our own
	workers []*running
	started int // workers, ever

	closeRedis func() // of one in this process

	plan
	restarted     time.Duration // when; 0: not
	wall          time.Duration
	gained, shown int           // items that were processed at the last check, and as printed
	gainedAt      time.Duration // when it became so many
	err           error

	mu     sync.Mutex
	screen io.Writer
}

// running is a worker.
type running struct {
	number int
	*child
	log  *io.PipeWriter
	read chan struct{} // closed when all its lines were read
}

// print writes a line for people.
func (f *fleet) print(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.screen, format+"\n", args...)
}

// Write passes on what children say on stderr.
func (f *fleet) Write(text []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.screen.Write(text)
}

// runFleet is the program without a role.
func runFleet(o options, people, stdout io.Writer) (status int, err error) {
	f := &fleet{options: o, screen: people}
	f.name = "fleet-" + rand.Text()[:8]
	if f.self, err = os.Executable(); err != nil {
		return exitLost, err
	}
	if f.dir, err = os.MkdirTemp("", "fleet"); err != nil {
		return exitLost, err
	}
	defer os.RemoveAll(f.dir)
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	defer f.close()
	if err := f.open(); err != nil {
		return exitLost, err
	}
	interrupted, err := f.run(interrupts)
	f.finish(interrupts)
	r := f.figures()
	if interrupted {
		r.giveBack(f.queue)
	}
	f.print("%s", r.table())
	if f.json {
		err = errors.Join(err, r.write(stdout))
	}
	switch {
	case interrupted:
		return exitInterrupted, err
	case r.Lost > 0 || r.Twice > 0 || err != nil:
		return exitLost, err
	}
	return 0, nil
}

// finish lets the workers finish their calls. An interrupt kills them.
func (f *fleet) finish(interrupts <-chan os.Signal) {
	workers, ended := f.workers, make(chan struct{})
	go func() {
		defer close(ended)
		f.endWorkers((*child).end)
	}()
	select {
	case <-ended:
	case <-interrupts:
		for _, w := range workers {
			_ = w.Process.Kill()
		}
		<-ended
	}
}

// open starts the API, the Redis and the queue, and fills the queue.
func (f *fleet) open() (err error) {
	if f.api, err = newAPI(f.n, f.rate); err != nil {
		return err
	}
	f.url = f.api.url
	limits, err := f.openRedis()
	if err != nil {
		return err
	}
	if f.nats == "" {
		s, err := newQueueServer(f.self, f.dir)
		if err != nil {
			return err
		}
		f.servers = append(f.servers, s)
		if err := s.start(); err != nil {
			return err
		}
		f.nats = "nats://" + s.addr
	}
	if f.queue, err = openQueue(f.options); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.queue.create(ctx); err != nil {
		return err
	}
	filled := time.Now()
	if err := f.queue.fill(ctx, f.n); err != nil {
		return fmt.Errorf("filling the queue: %w", err)
	}
	f.print(messages+"%d items are in the queue after %.1f s; %d workers × %d goroutines share %v, in %s",
		f.n, time.Since(filled).Seconds(), f.options.workers, f.goroutines, f.rate, limits)
	return nil
}

// openRedis finds or starts a Redis, and returns what it is.
func (f *fleet) openRedis() (what string, err error) {
	if f.redis != "" {
		return "the Redis at " + f.redis, ping(f.redis)
	}
	s, err := newRedisServer(f.dir)
	if err != nil {
		return "", err
	}
	if s == nil {
		addr, closeRedis, err := newMiniredis()
		if err != nil {
			return "", err
		}
		f.redis, f.closeRedis = addr, closeRedis
		return "a Redis in this process, which is not restarted (there is no redis-server in the PATH)", nil
	}
	f.servers = append(f.servers, s)
	f.redis = s.addr
	return "a redis-server", s.start()
}

// close ends what open started.
func (f *fleet) close() {
	f.endWorkers((*child).kill)
	if f.queue != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.queue.remove(ctx) // one of our own is gone anyway
		f.queue.close()
	}
	for _, s := range f.servers {
		if s.child != nil {
			s.kill()
		}
	}
	if f.api != nil {
		f.api.close()
	}
	if f.closeRedis != nil {
		f.closeRedis()
	}
}
