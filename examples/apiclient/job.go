package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-go/sluice/limits"
)

// job is one run over the items, by whichever pool.
type job struct {
	n       int
	share   share
	workers int
	client  *client
	out     *sink // nil: the items are fetched, but not kept

	// stop ends when no further call is to be started. It is not the context
	// of the calls: those in flight may finish.
	stop    context.Context
	stopNow context.CancelFunc

	fetched atomic.Int64
	lost    atomic.Int64 // called for and given up, or fetched and not written

	mu      sync.Mutex
	losses  []error // why items were lost: the first few
	away    bool    // one of them is an awayError
	unnamed int64   // losses beyond those
}

// maxLosses limits the number of errors that are printed: a dead server makes a
// thousand of the same.
const maxLosses = 5

// newJob returns a job that stops when stop does. release frees what it holds.
func newJob(o options, stop context.Context, c *client, out *sink) (j *job, release func()) {
	// More workers than items would have nothing to do.
	j = &job{n: o.n, share: o.share, workers: min(o.workers, o.n), client: c, out: out}
	j.stop, j.stopNow = context.WithCancel(stop)
	return j, j.stopNow
}

// ids hands out 0 to n-1, those of the share, each once, and ends early when the job is stopped.
func (j *job) ids() <-chan int {
	ids := make(chan int)
	go func() {
		defer close(ids)
		for id := range j.n {
			if !j.share.has(id) {
				continue
			}
			if j.stop.Err() != nil {
				return // select alone would hand out one more now and then
			}
			select {
			case ids <- id:
			case <-j.stop.Done():
				return
			}
		}
	}()
	return ids
}

// finish takes an item, or the reason why there is none.
func (j *job) finish(id int, body []byte, err error) {
	if err != nil {
		j.lost.Add(1)
		j.explain(fmt.Errorf("item %d: %w", id, err))
		return
	}
	if j.out != nil && j.out.write(id, body) != nil {
		// Fetching on would use up the API for nothing. The sink keeps the
		// error and counts what it cost.
		j.lost.Add(1)
		j.stopNow()
		return
	}
	j.fetched.Add(1)
}

// explain keeps the reason of a loss. That of an item given up because of a
// stop is the stop, which the user knows of; the table counts those items.
func (j *job) explain(err error) {
	if j.stop.Err() != nil && (errors.Is(err, limits.ErrClosed) || errors.Is(err, context.Canceled)) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	away := (*awayError)(nil)
	if errors.As(err, &away) && j.away {
		j.unnamed++ // the same once more
		return
	}
	j.away = j.away || away != nil
	if len(j.losses) < maxLosses {
		j.losses = append(j.losses, err)
		return
	}
	j.unnamed++
}
