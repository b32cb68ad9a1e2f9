package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/queue"
)

// A job is one run over the items.
type job struct {
	o        options
	in       *input
	gate     *sluice.Gate
	runner   runner
	log      resumeLog
	tally    batch.Tally
	slots    slots // the numbers for {%}
	hosts    hosts
	show     *cli.Display
	records  *os.File   // of -jsonl, or nil
	printing sync.Mutex // of lines while commands run
	failures failures
	stops    stops
	backlog  backlog

	unprinted int64 // items that are ok, but are not in the log, because an output could not be printed

	interrupts atomic.Pointer[cli.Interrupts] // nil before signals are caught
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
	last *output // of the last attempt

	taken *queue.Item // of -queue, or nil
}

// newJob prepares a job. The log comes last: it is touched only when nothing
// else can fail.
func newJob(o options, in *input) (*job, error) {
	rate, shared := in.fleet.share(o.withBurst(o.rate))
	gate, err := sluice.New(sluice.Config{
		Concurrency: int64(o.jobs),
		Rate:        rate,
		Limits:      shared,
		MaxCatchUp:  time.Millisecond, // no server is known well enough to send it more after a stall
		RetryBudget: -1,               // of commands: they are tried again as often as was asked for
	})
	if err != nil {
		return nil, err
	}
	j := &job{o: o, in: in, gate: gate}
	j.hosts.failures = &j.failures
	if !o.ordered {
		j.backlog.most = o.jobs
	}
	if j.runner, err = o.task.start(j); err != nil {
		return nil, err
	}
	if o.results != "" && !o.resultNames() {
		if err := os.MkdirAll(o.results, 0o777); err != nil {
			return nil, fmt.Errorf("-results: %w", err)
		}
	}
	if err := o.tryTheSummary(); err != nil {
		return nil, fmt.Errorf("-summary: %w", err)
	}
	if j.records, err = o.openRecords(); err != nil {
		return nil, fmt.Errorf("-jsonl: %w", err)
	}
	if o.log != "" {
		config := o.task.config()
		if o.key == "seq" { // all items would have other names
			config += "\x00seq"
		}
		if o.shape.colsep != "" {
			config += "\x00colsep" + o.shape.colsep
		}
		if o.shape.n > 1 {
			config += fmt.Sprintf("\x00n%d", o.shape.n)
		}
		if o.shape.fill > 0 {
			config += "\x00nmax"
		}
		j.log.Log, err = batch.OpenLog(o.log, batch.LogConfig{Mode: o.mode, Config: config, AnyConfig: o.anyConfig})
		switch {
		case errors.Is(err, batch.ErrLogExists):
			return nil, fmt.Errorf("-log %s: the log already has items; -resume continues it, or use another name", o.log)
		case errors.Is(err, batch.ErrLogConfig):
			return nil, fmt.Errorf("-log %s: the log belongs to another command or request; -any-config resumes it anyway", o.log)
		case err != nil:
			return nil, fmt.Errorf("-log: %s", strings.TrimPrefix(err.Error(), "batch: "))
		}
	}
	if err := j.beginRecords(); err != nil {
		j.log.close()
		return nil, fmt.Errorf("-jsonl: %w", err)
	}
	return j, nil
}

// run runs the job and returns the exit status.
func (j *job) run(args []string, stdout, stderr *os.File) int {
	start := time.Now()
	if j.o.results == "" && leadsNowhere(stdout) {
		fmt.Fprintln(stderr, name+": stdout is closed: outputs are dropped; -results keeps them")
	}
	j.show = cli.NewDisplay(name, stdout, stderr, j.o.quiet, j.progress())
	show := j.show
	log.SetFlags(0)
	log.SetOutput(show.PackageLog())
	interrupts := cli.CatchInterrupts(show.Log)
	j.interrupts.Store(interrupts)
	defer interrupts.Close()
	stopNews := show.Follow(func() []string { return append(j.hosts.takeNews(), j.in.fleet.takeNews()...) })
	stopControl := j.control(show.Log)
	releaseStops := cli.CatchStops(show, j.stops.begin, j.stops.end)
	stopLooking := cli.Every(lookEvery, j.stops.look)

	// This is how package batch is used; the rest is what to do with the results.
	ending := make(chan struct{})
	ahead := 0
	if j.in.fleet != nil {
		ahead = j.o.jobs // what waits here waits for no other machine
	} else if j.o.control+j.o.liveToken != "" && !j.runner.paced() {
		ahead = 2 * mostJobs // there may be that many
	}
	results := batch.Map(interrupts.Calls, j.gate, j.items(ending), j.do, batch.Config[item]{
		Retry:        j.o.policy(),
		ReadAhead:    ahead,
		Ordered:      j.o.ordered,
		Halt:         j.o.halt,
		Stop:         interrupts.Stop,
		OnStop:       func(error) { close(ending) },
		Log:          j.log.Log,
		Key:          j.key,
		Tally:        &j.tally,
		ExternalGate: j.runner.paced(),
		Group:        j.runner.group(),
		Suspend:      batch.Suspend{After: j.o.aside, Wait: j.o.asideWait, Changed: j.hosts.changed},
	})
	var why error
	var printed int64 // of those that are ok
	broken := false
	for r, err := range results {
		if err != nil {
			why = err
			break
		}
		if err := j.print(show, r); err != nil {
			// Neither the item nor any that ended after it is noted in the log, and so they will be run again.
			why = fmt.Errorf("printing an output: %w", err)
			broken = true
			break
		}
		if r.Err == nil {
			printed++
		}
	}
	if broken { // the batch has ended, so the counts stay as they are
		j.unprinted = j.tally.Stats().OK - printed
	}
	if why == nil {
		why = j.in.err()
	}
	if err := j.in.fleet.finish(); why == nil {
		why = err
	}
	stopLooking()
	releaseStops()
	stopControl()
	stopNews()
	show.Stop()
	status := j.status(why, interrupts.Happened())
	fmt.Fprint(stderr, j.report(status, why, args))
	if err := j.writeSummary(status, why, time.Since(start)); err != nil {
		fmt.Fprintf(stderr, "%s: -summary: %v\n", name, err)
		return max(status, cli.ExitFailed)
	}
	return status
}

// items numbers the items of the input.
func (j *job) items(ending <-chan struct{}) iter.Seq[item] {
	return func(yield func(item) bool) {
		seq := int64(0)
		if j.in.fleet != nil {
			for it := range j.in.fleet.items(ending, &j.in.failure) {
				if !yield(item{it.Text, it.Seq, new(output), it}) {
					return
				}
			}
			return
		}
		for text := range j.in.items(ending) {
			seq++
			if !yield(item{text, seq, new(output), nil}) {
				return
			}
		}
	}
}

// name names an item for people.
func (j *job) name(it item) string {
	if j.o.shape.several() {
		return strings.ReplaceAll(it.text, j.o.shape.end, " ")
	}
	return it.text
}

// key names an item in the log.
func (j *job) key(it item) string {
	if j.o.key == "seq" {
		return fmt.Sprintf("%d %s", it.seq, it.text)
	}
	return it.text
}

// do runs one attempt for an item, or with -url all of them.
func (j *job) do(ctx context.Context, it item) (output, error) {
	slot := j.slots.take()
	defer j.slots.give(slot)
	it.last.close() // what attempts that are retried print is dropped
	s := j.o.shape.subject(it.text, it.seq, slot)
	if j.o.shape.json && s.field == nil {
		return output{}, sluice.Permanent(errNotJSON)
	}
	if err := j.in.fleet.tooOften(ctx, it.taken); err != nil {
		return output{}, sluice.Permanent(err)
	}
	out, err := j.runner.run(ctx, s)
	if out.waits = j.runner.paced(); out.waits {
		j.backlog.add() // it is called once for each item
	}
	*it.last = out
	return out, err
}

// follower prints the lines of a command while it runs.
func (j *job) follower(s subject) *follower {
	f := &follower{print: func(to stream, b []byte) error {
		j.printing.Lock()
		defer j.printing.Unlock()
		return j.show.Print([...]io.Writer{toStderr: j.show.Stderr, toStdout: j.show.Stdout}[to], b)
	}}
	if j.o.tag {
		f.tag = j.tagOf(strings.Join(s.items, " "))
	}
	return f
}

// tagOf is what begins each line of an output with -tag.
func (j *job) tagOf(name string) []byte { return []byte(cli.Plain(name, cli.MostOfItem) + "\t") }

// print writes what came of an item, in one piece each.
func (j *job) print(show *cli.Display, r batch.Result[item, output]) error {
	defer r.Out.close()
	if r.In.last.waits {
		defer j.backlog.done()
	}
	if err := r.Out.unprinted; err != nil {
		return err
	}
	if errors.Is(r.Err, batch.ErrUnfinished) {
		j.in.fleet.giveBack(r.In.taken)
		return nil // the report counts them
	}
	if err := j.printOutput(show, r); err != nil {
		return err
	}
	if err := j.record(r); err != nil {
		return err
	}
	j.in.fleet.settle(r)
	if r.Err != nil {
		show.Log(fmt.Sprintf("%s failed: %s", cli.Plain(cli.Quote(j.name(r.In)), cli.MostOfItem), reason(r.Err)))
	}
	return nil
}

// printOutput writes what an item printed, or puts it into the files of -results.
func (j *job) printOutput(show *cli.Display, r batch.Result[item, output]) error {
	if j.o.results != "" {
		return j.saveOutput(r)
	}
	for _, to := range []struct {
		w io.Writer
		s *spool
	}{{show.Stderr, &r.Out.stderr}, {show.Stdout, &r.Out.stdout}} {
		if j.o.jsonl == "-" && to.w == show.Stdout {
			continue // it has the lines of -jsonl
		}
		write := func(b []byte) error { return show.Print(to.w, b) }
		if j.o.tag {
			if err := to.s.endLine(); err != nil { // or the next tag would not begin a line
				return err
			}
			tagged := tagger{tag: j.tagOf(j.name(r.In)), write: write, begin: true}
			write = tagged.add
		}
		if err := to.s.each(write); err != nil {
			return err
		}
	}
	return nil
}

// saveOutput puts what an item printed into the files of -results.
func (j *job) saveOutput(r batch.Result[item, output]) error {
	s := j.o.shape.subject(r.In.text, r.In.seq, 1)
	for _, to := range []struct {
		spool *spool
		errs  bool
	}{{&r.Out.stdout, false}, {&r.Out.stderr, true}} {
		file, err := j.o.resultFile(s, to.errs)
		if err == nil && (!to.errs || !j.o.resultNames() || !to.spool.empty()) {
			err = to.spool.save(file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// status is the exit status of a job that ended for a reason, or with its input.
func (j *job) status(why error, interrupted bool) int {
	s := j.tally.Stats()
	_, failedBefore := j.known()
	switch {
	case interrupted:
		return cli.ExitInterrupted
	case errors.Is(why, syscall.EPIPE):
		return cli.ExitPipe
	case errors.Is(why, batch.ErrHalted) && j.o.halt.Successes > 0:
		return 0 // as many as were asked for
	case why != nil:
		return cli.ExitStopped
	case s.Failed > 0, j.o.mode == batch.Resume && failedBefore > 0:
		return cli.ExitFailed
	}
	return 0
}

// known is how many items the log had when it was opened.
func (j *job) known() (ok, failed int) {
	if j.log.Log == nil {
		return 0, 0
	}
	return j.log.OK, j.log.Failed
}

// report says how it went, and how to go on.
func (j *job) report(status int, why error, args []string) string {
	text := name + ": " + j.summary() + "\n"
	if why != nil && !errors.Is(why, batch.ErrStopped) && !errors.Is(why, context.Canceled) {
		text += name + ": ended early: " + reason(why) + "\n"
	}
	if _, failedBefore := j.known(); j.o.mode == batch.Resume && failedBefore > 0 {
		text += name + fmt.Sprintf(": %d of those in the log failed before: -resume-failed runs them again\n", failedBefore)
	}
	if n := j.tally.Stats().Repeated; n > 0 {
		text += name + fmt.Sprintf(": %d of those skipped equal an item before them, and the log does not say that they were run; -key seq tells equal items apart, from the first run on\n", n)
	}
	for _, line := range j.runner.learned() {
		text += name + ": " + line + "\n"
	}
	text += j.in.fleet.report()
	if j.in.returns.Load() {
		text += name + ": items end with a carriage return, as in files of Windows: -crlf removes it\n"
	}
	switch {
	case status == 0 || status == cli.ExitFailed:
	case j.in.fleet != nil:
		text += name + ": what is left is in the queue: the same command goes on\n"
	case status == cli.ExitPipe && j.log.Log == nil: // as with any program before head(1)
	case j.log.Log == nil:
		text += name + ": there is no -log, so it cannot be resumed\n"
	case j.in.file != nil && j.o.in == "-":
		text += name + ": resume it, with the same input, by\n\t" + cli.ResumeCommand(args, j.o.mode != batch.Fresh) + "\n"
	default:
		text += name + ": resume it by\n\t" + cli.ResumeCommand(args, j.o.mode != batch.Fresh) + "\n"
	}
	return text
}

// stats are the counts at the end.
func (j *job) stats() batch.Stats {
	s := j.tally.Stats()
	s.OK -= j.unprinted
	s.Unfinished += j.unprinted
	return s
}

func (j *job) summary() string {
	s := j.stats()
	if s.OK+s.Failed+s.Skipped+s.Unfinished == 0 && j.in.fleet != nil && j.in.err() == nil {
		return "the queue has no items"
	}
	if s.OK+s.Failed+s.Skipped+s.Unfinished == 0 && j.in.total.Load() == 0 {
		return "the input has no items"
	}
	text := fmt.Sprintf("%d ok, %d failed", s.OK, s.Failed)
	if left := j.unfinished(s); left > 0 {
		text += fmt.Sprintf(", %d unfinished", left)
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	if s.Retries > 0 {
		text += fmt.Sprintf(", %d retries", s.Retries)
	}
	if s.Service.Count() > 0 {
		text += fmt.Sprintf("; p95: late < %v, attempt < %v",
			cli.Roughly(s.Queued.Quantile(0.95)), cli.Roughly(s.Service.Quantile(0.95)))
	}
	return text
}

// unfinished is how many items are left, with those that were not read if it is known how
// many there are.
func (j *job) unfinished(s batch.Stats) int64 {
	if total := j.in.total.Load(); total != unknown {
		return total - s.OK - s.Failed - s.Skipped
	}
	return s.Unfinished
}
