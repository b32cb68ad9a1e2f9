package batch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// controlEvery is how often the file of -control is read.
const controlEvery = time.Second

// control changes the rate and the number of jobs as the file of -control says, until the
// function that it returns is called. A file that is not there says nothing.
func (j *job) control(log func(string)) (stop func()) {
	if j.o.control == "" {
		return func() {}
	}
	quit := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		tick := time.NewTicker(controlEvery)
		defer tick.Stop()
		before := ""
		for {
			text, err := os.ReadFile(j.o.control)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				text = []byte("cannot be read: " + err.Error())
			}
			if string(text) != before {
				before = string(text)
				log("-control: " + cli.Plain(j.obey(before), cli.MostOfError))
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); reading.Wait() }
}

// respect does what the lines of a control file say, up to one that is wrong, and returns what
// it did.
func (j *job) obey(text string) string {
	var did []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := j.change(line); err != nil {
			return strings.Join(append(did, fmt.Sprintf("%q: %v", line, err)), ", ")
		}
		did = append(did, line)
	}
	return strings.Join(did, ", ")
}

// change does what one line says.
func (j *job) change(line string) error {
	what, value, _ := strings.Cut(line, " ")
	switch value = strings.TrimSpace(value); what {
	case "rate":
		var rate sluice.Rate
		if err := cli.Rate(&rate).Set(value); err != nil {
			return err
		}
		return j.setRate(rate)
	case "jobs":
		n, _ := strconv.ParseInt(value, 10, 64) // 0 if it is no number
		return j.setJobs(n)
	}
	return errors.New("want a line such as rate 5/s or jobs 8")
}

// setRate and setJobs change a running job.
func (j *job) setRate(rate sluice.Rate) error {
	if pacer := j.in.fleet.sharedPacer(); pacer != nil {
		return pacer.SetRate(j.o.withBurst(rate))
	}
	return j.gate.SetRate(j.o.withBurst(rate))
}

func (j *job) setJobs(n int64) error {
	if n < 1 || n > mostJobs {
		return fmt.Errorf("want a number of jobs from 1 to %d", mostJobs)
	}
	return j.gate.SetConcurrency(n)
}
