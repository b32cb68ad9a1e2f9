package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// An Item is one that a worker has taken. Its lease is renewed until the queue has confirmed what the
// worker said about it.
type Item struct {
	Text       string
	ID         string // what was put twice has the same
	Seq        int64  // of what was put: after a dead letter was put back, it is another one
	Deliveries int    // how often it was delivered, this time included
	Queue      string // when the queue was made: numbers begin again with another one

	msg     jetstream.Msg // of its last delivery; guarded by the mutex of the worker, as is settled
	settled bool          // it is done, or failed
}

// A Worker takes items from a queue. It is safe for use by multiple goroutines.
type Worker struct {
	*Queue
	Made      string // the queue, see Item.Queue
	Confirmed int64  // when the work began, all items up to this Seq were

	consumer jetstream.Consumer
	ended    context.Context // at the end of Close
	end      context.CancelFunc
	settling sync.WaitGroup
	renewing sync.WaitGroup
	failed   atomic.Pointer[error] // the queue can never confirm some item

	mu       sync.Mutex
	held     map[int64]*Item // by their Seq
	returned []int64         // the Seq of each item that was returned
}

// Work begins to work on the queue, which must be there.
func (q *Queue) Work(ctx context.Context) (*Worker, error) {
	s, err := q.stream(ctx)
	if err != nil {
		return nil, err
	}
	c, err := q.js.Consumer(ctx, q.at.Name, consumerName)
	if err != nil {
		return nil, q.explain(err)
	}
	w := &Worker{
		Queue: q, consumer: c, held: make(map[int64]*Item),
		Made: s.CachedInfo().Created.UTC().Format(time.RFC3339Nano), Confirmed: int64(c.CachedInfo().AckFloor.Stream),
	}
	w.ended, w.end = context.WithCancel(context.Background())
	w.renewing.Go(func() { w.renew(c.CachedInfo().Config.AckWait / 3) })
	return w, nil
}

// renew renews the leases, as often as that.
func (w *Worker) renew(every time.Duration) {
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, msg := range w.messages() {
				_ = msg.InProgress()
			}
		case <-w.ended.Done():
			return
		}
	}
}

// messages returns the messages of the items that the worker has.
func (w *Worker) messages() (all []jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.held {
		all = append(all, it.msg)
	}
	return all
}

// message returns the message of an item.
func (w *Worker) message(it *Item) jetstream.Msg {
	w.mu.Lock()
	defer w.mu.Unlock()
	return it.msg
}

// Take waits for items, and returns so many that the worker has at most as many as that, but at least
// one. It returns none at the end: when all items are done, by whichever worker, or when stop is
// closed. It waits for an unavailable server.
func (w *Worker) Take(stop <-chan struct{}, most int) ([]*Item, error) {
	ctx, cancel := context.WithCancel(w.ended)
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		if failed := w.failed.Load(); failed != nil {
			return nil, *failed
		}
		items := w.fetch(max(1, most-len(w.messages())))
		if len(items) > 0 {
			return items, nil
		}
		info, err := w.info(ctx)
		switch {
		case w.conn.IsClosed():
			w.end()
			return nil, w.explain(cmp.Or(w.conn.LastError(), err))
		case w.over(err):
			w.end() // it hears nothing any more
			return nil, w.explain(err)
		case err == nil && info.NumPending == 0 && info.NumAckPending == 0:
			w.forget(ctx)
			return nil, nil
		}
		pause(ctx, again)
	}
	return nil, nil
}

// fetch takes up to n items that are there. What an unavailable server would say is asked by info.
func (w *Worker) fetch(n int) (items []*Item) {
	if !w.conn.IsConnected() {
		return nil // the request would be sent when the connection is back, and nobody would be waiting for its items
	}
	batch, err := w.consumer.FetchNoWait(n)
	if err != nil {
		return nil
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			continue // it was no item of a queue
		}
		it := &Item{Text: string(msg.Data()), ID: msg.Headers().Get(headerID), Seq: int64(meta.Sequence.Stream), Deliveries: int(meta.NumDelivered), Queue: w.Made, msg: msg}
		if w.hold(it) {
			items = append(items, it)
		}
	}
	return items
}

// hold adds an item. It returns false if the worker has it already, and has been stopped for longer
// than its lease.
func (w *Worker) hold(it *Item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.held[it.Seq]; old != nil {
		old.msg = it.msg
		return false
	}
	w.held[it.Seq] = it
	return true
}

func (w *Worker) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return w.consumer.Info(ctx)
}

// Done says that an item is done: it leaves the queue.
func (w *Worker) Done(it *Item) { w.settle(it, nil) }

// Bury says that an item failed for good: it becomes a dead letter.
func (w *Worker) Bury(it *Item, why string, attempts int) {
	w.settle(it, &Letter{Error: why, Attempts: attempts, At: time.Now()})
}

// settle tells the queue about an item, in the background, until it confirms that, or never will: then
// Take fails.
func (w *Worker) settle(it *Item, l *Letter) {
	w.mu.Lock()
	it.settled = true
	w.mu.Unlock()
	w.settling.Go(func() {
		for w.ended.Err() == nil {
			ctx, cancel := context.WithTimeout(w.ended, answerTime)
			var err error
			if l != nil {
				err = w.bury(ctx, it, *l)
			}
			if err == nil {
				err = w.message(it).DoubleAck(ctx)
			}
			cancel()
			if err == nil {
				w.drop(it)
				return
			}
			if errors.Is(err, nats.ErrMaxPayload) || isFinal(err) || w.forbidden() {
				err = w.explain(err)
				w.failed.CompareAndSwap(nil, &err)
				return // it stays held, and is not confirmed
			}
			pause(w.ended, again)
		}
	})
}

// Return gives an item back: others may have it immediately.
func (w *Worker) Return(it *Item) {
	_ = w.message(it).Nak() // or its lease ends
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = append(w.returned, it.Seq)
	delete(w.held, it.Seq)
}

// The server counts deliveries, and does not distinguish an item that was returned from one whose job
// was killed. So each worker publishes the items that it returned, in one message, which stays until the queue
// has no items. It is not confirmed: if it is lost, the deliveries look like those of a killed job.

// Returned returns how often an item was returned, by workers that have said so in Close.
func (w *Worker) Returned(ctx context.Context, it *Item) (times int, err error) {
	s, err := w.stream(ctx)
	for seq := uint64(1); err == nil; seq++ {
		var raw *jetstream.RawStreamMsg
		if raw, err = s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(w.back())); err != nil {
			break
		}
		seq = raw.Sequence
		var all []int64
		_ = json.Unmarshal(raw.Data, &all) // it is a worker's
		for _, returned := range all {
			if returned == it.Seq {
				times++
			}
		}
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = nil
	}
	return times, w.explain(err)
}

// forget deletes the messages about returned items from a queue that has no items.
func (w *Worker) forget(ctx context.Context) {
	if s, err := w.stream(ctx); err == nil {
		_ = s.Purge(ctx, jetstream.WithPurgeSubject(w.back())) // or the next job does it
	}
}

func (w *Worker) drop(it *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, it.Seq)
}

// Close waits up to patience until the queue has confirmed what it was told, and returns the other items.
// It reports the number of done or failed items that it did not confirm.
func (w *Worker) Close(patience time.Duration) (unconfirmed int) {
	settled := make(chan struct{})
	go func() { w.settling.Wait(); close(settled) }()
	select {
	case <-settled:
	case <-time.After(patience):
	}
	w.end()
	w.renewing.Wait()
	<-settled
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.held {
		if it.settled {
			unconfirmed++
			continue // its lease ends: the queue may have heard it all the same
		}
		w.returned = append(w.returned, it.Seq)
		_ = it.msg.Nak()
	}
	if text, err := json.Marshal(w.returned); err == nil && len(w.returned) > 0 {
		_ = w.conn.Publish(w.back(), text)
	}
	return unconfirmed
}
