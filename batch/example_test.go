package batch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
)

// Results in the order of the input.
func ExampleMap() {
	gate, err := sluice.New(sluice.Config{Concurrency: 2})
	if err != nil {
		panic(err)
	}
	length := func(_ context.Context, s string) (int, error) {
		if s == "" {
			return 0, sluice.Permanent(errors.New("nothing to measure"))
		}
		return len(s), nil
	}
	words := slices.Values([]string{"one", "", "three"})
	for r, err := range batch.Map(context.Background(), gate, words, length, batch.Config[string]{Ordered: true}) {
		switch {
		case err != nil:
			fmt.Println("the batch ended early:", err)
		case r.Err != nil:
			fmt.Println(r.Index, r.Err)
		default:
			fmt.Println(r.Index, r.In, r.Out)
		}
	}
	// Output:
	// 0 one 3
	// 1 nothing to measure
	// 2 three 5
}

// A batch is run again: it continues where it was and repeats the failed items.
func ExampleForEach_resume() {
	gate, err := sluice.New(sluice.Config{Concurrency: 1})
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	run := func(mode batch.Mode, broken string) error {
		log, err := batch.OpenLog(filepath.Join(dir, "run.jsonl"), batch.LogConfig{Mode: mode, Config: "greet"})
		if err != nil {
			return err
		}
		defer log.Close()
		names := slices.Values([]string{"Ada", "Bob", "Cy"})
		return batch.ForEach(context.Background(), gate, names, func(_ context.Context, name string) error {
			if name == broken {
				return sluice.Permanent(errors.New("not at home"))
			}
			fmt.Println("hello", name)
			return nil
		}, batch.Config[string]{Log: log})
	}
	fmt.Println(run(batch.Fresh, "Bob"))
	fmt.Println(run(batch.ResumeFailed, ""))
	fmt.Println(run(batch.ResumeFailed, ""))
	// Output:
	// hello Ada
	// hello Cy
	// batch: items failed: 1 of 3, the first: not at home
	// hello Bob
	// <nil>
	// <nil>
}

// A third of the items fails, so the batch ends early.
func ExampleHalt() {
	gate, err := sluice.New(sluice.Config{Concurrency: 1})
	if err != nil {
		panic(err)
	}
	endless := func(yield func(int) bool) {
		for i := 1; yield(i); i++ {
		}
	}
	err = batch.ForEach(context.Background(), gate, endless, func(_ context.Context, i int) error {
		if i%3 == 0 {
			return sluice.Permanent(fmt.Errorf("%d divides by 3", i))
		}
		return nil
	}, batch.Config[int]{Halt: batch.Halt{FailPercent: 10}, ReadAhead: 1})
	fmt.Println(errors.Is(err, batch.ErrHalted))
	fmt.Println(err)
	// Output:
	// true
	// batch: halted: 3 of 10 items failed; batch: items failed: 3 of 10, the first: 3 divides by 3
}

// One server is down. Its items fail, after it was tried again, and those of the other one
// do not wait for them.
func ExampleConfig_group() {
	gate, err := sluice.New(sluice.Config{Concurrency: 1})
	if err != nil {
		panic(err)
	}
	urls := slices.Values([]string{"down/1", "up/1", "down/2", "up/2", "down/3", "up/3"})
	err = batch.ForEach(context.Background(), gate, urls, func(_ context.Context, url string) error {
		if strings.HasPrefix(url, "down") {
			return errors.New("connection refused")
		}
		fmt.Println(url)
		return nil
	}, batch.Config[string]{
		Group: func(url string) string { host, _, _ := strings.Cut(url, "/"); return host },
		Suspend: batch.Suspend{
			After:   2,
			Changed: func(s batch.GroupState) { fmt.Println(s.Group, "is set aside:", s.Why != nil) },
		},
		Retry: sluice.RetryPolicy{Attempts: 1},
		Halt:  batch.Halt{Successes: 3},
	})
	fmt.Println(errors.Is(err, batch.ErrHalted))
	// Output:
	// up/1
	// down is set aside: true
	// up/2
	// up/3
	// true
}
