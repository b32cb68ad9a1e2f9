package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/sluicehttp"
)

// configFor returns the configuration of the transport for a vendor.
type configFor func() sluicehttp.Config

// An item is a prompt with its number, which is its key in the log.
type item struct {
	number int
	prompt string
}

// throughSluice makes the completions as a batch, with the SDK as it is on a transport that
// paces its requests.
func (t *trial) throughSluice() error {
	transport, err := sluicehttp.New(t.base, t.vendor.config())
	if err != nil {
		return err
	}
	defer transport.Close()
	call := t.vendor.client(&http.Client{Transport: transport}, t.url, asItIs)

	// The gate of the batch only bounds its goroutines: the limits of the server are
	// the business of the transport.
	workers, err := sluice.New(sluice.Config{Concurrency: int64(t.workers)})
	if err != nil {
		return err
	}
	complete := func(ctx context.Context, it item) (string, error) { return call(ctx, it.prompt) }
	results := batch.Map(t.stop.calls, workers, t.items(), complete, batch.Config[item]{
		Retry: sluice.RetryPolicy{Attempts: 1}, // the transport and the SDK retry
		Stop:  t.stop.stop,
		Log:   t.log,
		Key:   func(it item) string { return strconv.Itoa(it.number) },
		Tally: &t.tally,
	})
	for r, err := range results {
		switch {
		case errors.Is(err, batch.ErrStopped), errors.Is(err, context.Canceled):
			return nil // interrupted
		case err != nil:
			return err
		case errors.Is(r.Err, batch.ErrUnfinished):
			// It is run again when the batch is resumed.
		default:
			t.count(r.In.prompt, r.Out, r.Err)
		}
	}
	return nil
}

// items yields the prompts with their numbers.
func (t *trial) items() iter.Seq[item] {
	return func(yield func(item) bool) {
		number := 0
		for prompt := range prompts(t.n) {
			if number++; !yield(item{number, prompt}) {
				return
			}
		}
	}
}

// openLog opens the log of the batch, if there is to be one.
func openLog(o options) (*batch.Log, error) {
	if o.log == "" {
		return nil, nil
	}
	mode := batch.Fresh
	if o.resume {
		mode = batch.ResumeFailed
	}
	log, err := batch.OpenLog(o.log, batch.LogConfig{Mode: mode, Config: "llmbatch " + o.vendor.name})
	switch {
	case errors.Is(err, batch.ErrLogExists):
		return nil, fmt.Errorf("%w; -resume continues it", err)
	case errors.Is(err, batch.ErrLogConfig):
		return nil, fmt.Errorf("%w; give the same -api", err)
	}
	return log, err
}
