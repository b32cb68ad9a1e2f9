package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
)

// A job is one run over the items.
type job struct {
	o      options
	in     *input
	gate   *sluice.Gate
	runner runner
	log    resumeLog
	tally  batch.Tally
	slots  chan int // the numbers for {%} that are free
}

// resumeLog is a log or none.
type resumeLog struct{ *batch.Log }

func (l resumeLog) close() error {
	if l.Log == nil {
		return nil
	}
	return l.Close()
}

// An item with its number.
type item struct {
	text string
	seq  int64
}

// newJob prepares a job. The log comes last: it is touched only when nothing
// else can fail.
func newJob(o options, in *input) (*job, error) {
	rate := o.rate
	if rate.Count > 0 && o.burst > 1 {
		rate.Burst = o.burst
	}
	gate, err := sluice.New(sluice.Config{
		Concurrency: int64(o.jobs),
		Rate:        rate,
		CatchUp:     time.Millisecond, // no server is known well enough to send it more after a stall
		RetryBudget: -1,               // of commands: they are tried again as often as was asked for
	})
	if err != nil {
		return nil, err
	}
	j := &job{o: o, in: in, gate: gate, slots: make(chan int, o.jobs)}
	for slot := range o.jobs {
		j.slots <- slot + 1
	}
	if j.runner, err = o.task.start(o, gate); err != nil {
		return nil, err
	}
	if o.log != "" {
		j.log.Log, err = batch.OpenLog(o.log, batch.LogConfig{Mode: o.mode, Config: o.task.config(), AnyConfig: o.anyConfig})
		switch {
		case errors.Is(err, batch.ErrLogExists):
			return nil, fmt.Errorf("%w; -resume continues it", err)
		case errors.Is(err, batch.ErrLogConfig):
			return nil, fmt.Errorf("%w; -any-config resumes it anyway", err)
		case err != nil:
			return nil, err
		}
	}
	return j, nil
}

// run runs the job and returns the exit status.
func (j *job) run(args []string, stdout, stderr *os.File) int {
	show := j.newDisplay(stdout, stderr)
	interrupts := catchInterrupts(show.log)
	defer interrupts.close()

	// This is how package batch is used; the rest is what to do with the results.
	ending := make(chan struct{})
	results := batch.Map(interrupts.calls, j.gate, j.items(ending), j.do, batch.Config[item]{
		Retry:   j.o.policy(),
		Ordered: j.o.ordered,
		Halt:    j.o.halt,
		Stop:    interrupts.stop,
		Ending:  func(error) { close(ending) },
		Log:     j.log.Log,
		Key:     func(it item) string { return it.text },
		Tally:   &j.tally,
		Paced:   j.runner.paced(),
	})
	var why error
	for r, err := range results {
		if err != nil {
			why = err
			break
		}
		if err := j.print(show, r); err != nil {
			// The item is not noted in the log, and so will be run again.
			why = fmt.Errorf("printing an output: %w", err)
			break
		}
	}
	if why == nil {
		why = j.in.err()
	}
	show.stop()
	status := j.status(why, interrupts.happened())
	fmt.Fprint(stderr, j.report(status, why, args))
	return status
}

// items numbers the items of the input.
func (j *job) items(ending <-chan struct{}) iter.Seq[item] {
	return func(yield func(item) bool) {
		seq := int64(0)
		for text := range j.in.items(ending) {
			seq++
			if !yield(item{text, seq}) {
				return
			}
		}
	}
}

// do runs one attempt for an item, or with -url all of them.
func (j *job) do(ctx context.Context, it item) (output, error) {
	select {
	case slot := <-j.slots:
		defer func() { j.slots <- slot }()
		return j.runner.run(ctx, subject{it.text, it.seq, slot})
	case <-ctx.Done():
		return output{}, ctx.Err()
	}
}

// print writes what came of an item, in one piece each.
func (j *job) print(show *display, r batch.Result[item, output]) error {
	if errors.Is(r.Err, batch.ErrUnfinished) {
		return nil // the report counts them
	}
	if len(r.Out.stderr) > 0 {
		if err := show.write(show.stderr, r.Out.stderr); err != nil {
			return err
		}
	}
	if len(r.Out.stdout) > 0 {
		if err := show.write(show.stdout, r.Out.stdout); err != nil {
			return err
		}
	}
	if r.Err != nil {
		show.log(fmt.Sprintf("%s failed: %v", quote(r.In.text), r.Err))
	}
	return nil
}

// status is the exit status of a job that ended for a reason, or with its input.
func (j *job) status(why error, interrupted bool) int {
	s := j.tally.Stats()
	_, failedBefore := j.known()
	switch {
	case interrupted:
		return exitInterrupted
	case errors.Is(why, batch.ErrHalted) && j.o.halt.Successes > 0:
		return 0 // as many as were asked for
	case why != nil:
		return exitStopped
	case s.Failed > 0, j.o.mode == batch.Resume && failedBefore > 0:
		return exitFailed
	}
	return 0
}

// known is how many items the log had when it was opened.
func (j *job) known() (ok, failed int) {
	if j.log.Log == nil {
		return 0, 0
	}
	return j.log.Known()
}

// report says how it went, and how to go on.
func (j *job) report(status int, why error, args []string) string {
	text := "batchjob: " + j.summary() + "\n"
	if why != nil && !errors.Is(why, batch.ErrStopped) && !errors.Is(why, context.Canceled) {
		text += fmt.Sprintf("batchjob: ended early: %v\n", why)
	}
	if _, failedBefore := j.known(); j.o.mode == batch.Resume && failedBefore > 0 {
		text += fmt.Sprintf("batchjob: %d of those in the log failed before: -resume-failed runs them again\n", failedBefore)
	}
	switch {
	case status != exitInterrupted && status != exitStopped:
	case j.log.Log == nil:
		text += "batchjob: there is no -log, so it cannot be resumed\n"
	case j.o.in == "-":
		text += "batchjob: resume it, with the same input, by\n\t" + resumeCommand(args, j.o.mode != batch.Fresh) + "\n"
	default:
		text += "batchjob: resume it by\n\t" + resumeCommand(args, j.o.mode != batch.Fresh) + "\n"
	}
	return text
}

func (j *job) summary() string {
	s := j.tally.Stats()
	text := fmt.Sprintf("%d ok, %d failed", s.OK, s.Failed)
	if s.Unfinished > 0 {
		text += fmt.Sprintf(", %d unfinished", s.Unfinished)
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	if s.Retries > 0 {
		text += fmt.Sprintf(", %d retries", s.Retries)
	}
	if s.Service.Count() > 0 {
		text += fmt.Sprintf("; late by less than %v for 95 %% of them, an attempt took less than %v for 95 %%",
			roughly(s.Queued.Quantile(0.95)), roughly(s.Service.Quantile(0.95)))
	}
	return text
}

// roughly writes a time to be glanced at.
func roughly(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
