package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// A run is one batch: a goroutine that reads the input, one for each item that
// is out, and the loop of the caller, which takes the results.
type run[In, Out any] struct {
	driver
	cfg Config[In]
	in  iter.Seq[In]
	f   func(ctx context.Context, item In) (Out, error)

	// A token is taken for each item before it is read, and given back when
	// the loop is done with its result. So there is always room in completed,
	// and those who put a result there never wait for the loop.
	room      chan struct{}
	completed chan *result[In, Out] // pointers: its buffer is made for Ahead of them
	watched   sync.WaitGroup        // the goroutine that watches Config.Stop and the context
	unwatch   chan struct{}         // ends it
	sync      *time.Timer           // nil without a log
}

type result[In, Out any] struct {
	Result[In, Out]
	turn  int64 // position among those that were not skipped
	state state
}

// aheadUnlimited is Config.Ahead for a gate without a limit: as many calls as
// take 1 s each, at 1,000 per second.
const aheadUnlimited = 1000

// mostAhead is the largest Config.Ahead: so many goroutines take some gigabytes.
const mostAhead = 1 << 20

func begin[In, Out any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) (Out, error), cfg Config[In]) *run[In, Out] {
	ahead := cfg.Ahead
	if ahead == 0 {
		if ahead = aheadUnlimited; gate.Stats().Concurrency > 0 {
			ahead = 2 * int(min(gate.Stats().Concurrency, mostAhead/2))
		}
	}
	r := &run[In, Out]{
		driver: driver{
			gate: gate, policy: cfg.Retry, paced: cfg.Paced, halt: cfg.Halt,
			tally: cmp.Or(cfg.Tally, new(Tally)), ending: cfg.Ending,
		},
		cfg: cfg, in: in, f: f,
		room:      make(chan struct{}, ahead),
		completed: make(chan *result[In, Out], ahead),
		unwatch:   make(chan struct{}),
	}
	r.driver.begin(ctx)
	select {
	case <-cfg.Stop:
		r.stop(ErrStopped, false) // before anything is read
	default:
	}
	r.watched.Go(func() {
		select {
		case <-cfg.Stop:
			r.stop(ErrStopped, false)
		case <-ctx.Done():
			r.stop(ctx.Err(), false)
		case <-r.unwatch:
		}
	})
	if cfg.Log != nil {
		r.sync = time.NewTimer(syncEvery)
		if !cfg.Log.dirty { // otherwise the header of a new log waits already
			r.sync.Stop()
		}
	}
	go r.read()
	return r
}

// read reads the input and starts a goroutine for each item. An item comes to
// the gate when the first attempt of the one before has left, so they leave in
// the order of the input, and the batch takes one place in the queue, apart
// from retries: others who call through the gate wait behind one item, not
// behind a thousand. Meanwhile the next item is read, so that an input that is
// not slower than the rate does not slow it down. If the function passes gates
// by itself it may be one for each host, and none must hold up the others.
func (r *run[In, Out]) read() {
	var workers sync.WaitGroup
	defer func() {
		if p := recover(); p != nil {
			panic(p) // of the input; the loop must not end before the program, see work
		}
		workers.Wait()
		close(r.completed)
	}()
	if !r.enter() {
		return
	}
	var times timetable
	asked := time.Now()
	before := make(chan struct{})
	close(before)
	index, turn := int64(-1), int64(0)
	for item := range r.in {
		index++
		if r.cfg.Log != nil && r.cfg.Log.skip(r.cfg.key(item)) {
			r.tally.skipped()
			if r.isStopped() {
				return
			}
			continue
		}
		interval := r.gate.Stats().Rate.Interval()
		c := r.newCall(times.next(asked, time.Now(), interval))
		res := result[In, Out]{Result: Result[In, Out]{Index: index, In: item}, turn: turn}
		turn++
		gone := c.gone
		if !r.paced {
			<-before
		}
		before = gone
		workers.Go(func() { r.work(c, res) })
		if !r.enter() {
			return
		}
		asked = time.Now()
	}
}

// enter waits for room for one more item. It reports false if the batch has ended.
func (r *run[In, Out]) enter() bool {
	if r.isStopped() {
		return false // select alone would let one more in now and then
	}
	select {
	case r.room <- struct{}{}:
		return true
	case <-r.stopped:
		return false
	}
}

// errGoexit is the error of an item whose function ended its goroutine.
var errGoexit = errors.New("batch: the function called runtime.Goexit")

// work calls the function for an item. If that ends its goroutine, as
// testing.T.FailNow does, the loop must not wait for the item forever.
func (r *run[In, Out]) work(c *call, res result[In, Out]) {
	res.Err = errGoexit
	defer func() {
		// If it panicked nobody may take the result: the loop could be over,
		// and the program end well, before the panic has ended it. As in
		// sync.WaitGroup.Go, recover is the only way to tell the two apart, and
		// what is printed still begins with the stack of the function.
		if p := recover(); p != nil {
			panic(p)
		}
		if res.Err == errGoexit {
			res.Err = fmt.Errorf("%w: %w", ErrUnfinished, errGoexit)
			r.stop(errGoexit, false)
			r.count(unfinished)
		}
		c.close()
		res.Times = c.times
		r.completed <- &res
	}()
	res.state, res.Err = r.do(c, func(ctx context.Context) (err error) {
		res.Out, err = r.f(ctx, res.In)
		return err
	})
}

// results yields what is completed, in the order that is asked for, until the
// input is over and nothing is out.
func (r *run[In, Out]) results() iter.Seq[result[In, Out]] {
	return func(yield func(result[In, Out]) bool) {
		next := int64(0)
		early := make(map[int64]result[In, Out]) // completed before their turn
		for res := range r.arrivals() {
			if !r.cfg.Ordered {
				if !yield(res) {
					return
				}
				continue
			}
			early[res.turn] = res
			for {
				res, ok := early[next]
				if !ok {
					break
				}
				delete(early, next)
				next++
				if !yield(res) {
					return
				}
			}
		}
	}
}

// arrivals yields what is completed, as it comes, and syncs the log meanwhile.
func (r *run[In, Out]) arrivals() iter.Seq[result[In, Out]] {
	return func(yield func(result[In, Out]) bool) {
		var due <-chan time.Time
		if r.sync != nil {
			due = r.sync.C
		}
		for {
			select {
			case res, ok := <-r.completed:
				if !ok || !yield(*res) {
					return
				}
			case <-due:
				r.syncLog()
			}
		}
	}
}

// done notes in the log that the loop is done with a result, and makes room
// for another item.
func (r *run[In, Out]) done(res result[In, Out]) {
	if log := r.cfg.Log; log != nil && res.state != unfinished {
		first := !log.dirty
		if err := log.record(entryOf(r.cfg.key(res.In), res.state, res.Err, res.Times)); err != nil {
			r.stop(err, false)
		} else if first {
			r.sync.Reset(syncEvery)
		}
	}
	<-r.room
}

func (r *run[In, Out]) syncLog() {
	if r.cfg.Log == nil {
		return
	}
	if err := r.cfg.Log.Sync(); err != nil {
		r.stop(err, false)
	}
}

// end cancels what is still out, as it is after a break or a panic of the
// loop, and waits until nothing is.
func (r *run[In, Out]) end() {
	r.stop(errLeft, true)
	for range r.completed {
		// until it is closed
	}
	close(r.unwatch)
	r.watched.Wait()
	if r.sync != nil {
		r.sync.Stop()
	}
}

// errLeft is seen by Config.Ending alone: nobody else is left to see it.
var errLeft = errors.New("batch: the loop was left")
