package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/examples/internal/apiserver"
)

// together is a run of several processes that share the limits. Each is this same
// program, with a share of the items; here is the server that they call, which sees
// what they do together.
type together struct {
	options
	shared *shared
	screen *screen
	server *apiserver.Server

	mu  sync.Mutex
	all []*instance // those that were started, in order
}

// instance is one of the processes.
type instance struct {
	share
	cmd    *exec.Cmd
	out    string // its file; "": none
	notify func(string)

	stdout bytes.Buffer
	read   sync.WaitGroup
	figures
	reported bool  // whether there are figures
	err      error // how it ended, if not well
}

// agentOf is how an instance calls itself.
func agentOf(s share) string { return "apiclient " + s.String() }

func (t *together) run(stdout io.Writer) (status int, err error) {
	if t.server, err = newServer(t.options); err != nil {
		return exitUsage, err
	}
	if err := t.server.Listen(); err != nil {
		return exitLost, err
	}
	defer t.server.Close() // too late to report its error

	interrupt := catchInterrupt(t.interrupt, t.screen.print)
	defer interrupt.close()
	over := make(chan struct{})
	twice := context.AfterFunc(interrupt.calls, func() { t.interrupt(); close(over) })
	start := time.Now()
	for i := range t.instances {
		in, err := t.start(share{i + 1, t.instances})
		if err != nil {
			t.kill()
			t.wait()
			return exitLost, fmt.Errorf("starting instance %d: %w", i+1, err)
		}
		t.mu.Lock()
		t.all = append(t.all, in)
		t.mu.Unlock()
	}
	if interrupt.happened() {
		t.interrupt() // those that were not there yet
	}
	stopProgress := watch(t.screen, fmt.Sprintf("%d instances", t.instances), t.options, t.now)
	killed := t.wait()
	stopProgress()
	wall := time.Since(start)
	if !twice() {
		<-over
	}
	if killed > 0 {
		t.screen.print(messages + t.shared.returned(t.concurrency))
	}
	r := t.result(wall)
	t.screen.print(t.table(r))
	if t.json {
		err = t.writeJSON(stdout, r)
	}
	switch err = errors.Join(err, t.screen.failed()); {
	case interrupt.happened():
		return exitInterrupted, err
	case r.Lost > 0 || err != nil:
		return exitLost, err
	}
	return 0, nil
}

// start starts an instance.
func (t *together) start(s share) (*instance, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in := &instance{share: s, notify: t.screen.print}
	if t.out != "" {
		in.out = t.out + "." + strconv.Itoa(s.number)
	}
	in.cmd = exec.Command(program,
		"-n", strconv.Itoa(t.n), "-rate", strconv.FormatInt(t.rate.Count, 10), "-per", t.rate.Per.String(),
		"-concurrency", strconv.FormatInt(t.concurrency, 10), "-workers", strconv.Itoa(t.workers),
		"-redis", t.options.redis, "-name", t.budget, "-share", s.String(),
		"-url", t.server.URL()+"/items/{}", "-out="+in.out, "-json")
	apart(in.cmd)
	in.cmd.Stdout = &in.stdout
	said, err := in.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := in.cmd.Start(); err != nil {
		return nil, err
	}
	in.read.Go(func() { in.follow(said) })
	return in, nil
}

// follow passes on what an instance prints in addition to its progress and its table,
// which here is one of many.
func (in *instance) follow(said io.Reader) {
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), messages)
		if !ok {
			if text, ok = strings.CutPrefix(text, "gate lost "); ok {
				text = "lost " + text
			}
		}
		if ok {
			in.notify(fmt.Sprintf("instance %d: %s", in.number, text))
		}
	}
	_, _ = io.Copy(io.Discard, said) // after a line that is too long
}

// interrupt passes a Ctrl-C on.
func (t *together) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, in := range t.all {
		_ = in.cmd.Process.Signal(os.Interrupt) // one that has ended needs none
	}
}

// kill ends those that are there.
func (t *together) kill() {
	for _, in := range t.all {
		_ = in.cmd.Process.Kill()
	}
}

// wait waits for all of them, reads their figures, and returns the number of those killed.
func (t *together) wait() (killed int) {
	var wg sync.WaitGroup
	for _, in := range t.all {
		wg.Go(func() {
			in.read.Wait()
			in.err = in.cmd.Wait()
			var runs struct {
				Gate *figures `json:"gate"`
			}
			if json.Unmarshal(in.stdout.Bytes(), &runs) == nil && runs.Gate != nil {
				in.figures, in.reported = *runs.Gate, true
			}
			if in.killed() {
				in.notify(fmt.Sprintf("%sinstance %d ended with %v: its items are lost, and its permits come back within %v", messages, in.number, in.err, lease))
			}
		})
	}
	wg.Wait()
	for _, in := range t.all {
		if in.killed() {
			killed++
		}
	}
	return killed
}

// killed reports whether the instance ended without a word.
func (in *instance) killed() bool {
	return in.err != nil && !in.reported && in.cmd.ProcessState.ExitCode() < 0
}

// now is the state of the run for the progress line: what the server knows.
func (t *together) now() moment {
	m := t.server.Now()
	return moment{done: m.Served, inFlight: m.InFlight, waiting: unknown, sent: m.Calls, throttled: m.Throttled}
}

// returned waits until everything that was leased could be leased again, and reports the time that
// took.
func (s *shared) returned(all int64) string {
	began := time.Now()
	l, err := s.semaphore.Acquire(context.Background(), all, 2*lease)
	took := time.Since(began).Round(100 * time.Millisecond)
	if err != nil {
		return fmt.Sprintf("the permits did not come back within %v: %v", took, err)
	}
	l.Release()
	return fmt.Sprintf("%d of %d permits are back, %v after the last instance ended", all, all, took)
}
