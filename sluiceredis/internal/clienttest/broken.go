package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// broken tests the results of calls when the server or the way to it breaks. All of it runs in
// parallel, each on its own server.
func broken(t *testing.T, lib Library) {
	for name, test := range map[string]func(t *testing.T, lib Library){
		"scripts forgotten":     reloads,
		"nothing twice":         nothingTwice,
		"deadlines":             deadlines,
		"connection lost":       connectionLost,
		"nobody listens":        nobodyListens,
		"nobody answers":        nobodyAnswers,
		"errors of the server":  serverErrors,
		"network under load":    brokenNetwork,
		"half-closed, load":     halfClosed,
		"server under load":     misbehaves,
		"limits refused":        refuses,
		"limits, server killed": killed,
		"credentials changed":   credentials,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lib)
		})
	}
}

// Somebody accepts connections and never says anything: callers are told when their time is up, or
// the store's.
func nobodyAnswers(t *testing.T, lib Library) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := lib.Single(t, listener.Addr().String(), 0)
	l := bucket(t, must[*sluiceredis.Store](t)(sluiceredis.New(c, sluiceredis.Config{Timeout: 50 * ms})))
	ctx, cancel := context.WithTimeout(bg, 20*ms)
	defer cancel()
	for _, c := range []context.Context{ctx, bg} {
		if res, err := l.Take(c, "k", 1); !errors.Is(err, context.DeadlineExceeded) || res.Allowed() {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// calls returns n calls that count on key.
func calls(n int, key string) []sluiceredis.ScriptCall {
	var list []sluiceredis.ScriptCall
	for range n {
		list = append(list, sluiceredis.ScriptCall{Script: count, Keys: []string{key}, Args: []string{"1"}})
	}
	return list
}

// A server that lost its scripts is sent them again, once each, in a pipeline
// too.
func reloads(t *testing.T, lib Library) {
	s := redistest.Start(t)
	c, admin := lib.Single(t, s.Addr, 0), admin(t, s.Addr)
	for i := range 3 {
		if err := admin.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Run(bg, count, []string{"n"}, []string{"1"}); err != nil || got[0] != int64(3*i+1) {
			t.Fatalf("%v, %v", got, err)
		}
		if err := admin.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
		for j, r := range c.RunMany(bg, calls(2, "n")) {
			if r.Err != nil || r.Ints[0] != int64(3*i+2+j) {
				t.Fatalf("%+v", r)
			}
		}
	}
	if got := texts(admin); got != 9 {
		t.Errorf("%d scripts were sent with their text, want 9", got)
	}
}

// texts returns the number of scripts that a server was sent with their text.
func texts(admin *redis.Client) (n int) {
	_, _ = fmt.Sscanf(redistest.Info(admin, "cmdstat_eval"), "calls=%d,", &n)
	return n
}

// waitFor waits until key has that value, but not for ever.
func waitFor(admin *redis.Client, key string, want int, longest time.Duration) {
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(ms) {
		if got, _ := admin.Get(bg, key).Int(); got == want {
			return
		}
	}
}

// A timeout has an unknown outcome: a sent command is not sent again, whatever the
// options of the client say.
func nothingTwice(t *testing.T, lib Library) {
	const timeout = 300 * ms
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	c, admin := lib.Single(t, p.Addr, timeout), admin(t, s.Addr)
	const callers = 4
	atOnce := func(call func() error, check func(error)) {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() { check(call()) })
		}
		wg.Wait()
	}
	for key, each := range map[string]int{"one": 1, "many": 2} {
		call := func() error {
			_, err := c.Run(bg, count, []string{key}, []string{"1"})
			return err
		}
		if each == 2 {
			call = func() error {
				replies := c.RunMany(bg, calls(2, key))
				if (replies[0].Err == nil) != (replies[1].Err == nil) {
					t.Errorf("%+v", replies)
				}
				return replies[0].Err
			}
		}
		p.Set(redistest.Fault{Delay: 20 * ms}) // so that each has a connection, if that is how it is
		atOnce(call, func(err error) {
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
		})
		before := callers * each
		p.Set(redistest.Fault{DropReply: true})
		atOnce(call, func(err error) {
			if !errors.Is(err, sluiceredis.ErrAmbiguous) {
				t.Errorf("%s: %v", key, err)
			}
		})
		if got, _ := admin.Get(bg, key).Int(); got <= before || got > 2*before {
			t.Errorf("%s: executed %d times, asked %d times and no reply lost to %d", key, got, 2*before, before)
		}
	}
}

// Deadlines are honored by a client without its own timeout, for one caller
// and for several, and the outcome then is unknown.
func deadlines(t *testing.T, lib Library) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	c := lib.Single(t, p.Addr, 0)
	for _, callers := range []int{1, 3} {
		p.Set(redistest.Fault{})
		for range 100 { // until there is a connection
			if _, err := c.Run(bg, count, []string{"n"}, []string{"1"}); err == nil {
				break
			}
		}
		p.Set(redistest.Fault{DropReply: true})
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(bg, 50*ms)
				defer cancel()
				if _, err := c.Run(ctx, count, []string{"n"}, []string{"1"}); !errors.Is(err, sluiceredis.ErrAmbiguous) {
					t.Errorf("one: %v", err)
				} else if callers == 1 && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("one: %v is not that of the deadline", err)
				}
				<-ctx.Done()
				ctx, cancel = context.WithTimeout(bg, 50*ms)
				defer cancel()
				for _, r := range c.RunMany(ctx, calls(2, "n")) {
					if !errors.Is(r.Err, sluiceredis.ErrAmbiguous) {
						t.Errorf("many: %v", r.Err)
					}
				}
				<-ctx.Done()
				if _, err := c.Run(ctx, count, []string{"n"}, []string{"1"}); err != context.DeadlineExceeded {
					t.Errorf("when it has passed: %v", err)
				}
				for _, r := range c.RunMany(ctx, calls(1, "n")) {
					if r.Err != context.DeadlineExceeded {
						t.Errorf("when it has passed: %v", r.Err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// A connection that ends when a call was executed and not answered: it is not
// executed again, and its outcome is unknown, for one and in a pipeline.
func connectionLost(t *testing.T, lib Library) {
	s := redistest.Start(t)
	admin := admin(t, s.Addr)
	for _, n := range []int{1, 3} {
		p := redistest.NewProxy(t, s.Addr)
		c, key := lib.Single(t, p.Addr, 0), strings.Repeat("n", n)
		run := func() error {
			if n == 1 {
				_, err := c.Run(bg, count, []string{key}, []string{"1"})
				return err
			}
			return c.RunMany(bg, calls(n, key))[n-1].Err
		}
		if err := run(); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		p.Set(redistest.Fault{DropReply: true})
		answer := make(chan error)
		go func() { answer <- run() }()
		waitFor(admin, key, 2*n, 10*sec)
		p.Set(redistest.Fault{})
		p.Reset()
		if err := <-answer; !errors.Is(err, sluiceredis.ErrAmbiguous) {
			t.Errorf("%d: %v", n, err)
		}
		if got, _ := admin.Get(bg, key).Int(); got != 2*n {
			t.Errorf("executed %d times, asked %d times", got, 2*n)
		}
	}
}

// A command that cannot be sent was not executed.
func nobodyListens(t *testing.T, lib Library) {
	c := lib.Single(t, "127.0.0.1:1", 0)
	if _, err := c.Run(bg, count, []string{"n"}, []string{"1"}); err == nil || errors.Is(err, sluiceredis.ErrAmbiguous) {
		t.Errorf("one: %v", err)
	}
	for _, r := range c.RunMany(bg, calls(2, "n")) {
		if r.Err == nil || errors.Is(r.Err, sluiceredis.ErrAmbiguous) {
			t.Errorf("many: %v", r.Err)
		}
	}
}

// A rejection by a server is a ServerError and is not retried: the time to wait is not for a
// client to say.
func serverErrors(t *testing.T, lib Library) {
	for _, message := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script.",
		"MASTERDOWN Link with MASTER is down",
		"NOREPLICAS Not enough good replicas to write.",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MISCONF Errors writing to the AOF file",
		"NOAUTH Authentication required.",
	} {
		f := newFake(t, message)
		c := lib.Single(t, f.addr, 0)
		check := func(err error) {
			t.Helper()
			var server *sluiceredis.ServerError
			code, _, _ := strings.Cut(message, " ")
			if !errors.As(err, &server) || server.Code != code || server.Message != message || errors.Is(err, sluiceredis.ErrAmbiguous) {
				t.Errorf("%s: %v", message, err)
			}
		}
		_, err := c.Run(bg, count, []string{"n"}, []string{"1"})
		check(err)
		if got := f.scripts.Load(); got != 1 {
			t.Errorf("%s: asked %d times", message, got)
		}
		for _, r := range c.RunMany(bg, calls(2, "n")) {
			check(r.Err)
		}
		if got := f.scripts.Load(); got != 3 {
			t.Errorf("%s: asked %d times, with two in a pipeline", message, got)
		}
	}
}
