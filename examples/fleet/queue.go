package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience is the time that a queue or a Redis may take to start.
const patience = 10 * time.Second

// queue is a JetStream stream of items.
type queue struct {
	options
	conn *nats.Conn
	js   jetstream.JetStream
}

// openQueue connects to the queue, and does so again and again while it is unavailable.
func openQueue(o options) (*queue, error) {
	conn, err := nats.Connect(o.nats, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what it would log is also returned
	if err != nil {
		return nil, fmt.Errorf("the queue at %s: %w", o.nats, err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &queue{options: o, conn: conn, js: js}, nil
}

// create makes the stream. An item that is done is deleted from it.
func (q *queue) create(ctx context.Context) error {
	_, err := q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: q.name, Subjects: []string{q.name}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("making the queue: %w", err)
	}
	_, err = q.consumer(ctx)
	return err
}

// consumer returns what all workers read from. If a worker gives no sign of life for a
// lease, its items are with others: a tenth of the lease is for delivering them.
func (q *queue) consumer(ctx context.Context) (jetstream.Consumer, error) {
	return q.js.CreateOrUpdateConsumer(ctx, q.name, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.lease - q.lease/10,
		MaxAckPending: -1, MaxWaiting: 100_000,
	})
}

// await is consumer, but waits for a queue that is unavailable.
func (q *queue) await(ctx context.Context) (jetstream.Consumer, error) {
	for said := false; ; said = true {
		// A queue that is killed does not answer what it was asked.
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		c, err := q.consumer(bounded)
		cancel()
		if err == nil || ctx.Err() != nil {
			return c, ctx.Err()
		}
		if !said {
			fmt.Fprintf(os.Stderr, messages+"waiting for the queue at %s: %v\n", q.nats, err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// fill puts the items 0 to n-1 into the queue. The id of a message makes it safe to put
// it twice: the second one is dropped.
func (q *queue) fill(ctx context.Context, n int) error {
	puts := make([]jetstream.PubAckFuture, n)
	for id := range n {
		data, err := json.Marshal(item{ID: id})
		if err != nil {
			return err
		}
		puts[id], err = q.js.PublishAsync(q.name, data, jetstream.WithMsgID(fmt.Sprintf("%s-%d", q.name, id)), jetstream.WithStallWait(patience))
		if err != nil {
			return fmt.Errorf("item %d: %w", id, err)
		}
	}
	for id, put := range puts {
		select {
		case <-put.Ok():
		case err := <-put.Err():
			return fmt.Errorf("item %d: %w", id, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// left returns the number of items that are not done.
func (q *queue) left(ctx context.Context) (int, error) {
	c, err := q.js.Consumer(ctx, q.name, "workers")
	if err != nil {
		return 0, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.NumPending) + info.NumAckPending, nil
}

// remove deletes the stream.
func (q *queue) remove(ctx context.Context) error { return q.js.DeleteStream(ctx, q.name) }

// flush waits until the queue has what was sent to it.
func (q *queue) flush() error { return q.conn.FlushTimeout(time.Second) }

func (q *queue) close() { q.conn.Close() }

// runQueue is a NATS server with JetStream, until the process gets a signal.
func runQueue(o options) error {
	stop, release := untilSignal()
	defer release()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: o.port, JetStream: true, StoreDir: o.dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	<-stop.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
