package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
)

var (
	// ErrHalted is the error of a batch that [Config].Halt or [Suspend] ended.
	ErrHalted = errors.New("batch: halted")

	// ErrStopped is the error of a batch that Config.Stop ended.
	ErrStopped = errors.New("batch: stopped")

	// ErrFailed matches the error of ForEach if items have failed.
	ErrFailed = errors.New("batch: items failed")

	// ErrUnfinished matches the error of an item that has to be run again.
	ErrUnfinished = errors.New("batch: unfinished")
)

// Config configures a batch. The zero Config is valid. A number out of range is an error before
// anything is read.
type Config[In any] struct {
	// Retry is the policy for the attempts of each item.
	Retry sluice.RetryPolicy

	// ReadAhead is the maximum number of items, at most 2²⁰, that have been read from the input and
	// not yet passed the body of the loop. 0 means twice the concurrency of the gate when the batch
	// begins, or 1,000 if that is unlimited; with a Group, at least 10,000. A gate with a lower
	// MaxWaiting rejects some of their retries.
	ReadAhead int

	// Group, if set, returns the group of an item, such as the host that it calls. While other
	// groups have calls to make, a group has at most half of the concurrency of the gate, and always
	// at most twice as many goroutines, or 1,000 if that is unlimited. If a server requests too long a
	// wait, only its group ends, unfinished.
	Group func(item In) string

	// Suspend says when items are not tried for a while, and when that ends the batch.
	Suspend Suspend

	// Ordered yields results in the order of the input. A slow item then delays those after it.
	Ordered bool

	// Halt ends the batch after a number of failures or successes.
	Halt Halt

	// Stop, if not nil, ends the batch soon when it is closed.
	Stop <-chan struct{}

	// OnStop, if set, is called once with the reason, as soon as the batch ends early or the loop is
	// left, by any goroutine. It must not block.
	OnStop func(why error)

	// Log, if not nil, says which items are skipped and records the outcome of the others.
	Log *Log

	// Key names an item in the log. Items with the same key are the same item: a resumed batch
	// skips all if one is ok, see [Stats].Repeated. Key is required with a Log, except that the key
	// of a string is the string.
	Key func(item In) string

	// Tally, if not nil, counts the outcomes. It can be read at any time.
	Tally *Tally

	// ExternalGate says that the function itself passes the gate, for example by a transport whose
	// parent the gate is, retries, and calls [StartAttempt] when an attempt starts. If it fails after
	// the batch has ended, the item is unfinished, unless a [*sluice.RetryError] says ErrPermanent,
	// ErrAttempts, ErrElapsed or ErrBudget.
	ExternalGate bool
}

// check returns an error if c is invalid.
func (c Config[In]) check() error {
	var zero In
	_, text := any(zero).(string)
	switch {
	case c.ReadAhead < 0:
		return fmt.Errorf("batch: negative Ahead %d", c.ReadAhead)
	case c.ReadAhead > maxAhead:
		return fmt.Errorf("batch: Ahead of %d: at most %d", c.ReadAhead, maxAhead)
	case c.Log != nil && c.Key == nil && !text:
		return fmt.Errorf("batch: a log needs a Key for items of type %T", zero)
	}
	return c.Halt.check()
}

// key returns the key of an item, for the log.
func (c Config[In]) key(item In) string {
	if c.Key != nil {
		return c.Key(item)
	}
	return any(item).(string)
}

// A Result is the outcome of an item, and its times. The time from Intended to Sent is spent in the
// queue, the rest at the server and in backoffs. Times from Sent alone hide the calls that a
// stalled server prevents: coordinated omission (G. Tene: How NOT to Measure Latency, 2013).
type Result[In, Out any] struct {
	Index int64 // position in the input, from 0, counting skipped items
	In    In
	Out   Out
	Err   error // nil: ok; matches ErrUnfinished: unfinished; else: failed

	// Intended is when the item should have started: by the rate of the gate one interval after the
	// item before or, if the input was late or there is no rate, when it was read.
	Intended time.Time

	// Sent is when the first attempt started, zero if there was none, and Done when the last ended.
	Sent, Done time.Time

	// Attempts is the number of attempts, and Service the time they took, without the waits.
	Attempts int
	Service  time.Duration
}

// Map calls f for each item of in through gate, with retries, and yields the results of all that it
// has read and not skipped, as they complete, or in the order of the input. If the batch ends early
// it finally yields an empty result with the reason: [ErrHalted], [ErrStopped], or the error of ctx,
// the gate or the log. If cfg is invalid, it yields only that error.
//
// An item is recorded in the log when the body of the loop has ended normally, and otherwise is
// unfinished: the body may see a result twice, but never misses one. Leaving the loop cancels the
// calls in flight and waits for them, and for the input, which runs in its own goroutine: one that
// blocks must give up after Config.OnStop.
//
// A panic of f or in is not recovered. Each range over the sequence is a new batch. Map panics if
// ctx, gate, in or f is nil.
func Map[In, Out any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) (Out, error), options ...Config[In]) iter.Seq2[Result[In, Out], error] {
	cfg := option(options)
	switch {
	case ctx == nil:
		panic("batch: nil context")
	case gate == nil:
		panic("batch: nil gate")
	case in == nil:
		panic("batch: nil input")
	case f == nil:
		panic("batch: nil function")
	}
	return func(yield func(Result[In, Out], error) bool) {
		if err := cfg.check(); err != nil {
			yield(Result[In, Out]{}, err)
			return
		}
		r := begin(ctx, gate, in, f, cfg)
		defer r.end()
		for res := range r.results() {
			if !yield(res.Result, nil) {
				return
			}
			r.done(res)
		}
		r.syncLog(true)
		if err := r.finish(); err != nil {
			yield(Result[In, Out]{}, err)
		}
	}
}

// ForEach is [Map] for a function that returns only an error. It blocks until the batch has ended,
// and returns nil if every item is ok or was skipped. The error matches [ErrFailed] and the first
// error of an item if items have failed, and the one that Map would yield last if the batch has
// ended early.
func ForEach[In any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) error, options ...Config[In]) error {
	if f == nil {
		panic("batch: nil function")
	}
	var why, first error
	var ended, failed int64
	for r, err := range Map(ctx, gate, in, func(ctx context.Context, item In) (struct{}, error) {
		return struct{}{}, f(ctx, item)
	}, options...) {
		switch {
		case err != nil:
			why = err
		case r.Err == nil:
			ended++
		case !errors.Is(r.Err, ErrUnfinished):
			ended++
			if failed++; first == nil {
				first = r.Err
			}
		}
	}
	if failed > 0 {
		err := fmt.Errorf("%w: %d of %d, the first: %w", ErrFailed, failed, ended, first)
		if why == nil {
			return err
		}
		return fmt.Errorf("%w; %w", why, err)
	}
	return why
}

// option returns the only Config, or the zero one.
func option[In any](options []Config[In]) (cfg Config[In]) {
	switch len(options) {
	case 0:
		return cfg
	case 1:
		return options[0]
	}
	panic("batch: more than one Config")
}
