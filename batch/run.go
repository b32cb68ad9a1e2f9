package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-go/sluice"
)

// A run is one batch: a goroutine that reads the input, one for each item that
// is out, and the loop of the caller, which takes the results.
type run[In, Out any] struct {
	driver
	cfg Config[In]
	in  iter.Seq[In]
	f   func(ctx context.Context, item In) (Out, error)

	// Each item takes a token before it is read, and the loop returns it with the
	// result. So completed always has room and workers never wait for the loop.
	room      chan struct{}
	completed chan *result[In, Out] // pointers, because its buffer is made for Ahead of them
	tasks     errgroup.Group        // read and watch
	pending   sync.WaitGroup        // items that were read and have not started
	workers   errgroup.Group
	over      chan struct{} // ends watch
	sync      *time.Timer   // nil without a log
	lessons   lessons
}

type result[In, Out any] struct {
	Result[In, Out]
	turn  int64 // position among the items that were not skipped
	state state
	times times
}

// aheadUnlimited is the default of Config.ReadAhead for a gate without a limit: the calls in
// flight at 1,000 per second that take 1 s each.
const aheadUnlimited = 1000

// maxAhead is the largest Config.ReadAhead: that many goroutines take some gigabytes.
const maxAhead = 1 << 20

func begin[In, Out any](ctx context.Context, gate *sluice.Gate, in iter.Seq[In], f func(ctx context.Context, item In) (Out, error), cfg Config[In]) *run[In, Out] {
	concurrency := int(min(gate.Stats().Concurrency, maxAhead/2))
	ahead := cfg.ReadAhead
	if ahead == 0 {
		if ahead = aheadUnlimited; concurrency > 0 {
			ahead = 2 * concurrency
		}
		if cfg.Group != nil {
			ahead = max(ahead, aheadOfGroups)
		}
	}
	r := &run[In, Out]{
		driver: driver{
			gate: gate, policy: cfg.Retry, paced: cfg.ExternalGate, halt: cfg.Halt,
			tally: cmp.Or(cfg.Tally, new(Tally)), ending: cfg.OnStop,
			grouped: cfg.Group != nil,
			items:   newScheduler(cfg.Suspend, cfg.Group != nil, cfg.ExternalGate, concurrency, ahead),
		},
		cfg: cfg, in: in, f: f,
		room:      make(chan struct{}, ahead),
		completed: make(chan *result[In, Out], ahead),
		over:      make(chan struct{}),
	}
	r.driver.begin(ctx)
	select {
	case <-cfg.Stop:
		r.stop(ErrStopped, false) // before anything is read
	default:
	}
	r.recall()
	r.tasks.Go(r.watch)
	if cfg.Log != nil {
		r.sync = time.NewTimer(syncEvery)
		if !cfg.Log.dirty { // otherwise the header of a new log is already waiting
			r.sync.Stop()
		}
	}
	r.tasks.Go(r.read)
	return r
}

// watch ends the batch when Config.Stop is closed or the context is done.
func (r *run[In, Out]) watch() error {
	select {
	case <-r.cfg.Stop:
		r.stop(ErrStopped, false)
	case <-r.parent.Done():
		r.stop(r.parent.Err(), false)
	case <-r.over:
	}
	return nil
}

// read reads the input and adds each item to the scheduler. Without a Config.Group it
// reads on when the item has started, so that no more is read than needed.
func (r *run[In, Out]) read() error {
	defer func() {
		if p := recover(); p != nil {
			panic(p) // of the input; the loop must not end before the program, see work
		}
		r.pending.Wait()
		_ = r.workers.Wait() // the errors are in the results
		close(r.completed)
	}()
	if !r.waitForRoom() {
		return nil
	}
	var times timetable
	asked := time.Now()
	index, turn := int64(-1), int64(0)
	for item := range r.in {
		index++
		if r.skip(item) {
			if r.isStopped() {
				return nil
			}
			continue
		}
		gate := r.gate.Stats()
		res := &result[In, Out]{Result: Result[In, Out]{Index: index, In: item}, turn: turn}
		turn++
		started := r.add(res, times.next(asked, time.Now(), gate.Rate.Interval()), gate)
		if r.cfg.Group == nil {
			<-started
		}
		if !r.waitForRoom() {
			return nil
		}
		asked = time.Now()
	}
	return nil
}

// skip reports whether nothing is left to do for an item, and counts it then.
func (r *run[In, Out]) skip(item In) bool {
	if r.cfg.Log == nil {
		return false
	}
	skip, repeated := r.cfg.Log.skip(r.cfg.key(item))
	if skip {
		r.tally.skipped(repeated)
	}
	return skip
}

// add adds an item that was read, and returns a channel that is closed when it starts.
func (r *run[In, Out]) add(res *result[In, Out], intended time.Time, gate sluice.Stats) (started chan struct{}) {
	started = make(chan struct{})
	group := ""
	if r.grouped {
		group = r.cfg.Group(res.In)
	}
	r.pending.Add(1)
	p := &place{index: res.Index}
	p.start = func(now time.Time) { // with the mutex held
		if r.grouped && gate.Rate.Interval() == 0 {
			intended = now // it was read long before there was a place for it
		}
		c := r.newCall(p, intended)
		r.workers.Go(func() error { return r.work(c, res) })
		close(started)
		r.pending.Done()
	}
	r.driver.add(group, p, int(min(gate.Concurrency, maxAhead/2)))
	return started
}

// waitForRoom takes a token for another item. It returns false if the batch has ended.
func (r *run[In, Out]) waitForRoom() bool {
	if r.isStopped() {
		return false // the select below picks at random
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

// work calls the function for an item. If the function ends its goroutine, as
// testing.T.FailNow does, there is a result all the same, for which the loop waits.
func (r *run[In, Out]) work(c *call, res *result[In, Out]) error {
	res.Err = errGoexit
	defer func() {
		// After a panic there must be no result: the loop could end, and the
		// program exit with success, before the panic ends it. As in
		// sync.WaitGroup.Go, recover is the only way to distinguish a panic from
		// Goexit, and the output still begins with the stack of the function.
		if p := recover(); p != nil {
			panic(p)
		}
		if res.Err == errGoexit {
			res.Err = fmt.Errorf("%w: %w", ErrUnfinished, errGoexit)
			r.stop(errGoexit, false)
			r.count(unfinished, c, res.Err)
		}
		c.close()
		res.times = c.times
		res.Intended, res.Sent, res.Done = c.times.Intended, c.times.Sent, c.times.Done
		res.Attempts, res.Service = c.times.Attempts, c.times.Service
		r.completed <- res
	}()
	res.state, res.Err = r.do(c, func(ctx context.Context) (err error) {
		res.Out, err = r.f(ctx, res.In)
		return err
	})
	return res.Err
}

// results yields results, ordered if Config.Ordered is set, until the input has ended and
// no item is in progress.
func (r *run[In, Out]) results() iter.Seq[result[In, Out]] {
	return func(yield func(result[In, Out]) bool) {
		next := int64(0)
		early := make(map[int64]result[In, Out]) // results before their turn
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

// arrivals yields results as they complete, and syncs the log at the same time.
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
				r.syncLog(false)
			}
		}
	}
}

// done records in the log that the loop is done with a result, and makes room for another
// item.
func (r *run[In, Out]) done(res result[In, Out]) {
	if log := r.cfg.Log; log != nil && res.state != unfinished {
		first := !log.dirty
		if err := log.record(entryOf(r.cfg.key(res.In), res.state, res.Err, res.times)); err != nil {
			r.stop(err, false)
		} else if first {
			r.sync.Reset(syncEvery)
		}
	}
	<-r.room
}

// syncLog writes the remaining lines, and waits for the disk. end says that the batch has
// ended.
func (r *run[In, Out]) syncLog(end bool) {
	if r.cfg.Log == nil {
		return
	}
	r.note(end)
	if err := r.cfg.Log.sync(); err != nil {
		r.stop(err, false)
	}
}

// end cancels the items in progress, of which there are some after a break or a panic of
// the loop, and waits for them.
func (r *run[In, Out]) end() {
	r.stop(errLeft, true)
	for range r.completed {
		// until it is closed
	}
	close(r.over)
	_ = r.tasks.Wait() // watch and read return no error
	r.probe.Stop()
	if r.sync != nil {
		r.sync.Stop()
	}
}

// errLeft is passed to Config.OnStop if the loop was left.
var errLeft = errors.New("batch: the loop was left")
