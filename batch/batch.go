package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/sluice-go/sluice"
)

// Why a batch ended early. Other reasons are the error of the context, that of
// the gate, and that of the log.
var (
	// ErrHalted: there were the failures or successes that Config.Halt asks for.
	ErrHalted = errors.New("batch: halted")

	// ErrStopped: Config.Stop was closed.
	ErrStopped = errors.New("batch: stopped")
)

// ErrUnfinished is matched by the error of an item that is neither done nor
// failed: it must be run again. Its message says why.
var ErrUnfinished = errors.New("batch: unfinished")

// Config configures a batch. Every field may be left out. A number that is out of
// range is an error before anything is read. Numbers that are only compared, as
// those of Halt, have no upper bound; one that takes memory has.
type Config[In any] struct {
	// Policy says when an item is tried again.
	Retry sluice.RetryPolicy

	// Ahead is the most items that are out at a time: read from the input and
	// not yet done with by the body of the loop. Each has a goroutine, so more
	// than 2²⁰ is an error. 0 means twice the concurrency that the gate has when
	// the batch begins, up to 2²⁰, or 1,000 if it has no limit. A gate with a
	// MaxWaiting below Ahead refuses calls.
	Ahead int

	// Ordered makes results come in the order of the input. An item that
	// takes long then holds up those behind it, Ahead of them at most.
	Ordered bool

	// Halt ends the batch after some failures or successes. The zero Halt
	// never does.
	Halt Halt

	// Stop, if not nil, ends the batch when it is closed: soon, as Halt does.
	Stop <-chan struct{}

	// Ending, if set, is called once if the batch ends early, as soon as that
	// is known, with the reason: while attempts in flight are finished, and
	// also when the loop is left. It is called by any goroutine and must not
	// block. An input that blocks needs it in order to end.
	Ending func(why error)

	// Log, if not nil, says what was done before, which is skipped, and takes
	// what is done now. A log serves one batch at a time.
	Log *Log

	// Key names an item in the log. Items with the same key are the same
	// item: when a batch is resumed and one of them is done, all are skipped.
	// It must be set if there is a Log and In is not string, whose key is the
	// string itself.
	Key func(item In) string

	// Tally, if not nil, counts what happens. It can be read meanwhile.
	Tally *Tally

	// Paced says that the function passes the gate by itself, by an HTTP
	// client for example whose transport has it as a parent. The batch then
	// does not acquire it, and does not retry: it reads the rate of the gate
	// for the times, and its concurrency for Ahead. The function must call
	// [Depart] when an attempt leaves. If it fails after the batch has ended
	// the item is unfinished, unless the error matches a [*sluice.RetryError] with
	// a reason of the item: ErrPermanent, ErrAttempts, ErrElapsed or ErrBudget.
	Paced bool
}

// check returns what is wrong with c.
func (c Config[In]) check() error {
	var zero In
	_, text := any(zero).(string)
	switch {
	case c.Ahead < 0:
		return fmt.Errorf("batch: negative Ahead %d", c.Ahead)
	case c.Ahead > mostAhead:
		return fmt.Errorf("batch: Ahead of %d: at most %d", c.Ahead, mostAhead)
	case c.Log != nil && c.Key == nil && !text:
		return fmt.Errorf("batch: a log needs a Key for items of type %T", zero)
	}
	return c.Halt.check()
}

// key returns the key of an item. Only to be asked if there is a log.
func (c Config[In]) key(item In) string {
	if c.Key != nil {
		return c.Key(item)
	}
	return any(item).(string)
}

// A Result is what became of an item.
type Result[In, Out any] struct {
	Index int64 // position in the input, from 0, those skipped included
	In    In
	Out   Out
	Err   error // nil: ok; matches ErrUnfinished: unfinished; else: failed
	Times
}

// Map calls f for each item of in through gate, with retries, and yields the
// results, as they are completed or in the order of the input. What is read
// from in is yielded, also the items that are unfinished when the batch ends
// early. Then, and only then, it yields at last an empty result with the
// reason: [ErrHalted], [ErrStopped], the error of ctx, of the gate or of the log.
// Failed items are no reason. If cfg is wrong that error is all it yields.
//
//	for r, err := range batch.Map(ctx, gate, slices.Values(urls), fetch, batch.Config[string]{}) {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// The item is noted in the log when the body of the loop has ended normally.
// If it breaks, returns or panics the item counts as unfinished there, and so
// what the body does with a result may happen twice, but is never left out.
// Leaving the loop cancels the calls in flight and waits for them. Nothing is
// leaked. The input runs in a goroutine of its own, and however the batch ends
// it is waited for: an input that blocks must give up after Config.Ending.
//
// A panic of f or in is not caught: it ends the program. Each range over
// the sequence is a batch of its own. Map panics if ctx, gate, in or f is nil.
func Map[In, Out any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) (Out, error), cfg Config[In]) iter.Seq2[Result[In, Out], error] {
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
		r.syncLog()
		if err := r.finish(); err != nil {
			yield(Result[In, Out]{}, err)
		}
	}
}

// ForEach is [Map] for a function that returns nothing but an error. It blocks
// until the batch has ended, and returns nil if each item is ok or was skipped.
// If some have failed the error matches a [*FailedError], and if the batch has
// ended early the reason that Map would yield, as well.
func ForEach[In any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) error, cfg Config[In]) error {
	if f == nil {
		panic("batch: nil function")
	}
	var why error
	var failed FailedError
	for r, err := range Map(ctx, gate, in, func(ctx context.Context, item In) (struct{}, error) {
		return struct{}{}, f(ctx, item)
	}, cfg) {
		switch {
		case err != nil:
			why = err
		case r.Err == nil:
			failed.Of++
		case !errors.Is(r.Err, ErrUnfinished):
			failed.Of++
			if failed.Failed++; failed.First == nil {
				failed.First = r.Err
			}
		}
	}
	switch {
	case failed.Failed == 0:
		return why
	case why == nil:
		return &failed
	}
	return fmt.Errorf("%w; %w", why, &failed)
}

// A FailedError says that items of a batch have failed. Which ones says the
// log, or the function itself.
type FailedError struct {
	Failed int64 // how many have
	Of     int64 // of how many that are done or have
	First  error // the error of the first of them
}

// Error returns the numbers and the first error.
func (e *FailedError) Error() string {
	return fmt.Sprintf("batch: %d of %d items failed, the first: %v", e.Failed, e.Of, e.First)
}

// Unwrap returns First.
func (e *FailedError) Unwrap() error { return e.First }
