package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/batch"
)

// asItIs stands for the retries that an SDK makes by default.
const asItIs = -1

// A trial is one of the runs.
type trial struct {
	options
	name string
	api  *api
	base *http.Transport
	url  string
	log  *batch.Log // nil for none
	stop *interrupts

	tally      batch.Tally
	ok, failed atomic.Int64
	firstError atomic.Pointer[error]
}

// newBase returns a transport that keeps a connection for each worker.
func newBase(workers int) *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	base.MaxIdleConns, base.MaxIdleConnsPerHost = workers, workers
	return base
}

// run makes the run. The error is why it could not be made or ended early.
func (t *trial) run() (result, error) {
	start := time.Now()
	var err error
	switch t.name {
	case sdkAlone:
		t.withSDK(asItIs)
	case sdkRetries:
		t.withSDK(10)
	default:
		err = t.throughSluice()
	}
	took := time.Since(start)
	if err != nil {
		return result{}, err
	}
	t.api.Close() // waits for its handlers, which count the tokens
	return newResult(t, took), nil
}

// withSDK makes the completions as a program does that has heard of goroutines.
func (t *trial) withSDK(retries int) {
	call := t.vendor.client(&http.Client{Transport: t.base}, t.url, retries)
	work := make(chan string)
	var pool sync.WaitGroup
	for range t.workers {
		pool.Go(func() {
			for prompt := range work {
				text, err := call(t.stop.calls, prompt)
				if !errors.Is(err, context.Canceled) {
					t.count(prompt, text, err)
				}
			}
		})
	}
	for prompt := range prompts(t.n) {
		select {
		case work <- prompt:
			continue
		case <-t.stop.stop:
		}
		break
	}
	close(work)
	pool.Wait()
}

// count counts what came of a prompt.
func (t *trial) count(prompt, text string, err error) {
	if err == nil && text != completion(prompt) {
		err = fmt.Errorf("the server did not send %.40q", text)
	}
	if err == nil {
		t.ok.Add(1)
		return
	}
	t.failed.Add(1)
	t.firstError.CompareAndSwap(nil, &err)
}
