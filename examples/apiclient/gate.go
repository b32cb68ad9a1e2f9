package main

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/sluice-go/sluice"
)

// newGate returns the gate in front of the API: at most so many calls in
// flight, one started per interval of the rate, and, with the burst of 1 that
// is the default, never two at once. The error is about the flags.
func newGate(o options) (*sluice.Gate, error) {
	cfg := sluice.Config{
		Name:        "items",
		Concurrency: o.concurrency,
		Rate:        o.rate,
	}
	if o.url == "" {
		// A busy machine wakes callers late. The built-in server has a bucket
		// of 5 and so forgives calls that come four intervals early; one of
		// them may be used to make up for such delays, and three are left for
		// those on the way. Of another server that much is not known.
		cfg.CatchUp = o.rate.Interval()
	}
	return sluice.New(cfg)
}

// fetchThroughGate fetches every item of the job. This function and judge are
// all that a program has to write to use Sluice: the workers are as many as
// they like and know nothing of rates.
func fetchThroughGate(ctx context.Context, gate *sluice.Gate, j *job) {
	// When the job is stopped, by Ctrl-C or a full disk, the gate is closed.
	// Calls in flight are finished; whoever waits, for a permit or for the
	// next attempt, gets sluice.ErrClosed.
	defer context.AfterFunc(j.stop, gate.Close)()

	ids := j.ids()
	var pool sync.WaitGroup
	for range j.workers {
		pool.Go(func() {
			for id := range ids {
				body, err := sluice.Call(ctx, gate, sluice.Policy{}, func(ctx context.Context) ([]byte, error) {
					body, err := j.client.get(ctx, id)
					return body, judge(err)
				})
				j.finish(id, body, err)
			}
		})
	}
	pool.Wait()
}

// judge says what a failed attempt means to the gate. An error it returns as
// it is will be tried again after a pause that is the policy's to choose: a
// network error, a 5xx. No failure, nil, stays nil.
func judge(err error) error {
	if errors.Is(err, errTooLong) {
		return sluice.Permanent(err) // it will be as long next time
	}
	var answer *statusError
	if !errors.As(err, &answer) {
		return err
	}
	switch told := answer.wait > 0 || !answer.until.IsZero(); {
	case answer.status == http.StatusTooManyRequests, answer.status == http.StatusServiceUnavailable && told:
		// The server asks not to be called for a while. That goes for everyone
		// who calls it, so it pauses the whole gate and not just this worker.
		if !answer.until.IsZero() {
			return sluice.RetryAt(err, answer.until)
		}
		return sluice.RetryAfter(err, answer.wait) // 0: it did not say for how long
	case answer.status >= 500:
		return err
	}
	return sluice.Permanent(err) // the request is wrong, and will be next time
}

// gateNow is the state of the gate run for the progress line.
func gateNow(gate *sluice.Gate, j *job) moment {
	s := gate.Stats()
	return moment{
		done:        j.fetched.Load(),
		lost:        j.lost.Load(),
		inFlight:    s.InFlight,
		waiting:     s.Waiting + s.Pacing,
		sent:        int64(s.Granted),
		pausedUntil: s.PausedUntil,
	}
}
