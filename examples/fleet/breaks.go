package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	replaceAfter = 3 * time.Second // from when a worker is killed until there is another
	downFor      = time.Second     // the duration of the outage of the queue and the Redis
	stuckAfter   = time.Minute     // without progress a run ends
)

// run starts the workers, and breaks things as planned until the queue is empty.
func (f *fleet) run(interrupts <-chan os.Signal) (interrupted bool, err error) {
	f.began = time.Now()
	f.books = newBooks(f.began)
	for range f.options.workers {
		f.fail(f.startWorker())
	}
	f.every(time.Second, f.progress)
	f.every(200*time.Millisecond, f.check)
	if f.kill > 0 {
		f.after(f.kill, f.killWorker)
	}
	if f.restart > 0 {
		f.after(f.restart, f.killServers)
	}
	if f.throttle > 0 {
		f.after(f.throttle, f.throttleOne)
	}
	if interrupted = f.follow(interrupts); interrupted {
		f.print(messages + "interrupted: the workers finish their calls, and give back their other items (again to kill them)")
	}
	f.wall = f.now()
	return interrupted, f.err
}

// startWorker starts one more worker.
func (f *fleet) startWorker() error {
	f.started++
	w := &running{number: f.started, read: make(chan struct{})}
	lines, log := io.Pipe()
	w.log = log
	go func() {
		defer close(w.read)
		f.books.follow(w.number, lines)
	}()
	c, err := start(log, f, f.self, "worker", "-nats", f.nats, "-redis", f.redis, "-url", f.url, "-name", f.name,
		"-rate", f.rate.String(), "-goroutines", strconv.Itoa(f.goroutines), "-lease", f.lease.String(), "-catch-up", f.catchUp.String(), fmt.Sprintf("-keys=%t", f.keys))
	if err != nil {
		_ = log.Close()
		return fmt.Errorf("worker %d: %w", w.number, err)
	}
	w.child = c
	f.workers = append(f.workers, w)
	return nil
}

// endWorkers ends all workers by end, immediately.
func (f *fleet) endWorkers(end func(*child)) {
	var all sync.WaitGroup
	for _, w := range f.workers {
		all.Go(func() { w.end(end) })
	}
	all.Wait()
	f.workers = nil
}

// end ends the worker by end, and returns when all its lines were read.
func (w *running) end(end func(*child)) {
	end(w.child)
	_ = w.log.Close()
	<-w.read
}

// killWorker kills the worker that has most items, the oldest of those, and plans the next kill.
// It waits while that worker is the last, or has items for less than half of its goroutines, because
// it may be done with those before the signal arrives.
func (f *fleet) killWorker() {
	most, which := 0, 0
	for i, w := range f.workers {
		if held := f.books.held(w.number); held > most {
			most, which = held, i
		}
	}
	if most < (f.goroutines+1)/2 || len(f.workers) < 2 {
		f.after(100*time.Millisecond, f.killWorker)
		return
	}
	w := f.workers[which]
	f.workers = slices.Delete(f.workers, which, which+1)
	at := f.now()
	w.end((*child).kill)
	held := f.books.kill(w.number, at)
	f.print(messages+"%4.1f s  kill -9 worker %d, which had %d items", at.Seconds(), w.number, held)
	f.after(replaceAfter, func() { f.fail(f.startWorker()) })
	f.after(f.kill, f.killWorker)
}

// killServers kills the queue and the Redis, if they are ours, and starts them again.
func (f *fleet) killServers() {
	if len(f.servers) == 0 {
		f.print(messages + "neither the queue nor the Redis is ours to restart")
		return
	}
	f.restarted = f.now()
	for _, s := range f.servers {
		f.print(messages+"%4.1f s  kill -9 %s", f.restarted.Seconds(), s.name)
		s.kill()
	}
	f.after(downFor, func() {
		for _, s := range f.servers {
			f.fail(s.start())
		}
		f.print(messages+"%4.1f s  they are started again", f.now().Seconds())
	})
}

// throttleOne lets the API throttle one call.
func (f *fleet) throttleOne() {
	f.api.throttleOne()
	f.print(messages+"%4.1f s  the API answers the next call with 429, and asks for %v", f.now().Seconds(), banned)
}

// fail ends the run if err is not nil.
func (f *fleet) fail(err error) {
	if err != nil {
		f.err, f.over = errors.Join(f.err, err), true
	}
}

// progress prints how far the run is.
func (f *fleet) progress() {
	n := f.api.now()
	f.print("%6.0f s  %5d of %d processed, %d in the last second, %d workers", f.now().Seconds(), n, f.n, n-f.shown, len(f.workers))
	f.shown = n
}

// check ends the run when the queue is empty, or nothing has happened for too long.
func (f *fleet) check() {
	n := f.api.now()
	if n > f.gained {
		f.gained, f.gainedAt = n, f.now()
	}
	idle := f.now() - f.gainedAt
	if n < f.n && idle < time.Second {
		return // there must be more
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if left, err := f.queue.left(ctx); err == nil && left == 0 {
		f.over = true
	}
	if idle > stuckAfter {
		f.fail(fmt.Errorf("no item was processed in the last %v", stuckAfter))
	}
}
