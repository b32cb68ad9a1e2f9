package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/queue"
	"github.com/sluice-go/sluice/cmd/internal/shared"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/sluiceredis"
)

// A fleet is all jobs with the same -queue, on any machine. A nil fleet is a job alone: its methods
// then do nothing.
type fleet struct {
	o       options
	queue   *queue.Queue
	worker  *queue.Worker
	store   *sluiceredis.Store // nil without -redis
	pacer   *sluiceredis.Pacer // nil without -rate and -redis
	client  *redis.Client
	news    hosts
	text    string       // for the report
	skipped atomic.Int64 // items that were recognized
	written written
}

// Parts of how a fleet works.
const (
	// confirmTime is how long the queue may take at the end to confirm what it was told.
	confirmTime = 20 * time.Second
	// startTime is how long servers may take to answer before the job begins.
	startTime = 20 * time.Second
	// prefetch is the time for which slots of the shared rate are reserved in one round trip.
	prefetch = 50 * time.Millisecond
	// redisVariable is the environment variable with the credentials of -redis.
	redisVariable = "SLUICE_REDIS_AUTH"
)

// openFleet connects to the servers, which must be there.
func openFleet(o options) (f *fleet, err error) {
	f = &fleet{o: o}
	defer func() {
		if err != nil {
			f.close()
			f = nil
		}
	}()
	if f.queue, err = queue.Open(o.queue, f.tell); err != nil || o.dead != "" {
		return f, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if err := f.openRedis(ctx); err != nil {
		return f, fmt.Errorf("-redis: %w", err)
	}
	f.worker, err = f.queue.Work(ctx)
	return f, err
}

// openRedis connects to the Redis, if there is one.
func (f *fleet) openRedis(ctx context.Context) error {
	if f.o.redis == "" {
		return nil
	}
	u, err := cli.URL(f.o.redis, redisVariable)
	if err != nil {
		return err
	}
	f.store, f.client, err = shared.Open(u.String(), func(err error) {
		if err != nil {
			f.tell("the Redis is away; calls wait for it: " + err.Error())
		} else {
			f.tell("the Redis is back")
		}
	})
	if err != nil {
		return err
	}
	if err := f.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("no Redis answers at %s: %w", u.Host, err)
	}
	if f.o.rate != (sluice.Rate{}) {
		// What may start together after an idle time may be as late for its slots.
		late := time.Duration(f.o.burst-1) * f.o.rate.Interval()
		f.pacer, err = f.store.Pacer("batch-"+f.o.queue.Name, f.o.withBurst(f.o.rate), sluiceredis.PacerConfig{Prefetch: prefetch, MaxLateness: late})
	}
	return err
}

// tell prints what has happened to a server.
func (f *fleet) tell(text string) {
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	who, what, _ := strings.Cut(text, " ")
	f.news.say(who, what)
}

func (f *fleet) takeNews() []string {
	if f == nil {
		return nil
	}
	return f.news.takeNews()
}

// share returns the rate of the gate and what stands in its place: with -redis the pacer of all.
func (f *fleet) share(rate sluice.Rate) (sluice.Rate, []sluice.Limit) {
	if f == nil || f.pacer == nil {
		return rate, nil
	}
	return sluice.Rate{}, []sluice.Limit{{Name: "shared", Limiter: shared.Patient(f.pacer)}}
}

func (f *fleet) sharedPacer() *sluiceredis.Pacer {
	if f == nil {
		return nil
	}
	return f.pacer
}

// peers is where gates learn together, or nil.
func (f *fleet) peers() peers.Store {
	if f == nil || f.store == nil {
		return nil
	}
	return f.store
}

// items yields items until ending is closed, or the queue has none, not even with others.
func (f *fleet) items(ending <-chan struct{}, failure *atomic.Pointer[error]) iter.Seq[*queue.Item] {
	return func(yield func(*queue.Item) bool) {
		for {
			items, err := f.worker.Take(ending, f.o.jobs)
			if err != nil {
				failure.Store(&err)
			}
			if len(items) == 0 {
				return
			}
			for _, it := range items {
				if !f.recognize(it) && !yield(it) {
					return // the others are given back at the end
				}
			}
		}
	}
}

// recognize reports whether an item that was delivered again has a line already: this process, or one
// before it with the same -jsonl, was killed or lost the queue before that had heard of it. Then it
// hears it now.
func (f *fleet) recognize(it *queue.Item) bool {
	if it.Deliveries == 1 {
		return false
	}
	known, ok := f.written.has(it)
	switch {
	case !known:
		return false
	case ok:
		f.worker.Done(it)
	default:
		f.worker.Bury(it, "it failed, as its line in -jsonl says", 0)
	}
	f.skipped.Add(1)
	return true
}

// mostDeliveries is how often an item is run whose job does not live to say what came of it, as if the item
// kills it. What else the job had is delivered again, too, though nearly all of it is done soon. So it is
// a high number, as in the queues of RabbitMQ.
const mostDeliveries = 20

// tooOften returns an error if an item must not be run any more. Jobs that gave it back have said what came
// of it. If the queue cannot be asked for them, the item is run.
func (f *fleet) tooOften(ctx context.Context, it *queue.Item) error {
	if f == nil || it.Deliveries <= mostDeliveries {
		return nil
	}
	returned, err := f.worker.Returned(ctx, it)
	if silent := it.Deliveries - 1 - returned; err == nil && silent >= mostDeliveries {
		return fmt.Errorf("it was delivered %d times, and no job has said what came of it", silent)
	}
	return nil
}

// settle tells the queue what came of an item whose line was written.
func (f *fleet) settle(r batch.Result[item, output]) {
	if f == nil {
		return
	}
	it := r.In.taken
	f.written.add(it, r.Err == nil)
	if r.Err == nil {
		f.worker.Done(it)
	} else {
		f.worker.Bury(it, reason(r.Err), r.Attempts)
	}
}

// giveBack gives an unfinished item to the others.
func (f *fleet) giveBack(it *queue.Item) {
	if f != nil {
		f.worker.Return(it)
	}
}

// finish waits until the queue has confirmed what it was told. It returns an error if it did not.
func (f *fleet) finish() error {
	if f == nil {
		return nil
	}
	unconfirmed := f.worker.Close(confirmTime)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if n := f.skipped.Load(); n > 0 {
		f.text += fmt.Sprintf("%s: %d of the queue were delivered again and had their line already\n", name, n)
	}
	if left, dead, err := f.queue.Left(ctx); err == nil && left+dead > 0 {
		f.text += fmt.Sprintf("%s: the queue has %d items and %d dead letters", name, left, dead)
		if dead > 0 {
			f.text += "; -dead list shows those, -dead retry puts them back"
		}
		f.text += "\n"
	}
	if unconfirmed > 0 {
		return fmt.Errorf("the queue has not confirmed %d items that are done or failed: they may be delivered again", unconfirmed)
	}
	return nil
}

func (f *fleet) report() string {
	if f == nil {
		return ""
	}
	return f.text
}

// close closes the connections.
func (f *fleet) close() {
	if f == nil {
		return
	}
	if f.queue != nil {
		f.queue.Close()
	}
	if f.client != nil {
		f.client.Close()
	}
}

// checkFleet returns an error for flags that -queue does not go with, or that need it.
func (o options) checkFleet(given map[string]bool) error {
	if !given["queue"] {
		for _, name := range []string{"fill", "dead", "lease", "redis"} {
			if given[name] {
				return fmt.Errorf("-%s without -queue", name)
			}
		}
		return nil
	}
	for _, name := range []string{"in", "ordered", "dry-run", "log", "key", "any-config"} {
		if given[name] {
			return fmt.Errorf("-%s and -queue: give only one of them; the queue has the items, in no order, and knows which are done", name)
		}
	}
	switch {
	case o.fill != "" && o.dead != "":
		return errors.New("-fill and -dead: give only one of them")
	case o.redis != "" && o.fill+o.dead != "":
		return errors.New("-redis is for jobs that work on the queue: leave it out with -fill and -dead")
	case o.lease != 0 && (o.fill == "" || o.lease < time.Second):
		return errors.New("-lease is for -fill, and at least 1s")
	}
	return nil
}

// mostPut and mostBytes bound what is put into the queue at the same time.
const (
	mostPut   = 1000
	mostBytes = 4 << 20
)

// fill puts the items of the input into the queue, and returns the exit status.
func fill(o options, in *input, stdout, stderr *os.File) (status int, err error) {
	say := func(text string) { fmt.Fprintf(stderr, "%s: %s\n", name, text) }
	q, err := queue.Open(o.queue, say)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := q.Create(starting, o.lease); err != nil {
		return 0, err
	}
	var put, known, failed, size atomic.Int64
	show := cli.NewDisplay(name, stdout, stderr, o.quiet, fillProgress(func() string { return fmt.Sprintf("%d put", put.Load()) }))
	var texts []string
	flush := func() error {
		again, err := q.Put(ctx, texts)
		if err == nil {
			put.Add(int64(len(texts) - again))
			known.Add(int64(again))
		}
		texts, _ = texts[:0], size.Swap(0)
		return err
	}
	n := 0
	for text := range in.items(ctx.Done()) {
		n++
		if bad := q.Check(text); bad != nil {
			show.Log(fmt.Sprintf("item %d, %s failed: %v", n, cli.Plain(cli.Quote(text), cli.MostOfItem), bad))
			failed.Add(1)
			continue
		}
		texts = append(texts, text)
		if size.Add(int64(len(text))) > mostBytes || len(texts) == mostPut {
			if err = flush(); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = flush()
	}
	show.Stop()
	text := fmt.Sprintf("%d put into the queue %s", put.Load(), o.queue)
	if n := known.Load(); n > 0 {
		text += fmt.Sprintf(", %d known by their ids", n)
	}
	if n := failed.Load(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	say(text)
	if err == nil {
		err = in.err()
	}
	switch {
	case ctx.Err() != nil:
		say("interrupted: the same command puts the rest")
		return cli.ExitInterrupted, nil
	case err != nil:
		say("ended early: " + err.Error() + "; the same command puts the rest")
		return cli.ExitStopped, nil
	case failed.Load() > 0:
		return cli.ExitFailed, nil
	}
	return 0, nil
}

// fillProgress shows one line.
func fillProgress(line func() string) cli.Progress {
	return cli.Progress{Every: progressEvery, Line: line, Fades: true,
		Lines: func(int, func(string) string) []string { return []string{line()} }}
}

// deadLetters lists the dead letters, or puts them back: those with the ids that were given, or all.
func deadLetters(o options, f *fleet, stdout, stderr *os.File) (status int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	n := 0
	for l, err := range f.queue.Dead(ctx) {
		switch {
		case err != nil: // below
		case o.given != nil && !slices.Contains(o.given, l.ID):
			continue
		case o.dead == "list":
			err = out.Encode(l)
		default:
			err = f.queue.PutBack(ctx, l)
		}
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil {
			fmt.Fprintf(stderr, "%s: ended early: %v\n", name, err)
			status = cli.ExitStopped
			break
		}
		n++
	}
	what := map[string]string{"list": "", "retry": " put back"}[o.dead]
	fmt.Fprintf(stderr, "%s: %d dead letters%s\n", name, n, what)
	return status, nil
}
