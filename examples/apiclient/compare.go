package main

import (
	"errors"
	"io"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
	"github.com/sluice-go/sluice/sluicehttp"
)

// newServer returns the built-in server, with the limits that the gate keeps
// to, or nil if the user has one. The error is about the flags.
//
// Its bucket holds the calls of a tenth of a second. A busy machine wakes callers late, and
// the gate catches up by at most 50 ms. The other half is for calls that arrive late: in this
// program the server runs on the same busy machine.
func newServer(o options) (*apiserver.Server, error) {
	if o.url != "" {
		return nil, nil
	}
	return apiserver.New(apiserver.Config{
		Items: o.n, Count: o.rate.Count, Per: o.rate.Per, Concurrency: o.concurrency,
		Bucket: max(5, int64(100*time.Millisecond/o.rate.Interval())),
		Family: families[o.headers],
	})
}

// comparison is the two runs over the same items, or the first of them alone.
type comparison struct {
	options
	gate      *sluicehttp.Transport
	meter     *meter            // of what leaves the gate
	server    *apiserver.Server // nil: the user's
	screen    *screen
	interrupt *interrupt
}

// run makes the runs and reports on them.
func (c *comparison) run(out *sink, stdout io.Writer) (status int, err error) {
	c.interrupt = catchInterrupt(c.gate.Close, c.screen.print)
	defer c.interrupt.close()

	first, lossErr := c.throughGate(out)
	if c.unknown {
		first.learned = learnedBy(c.gate)
	}
	if c.unknown && !c.interrupt.happened() && lossErr == nil {
		told, err := c.throughToldGate()
		first.told, lossErr = told, err
	}
	var second *result
	if c.naive && !c.interrupt.happened() && lossErr == nil {
		r := c.naively(naiveLimit(c.ideal(), first.wall))
		second = &r
	}

	c.screen.print(table(c.options, first, second))
	if c.json {
		err = writeJSON(stdout, first, second)
	}
	switch err = errors.Join(lossErr, err, c.screen.failed()); {
	case c.interrupt.happened():
		return exitInterrupted, err
	case first.Lost > 0 || err != nil:
		return exitLost, err
	}
	return 0, nil // whatever the naive pool may have lost
}

// throughGate fetches the items through the gate and into out. The error is the error of writing
// them; what it cost is in the result as well.
func (c *comparison) throughGate(out *sink) (result, error) {
	start := time.Now()
	client := newClient(c.url, c.gate, c.meter)
	if c.share.of > 0 {
		client.agent = agentOf(c.share)
	}
	j, release := c.newJob(client, out)
	defer release()
	stopProgress := watch(c.screen, "gate", c.options, func() moment { return gateNow(c.gate, j) })
	fetchThroughGate(c.interrupt.calls, c.gate, j)
	stopProgress()

	saved, err := j.fetched.Load(), error(nil)
	if out != nil {
		saved, err = out.close()
	}
	return newResult(c.options, j, saved, time.Since(start), c.server), err
}

// throughToldGate fetches the items again, through a gate that has the rate, and keeps
// none of them.
func (c *comparison) throughToldGate() (*result, error) {
	c.server.Reset()
	told := comparison{options: c.options, server: c.server, meter: newMeter(), screen: c.screen, interrupt: c.interrupt}
	told.unknown = false
	gate, err := newTransport(configOf(told.options, nil), metered{newBase(c.workers), told.meter})
	if err != nil {
		return nil, err
	}
	told.gate = gate
	defer gate.Close()
	r, err := told.throughGate(nil)
	return &r, err
}

// naively fetches the items again, without a gate, and keeps none of them.
func (c *comparison) naively(limit time.Duration) result {
	if c.server != nil {
		c.server.Reset() // the naive pool meets the same server, unused
	}
	start := time.Now()
	m := newMeter()
	client := newClient(c.url, metered{newBase(c.workers), m}, m)
	client.http.Timeout = callTimeout
	j, release := c.newJob(client, nil)
	defer release()
	stopProgress := watch(c.screen, "naive", c.options, func() moment { return naiveNow(j) })
	fetchNaively(c.interrupt.calls, j, limit)
	stopProgress()
	return newResult(c.options, j, j.fetched.Load(), time.Since(start), c.server)
}

// newJob returns a job with a client and what releases both.
func (c *comparison) newJob(client *client, out *sink) (j *job, release func()) {
	j, free := newJob(c.options, c.interrupt.stop, client, out)
	return j, func() {
		free()
		client.close()
	}
}
