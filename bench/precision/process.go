package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
)

// The limiters run in their own process. The one that orders also watches
// the machine, and stops the other where a cell says so: neither costs the
// measured process anything, and a shell that waits for us does not see one of
// its own children stop.

// A hand is that process.
type hand struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	to  *json.Encoder
	of  *json.Decoder
}

func hire() (*hand, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hand{cmd: exec.Command(program, worker)}
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.to, h.of = json.NewEncoder(h.in), json.NewDecoder(out)
	return h, h.cmd.Start()
}

// dismiss ends the process.
func (h *hand) dismiss() {
	_ = h.in.Close()
	_ = h.cmd.Wait()
}

// measure has one run of one cell measured.
func (h *hand) measure(o order, run int) (c results.Cell, err error) {
	end, err := h.load(o, run)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := h.to.Encode(o); err != nil {
		return c, err
	}
	frozen := make(chan error, 1)
	if o.Freeze > 0 {
		time.AfterFunc(o.Dur/2, func() { frozen <- machine.Stop(h.cmd.Process, o.Freeze) })
	} else {
		frozen <- nil
	}
	if err := h.of.Decode(&c); err != nil {
		return c, fmt.Errorf("the measured process: %w", err)
	}
	return c, <-frozen
}

// work is the measured process: it takes orders until there are no more.
func work(in io.Reader, out io.Writer) {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if err == io.EOF {
				return
			}
			fmt.Fprintln(os.Stderr, "precision:", err)
			os.Exit(1)
		}
		if err := answers.Encode(measure(o)); err != nil {
			return // the reader is gone
		}
	}
}
