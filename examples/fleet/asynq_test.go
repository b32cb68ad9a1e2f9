package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// asynqRole makes the test binary a worker of asynq, at that address.
const asynqRole = "FLEET_ASYNQ"

// TestAsynq_ItemsOfAKilledWorker measures how long the items of a killed worker stay away with
// asynq, which is why the queue is another one: see docs/decisions.md.
func TestAsynq_ItemsOfAKilledWorker(t *testing.T) {
	if os.Getenv("SLUICE_FULL") != "long" {
		t.Skip("takes two minutes: SLUICE_FULL=long runs it")
	}
	redis, err := newRedisServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if redis == nil {
		t.Skip("no redis-server in the PATH")
	}
	if err := redis.start(); err != nil {
		t.Fatal(err)
	}
	defer redis.kill()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: redis.addr})
	defer client.Close()
	const n = 64
	for range n {
		if _, err := client.Enqueue(asynq.NewTask("item", nil), asynq.MaxRetry(100)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(asynqRole, redis.addr)
	taken := func() (w *child, lines *bufio.Scanner) {
		out, log := io.Pipe()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if w, err = start(log, os.Stderr, self); err != nil {
			t.Fatal(err)
		}
		return w, bufio.NewScanner(out)
	}
	victim, lines := taken()
	for range n {
		lines.Scan() // it has all items
	}
	survivor, lines := taken()
	time.Sleep(time.Second) // it looks for items of dead workers when it starts, and then every minute
	killed := time.Now()
	victim.kill()
	for i := range n {
		lines.Scan()
		if i == 0 || i == n-1 {
			t.Logf("item %d is with the other worker %.1f s after the kill", i+1, time.Since(killed).Seconds())
		}
	}
	survivor.kill()
}

// asynqWorker takes items and never ends one. It checks for items as often as asynq can.
func asynqWorker(addr string) {
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{
		Concurrency: 64, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 100 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	stop, release := signal.NotifyContext(context.Background(), os.Interrupt)
	defer release()
	err := s.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		_, _ = fmt.Println("taken")
		<-ctx.Done()
		return ctx.Err()
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
	<-stop.Done()
}
