package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-go/sluice/sluicehttp"
)

// item is a message of the queue. Its id in the queue is its idempotency key at the
// API: whatever is delivered or sent twice is recognized by it.
type item struct {
	ID int `json:"id"`
}

// worker takes items from the queue, and calls the API for each.
type worker struct {
	options
	items  jetstream.Consumer
	client *http.Client

	mu  sync.Mutex
	log io.Writer // a line for each item that is taken or done
}

// runWorker works until the process gets a signal.
func runWorker(o options, log io.Writer) error {
	stop, release := untilSignal()
	defer release()
	client := newRedis(o.redis)
	defer client.Close()
	transport, err := newTransport(o, client)
	if err != nil {
		return err
	}
	queue, err := openQueue(o)
	if err != nil {
		return err
	}
	defer queue.close()
	w := &worker{options: o, client: &http.Client{Transport: transport}, log: log}
	if w.items, err = queue.await(stop); err != nil {
		return nil // it was told to end
	}
	// At the end calls in flight finish, and those that wait fail with limits.ErrClosed.
	defer context.AfterFunc(stop, transport.Close)()
	var pool sync.WaitGroup
	for range o.goroutines {
		pool.Go(func() {
			for stop.Err() == nil {
				w.next(stop)
			}
		})
	}
	pool.Wait()
	return queue.flush()
}

// next waits for an item, and works on it.
func (w *worker) next(stop context.Context) {
	// Each goroutine asks for one item, so no item waits in a buffer while its lease
	// passes. The heartbeat notices a queue that was restarted.
	msg, err := w.items.Next(jetstream.FetchContext(stop), jetstream.FetchHeartbeat(500*time.Millisecond))
	if err != nil {
		if !errors.Is(err, jetstream.ErrNoHeartbeat) {
			pause(stop, 100*time.Millisecond)
		}
		return
	}
	var it item
	if err := json.Unmarshal(msg.Data(), &it); err != nil {
		_ = msg.TermWithReason("not an item")
		return
	}
	w.note("take", it)
	done := keep(msg, w.lease)
	again, err := w.call(it, msg.Headers().Get(jetstream.MsgIDHeader))
	done()
	// An answer to the queue that gets lost costs another delivery, not the item.
	switch {
	case err == nil:
		w.note("done", it)
		_ = msg.Ack()
	case stop.Err() != nil:
		_ = msg.Nak() // another worker may have it immediately
	default:
		_ = msg.NakWithDelay(again)
	}
}

// keep renews the lease of an item, however long it has to wait for the limit, until
// the returned function is called or this process ends. After that call nothing is renewed.
func keep(msg jetstream.Msg, lease time.Duration) (done func()) {
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = msg.InProgress()
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); renewing.Wait() }
}

// call calls the API. It knows nothing of limits, queues and retries. If it fails, again
// is when to try again.
func (w *worker) call(it item, key string) (again time.Duration, err error) {
	ctx, report := sluicehttp.WithReport(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/items/%d", w.url, it.ID), strings.NewReader("{}"))
	if err != nil {
		return time.Minute, err
	}
	if w.keys {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := w.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
	}
	// The transport has retried. What still fails returns to the queue: until the server
	// wants it again, if it said so.
	return max(time.Second, time.Until(report.Last().RetryAt)), err
}

// note writes what happens to an item, for those who started this worker.
func (w *worker) note(what string, it item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(w.log, what, it.ID)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
