package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
)

// An output is what an item prints.
type output struct {
	stdout, stderr []byte
}

// A runner does the task for items.
type runner interface {
	run(ctx context.Context, s subject) (output, error)
	// paced says that run passes the gate by itself.
	paced() bool
	// pauses returns what is paused, apart from the gate.
	pauses() []pause
}

// A command is the template of one, run without a shell.
type command struct {
	args []string
}

func newCommand(args []string) (command, error) {
	if len(args) == 0 {
		return command{}, errors.New("give a command or a -url")
	}
	if !hasPlaceholder(strings.Join(args, " ")) {
		args = append(args[:len(args):len(args)], "{}")
	}
	return command{args}, nil
}

// expand returns the arguments for an item.
func (c command) expand(s subject) []string {
	args := make([]string, len(c.args))
	for i, arg := range c.args {
		args[i] = expand(arg, s, verbatim)
	}
	return args
}

func (c command) describe(s subject) string { return quoteAll(c.expand(s)) }

func (c command) config() string { return "command\x00" + strings.Join(c.args, "\x00") }

// start looks for the program, if it is the same for all items: otherwise each
// of them would fail, with all its retries.
func (c command) start(options, *sluice.Gate) (runner, error) {
	if !hasPlaceholder(c.args[0]) {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (command) paced() bool     { return false }
func (command) pauses() []pause { return nil }

// killAfter is how long a cancelled command has to end by itself.
const killAfter = 2 * time.Second

func (c command) run(ctx context.Context, s subject) (output, error) {
	args := c.expand(s)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = killAfter
	alone(cmd)
	err := cmd.Run()
	out := output{stdout.Bytes(), stderr.Bytes()}
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		killRest(cmd)
		// Else it would say "signal: terminated", and not whose doing it was.
		return out, fmt.Errorf("%w (%w)", ctx.Err(), err)
	case errors.Is(err, exec.ErrNotFound):
		return out, sluice.Permanent(err)
	}
	return out, err
}
