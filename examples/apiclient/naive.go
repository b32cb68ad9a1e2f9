package main

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"
)

// fetchNaively fetches every item of the job the way a first draft does: as
// many workers, and whatever is rejected is tried again immediately. It is here to
// be compared with, not to be copied.
//
// It is stopped after limit, because it would not end on its own.
// What it has not fetched by then is treated as lost in its column and nowhere
// else: the exit status is about the gate.
func fetchNaively(ctx context.Context, j *job, limit time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(limit, func() { j.stopNow(); cancel() }).Stop()

	ids := j.ids()
	var pool sync.WaitGroup
	for range j.workers {
		pool.Go(func() {
			for id := range ids {
				body, err := j.client.get(ctx, id)
				for tryAgain(err) && j.stop.Err() == nil {
					body, err = j.client.get(ctx, id)
				}
				if tryAgain(err) {
					err = context.Cause(j.stop) // that, not the response, is why it gave up
				}
				j.finish(id, body, err)
			}
		})
	}
	pool.Wait()
}

// tryAgain reports whether the naive pool takes a failure for one that passes:
// 429, 503 and everything the network does.
func tryAgain(err error) bool {
	if err == nil || errors.Is(err, errTooLong) {
		return false
	}
	var answer *statusError
	if !errors.As(err, &answer) {
		return true
	}
	return answer.status == http.StatusTooManyRequests || answer.status == http.StatusServiceUnavailable
}

// naiveLimit is the time the naive pool gets: three times the longer of what
// the rate allows and what the gate took, which may have been delayed by the
// concurrency or the network, and something to spare for small runs.
func naiveLimit(ideal, gate time.Duration) time.Duration {
	longer := max(ideal, gate)
	if longer > (math.MaxInt64-10*time.Second)/3 {
		return math.MaxInt64
	}
	return 3*longer + 10*time.Second
}

// naiveNow is the state of the naive run for the progress line. Nothing waits
// in it: whoever is not in flight is about to be.
func naiveNow(j *job) moment {
	inFlight, sofar := j.client.meter.now()
	return moment{
		done:      j.fetched.Load(),
		lost:      j.lost.Load(),
		inFlight:  inFlight,
		sent:      sofar.attempts,
		throttled: sofar.throttled,
	}
}
