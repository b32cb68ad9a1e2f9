package batch

import (
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/observe/live"
)

// serveLive serves the page of -live until the function that it returns is called.
func (j *job) serveLive(stderr io.Writer) (stop func(), err error) {
	gates := []iter.Seq[live.Gate]{j.wholeJob()}
	if c, ok := j.runner.(*caller); ok {
		gates = append(gates, live.FromTransport(c.transport))
	}
	return cli.ServeLive(name, j.o.live, j.o.liveToken, stderr, gates...)
}

// wholeJob is the gate that all attempts pass.
func (j *job) wholeJob() iter.Seq[live.Gate] {
	return func(yield func(live.Gate) bool) {
		yield(live.Gate{Stats: j.gate.Stats(), Key: "all attempts", Control: steering{j}})
	}
}

// steering lets the page change what -control does, and pause the job.
type steering struct{ *job }

func (s steering) PauseUntil(t time.Time, why string) {
	s.gate.PauseUntil(t, why)
	s.note("paused until " + ceil(t))
}

func (s steering) Resume() {
	s.gate.Resume()
	s.note("resumed")
}

func (s steering) SetRate(rate sluice.Rate) error { return s.said("rate", s.setRate(rate), rate) }

func (s steering) SetConcurrency(n int64) error { return s.said("jobs", s.setJobs(n), n) }

// said prints what was changed.
func (s steering) said(what string, err error, to any) error {
	if err == nil {
		s.note(fmt.Sprintf("%s %v", what, to))
	}
	return err
}

// note prints what was done on the page, with the news of hosts.
func (s steering) note(what string) {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.hosts.say("-live:", what)
}
