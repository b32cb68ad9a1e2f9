package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// configOf returns what the gate keeps to: at most so many calls in flight, one
// started per interval of the rate, and, with the burst of 1 that is the default,
// never two together. With -unknown it has no rate. With a Redis, all instances keep to that together.
func configOf(o options, redis *shared) sluice.Config {
	if redis != nil {
		return redis.configOf()
	}
	gate := sluice.Config{Concurrency: o.concurrency}
	if o.unknown {
		gate.Adaptive.Search = true // without it, all workers call in parallel until the first rejection
		return gate
	}
	gate.Rate = o.rate
	return gate
}

// newTransport returns the transport with the gate in front of the API. It retries
// requests that fail by accident, and follows Retry-After and rate-limit headers. An
// error means that the flags are invalid.
//
// This is all that a program has to write to use Sluice: it passes an http.Client with
// this transport to its API library.
func newTransport(gate sluice.Config, base http.RoundTripper) (*sluicehttp.Transport, error) {
	return sluicehttp.New(base, sluicehttp.Config{
		Gate: gate,
		Key:  func(*http.Request) string { return "items" }, // one limit, whatever the address
		// Not http.Client.Timeout, which would count the time in the queue.
		Retry: sluice.RetryPolicy{AttemptTimeout: callTimeout},
	})
}

// fetchThroughGate fetches every item of the job. The workers are as many as they
// like and know nothing of rates.
func fetchThroughGate(ctx context.Context, gate *sluicehttp.Transport, j *job) {
	// When the job is stopped, by Ctrl-C or a full disk, the gate is closed.
	// Calls in flight are finished; whoever waits, for a permit or for the
	// next attempt, gets limits.ErrClosed.
	defer context.AfterFunc(j.stop, gate.Close)()

	ids := j.ids()
	var pool sync.WaitGroup
	for range j.workers {
		pool.Go(func() {
			for id := range ids {
				ctx, report := sluicehttp.WithReport(ctx)
				body, err := j.client.get(ctx, id)
				if why := report.Last().Why; why != nil && !errors.Is(err, why) {
					err = fmt.Errorf("%w: %w", err, why) // the last response, and why there is no other
				}
				away := (*awayError)(nil)
				if errors.As(err, &away) {
					err = away // which says it all
				}
				j.finish(id, body, err)
				if away != nil {
					j.stopNow() // the next items would be lost, too
				}
			}
		})
	}
	pool.Wait()
}

// learnedBy returns the estimate of the gate, nil if nothing.
func learnedBy(gate *sluicehttp.Transport) (learned *sluice.Learned) {
	gate.Stats(func(_ string, s sluicehttp.Stats) bool {
		learned = s.Learned
		return false // there is only one
	})
	return learned
}

// gateNow is the state of the gate run for the progress line.
func gateNow(gate *sluicehttp.Transport, j *job) moment {
	m := moment{done: j.fetched.Load(), lost: j.lost.Load()}
	gate.Stats(func(_ string, s sluicehttp.Stats) bool {
		m.inFlight = s.InFlight
		m.waiting = s.Waiting + s.Pacing
		m.sent = int64(s.Admitted)
		m.pausedUntil = s.PausedUntil
		return false // there is only one
	})
	return m
}
