package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	between  = 100 * time.Millisecond // callers
	patience = 10 * time.Second       // of a caller
	latency  = 20 * time.Millisecond
	begins   = time.Minute // the fault
	ends     = begins + 100*time.Second
	last     = ends + 2*time.Minute // no further callers
)

var errFault = errors.New("the server has failed")

// A fault is an answer of the server while it fails. n is the number of the attempt.
type fault struct {
	name   string
	answer func(ctx context.Context, n int) error
}

var faults = []fault{
	{"refuses all calls", func(ctx context.Context, _ int) error {
		return cmp.Or(sleep(ctx, latency), errFault)
	}},
	{"does not answer", func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}},
	{"fails every second call", func(ctx context.Context, n int) error {
		if n%2 == 0 {
			return sleep(ctx, latency)
		}
		return cmp.Or(sleep(ctx, latency), errFault)
	}},
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A server counts its attempts. It has no limit.
type server struct {
	fault fault
	begin time.Time

	mu        sync.Mutex
	n, failed int // attempts: all, and those while it failed
	now, most int // in flight
	recovered time.Duration
}

func (s *server) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	at := time.Since(s.begin)
	faulty := begins <= at && at < ends
	s.mu.Lock()
	n := s.n
	s.n++
	if faulty {
		s.failed++
	}
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()

	answer := func(ctx context.Context, _ int) error { return sleep(ctx, latency) }
	if faulty {
		answer = s.fault.answer
	}
	err := answer(ctx, n)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if err == nil && at >= ends && s.recovered == 0 {
		s.recovered = time.Since(s.begin)
	}
	return err
}

// play runs a client against a fault, in a bubble.
func play(f fault, c client) figures {
	s := &server{fault: f, begin: time.Now()}
	call := c.open()
	var mu sync.Mutex
	var callers sync.WaitGroup
	var came, served [3]float64 // before, during and after the fault
	for at := time.Duration(0); at < last; at += between {
		time.Sleep(time.Until(s.begin.Add(at)))
		phase := 0
		switch {
		case at >= ends:
			phase = 2
		case at >= begins:
			phase = 1
		}
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := call(ctx, s.attempt)
			mu.Lock()
			defer mu.Unlock()
			came[phase]++
			if err == nil {
				served[phase]++
			}
		})
	}
	callers.Wait()
	return figures{
		attempts:    float64(s.failed),
		servedThen:  100 * served[1] / came[1],
		servedAfter: 100 * served[2] / came[2],
		firstServed: (s.recovered - ends).Seconds(),
		inFlight:    float64(s.most),
	}
}
