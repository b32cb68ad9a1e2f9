// Scenes makes calls of one kind, for house to count what one of them passes.
//
//	scenes KIND CALLS
//
// Everything that is done once, such as making the gate and the first calls, comes first, and is
// done with no calls as well: so two runs differ by the calls alone.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scenes:", err)
		os.Exit(1)
	}
}

// warm is how many calls come first: a gate that learns has looked around by then.
const warm = 20

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%d arguments, want a kind of call and a number", len(args))
	}
	calls, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	scene := scenes[args[0]]
	if scene == nil {
		return fmt.Errorf("no kind of call %q", args[0])
	}
	call, end := scene()
	defer end()
	for range warm {
		if err := call(); err != nil {
			return err
		}
	}
	for range calls {
		if err := measured(call); err != nil {
			return err
		}
	}
	return nil
}

// measured makes a call. House records what is entered within it.
func measured(call func() error) error { return call() }

// scenes are the kinds of calls, each with a function that makes one and one that cleans up.
var scenes = map[string]func() (call func() error, end func()){
	"do": func() (func() error, func()) {
		return do(sluice.Config{Concurrency: 8})
	},
	"do-waits": func() (func() error, func()) { // for its slot, long enough for a busy machine
		return do(sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 50, Per: time.Second}})
	},
	"do-learned": func() (func() error, func()) {
		return do(sluice.Config{Concurrency: 8, Adaptive: sluice.Adaptive{
			Search: true, Start: sluice.Rate{Count: 100_000, Per: time.Second},
		}})
	},
	"do-bucket": func() (func() error, func()) {
		const plenty = 1_000_000
		bucket := limits.Must(leaky.New(limits.Rate{Count: plenty, Per: time.Second, Burst: plenty}))
		return do(sluice.Config{Concurrency: 8, Limits: []sluice.Limit{{Name: "bucket", Limiter: bucket}}})
	},
	"acquire": func() (func() error, func()) {
		gate := limits.Must(sluice.New(sluice.Config{Concurrency: 8}))
		ctx := context.Background()
		return func() error {
			permit, err := gate.Acquire(ctx, 1)
			if err == nil {
				permit.Release()
			}
			return err
		}, func() {}
	},
	"retry": func() (func() error, func()) {
		gate := limits.Must(sluice.New(sluice.Config{Concurrency: 8}))
		ctx := context.Background()
		return func() error { return sluice.Retry(ctx, gate, nothing) }, func() {}
	},
	"http": get,
}

func nothing(context.Context) error { return nil }

func do(cfg sluice.Config) (call func() error, end func()) {
	gate := limits.Must(sluice.New(cfg))
	ctx := context.Background()
	return func() error { return gate.Do(ctx, nothing) }, func() {}
}

// get reads a page of a server on this machine.
func get() (call func() error, end func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	client := &http.Client{Transport: limits.Must(sluicehttp.New(nil))}
	return func() error {
		resp, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		return resp.Body.Close()
	}, server.Close
}
