package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// An output is what an item prints.
type output struct {
	stdout, stderr spool
}

func (o *output) close() {
	o.stdout.close()
	o.stderr.close()
}

// A runner does the task for items.
type runner interface {
	run(ctx context.Context, s subject) (output, error)
	// paced says that run passes the gate by itself.
	paced() bool
	// pauses returns what is paused, apart from the gate.
	pauses() []pause
	// learned returns what was found out about the limits of hosts, a line for each.
	learned() []string
	// group returns the function for batch.Config.Group, or nil.
	group() func(item) string
	// lastFailure returns why the last attempt for a group failed, or "".
	lastFailure(group string) string
}

// A command is the template of one, run without a shell.
type command struct {
	args []string
}

func newCommand(args []string, numbered bool) (command, error) {
	if len(args) == 0 {
		return command{}, errors.New("give a command or a -url")
	}
	if !hasPlaceholder(strings.Join(args, " "), numbered) {
		args = append(args[:len(args):len(args)], "{}")
	}
	return command{args}, nil
}

// expand returns the arguments for an item.
func (c command) expand(s subject) []string {
	args := make([]string, 0, len(c.args)+len(s.items))
	for _, arg := range c.args {
		args = append(args, s.arguments(arg)...)
	}
	return args
}

func (c command) describe(s subject) string { return cli.QuoteAll(c.expand(s)) }

func (c command) config() string { return "command\x00" + strings.Join(c.args, "\x00") }

// start looks for the program, if it is the same for all items, and for room for outputs:
// otherwise each item would fail, with all its retries.
func (c command) start(options, *sluice.Gate) (runner, error) {
	if !hasPlaceholder(c.args[0], true) {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			return nil, err
		}
	}
	file, err := tempFile()
	if err != nil {
		return nil, fmt.Errorf("outputs are kept in temporary files: %w", err)
	}
	closeTemp(file)
	return c, nil
}

func (command) paced() bool     { return false }
func (command) pauses() []pause { return nil }

func (command) learned() []string { return nil }

// Nothing is known of what holds up a command.
func (command) group() func(item) string { return nil }

func (command) lastFailure(string) string { return "" }

// killAfter is how long a cancelled command has to end by itself.
const killAfter = 2 * time.Second

// run runs the command. It writes to files: then its end is the end of the command, as for
// a shell, although children of it may be running and may write on.
func (c command) run(ctx context.Context, s subject) (out output, err error) {
	args := c.expand(s)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = killAfter
	alone(cmd)
	stdout, err := tempFile()
	if err != nil {
		return out, err
	}
	stderr, err := tempFile()
	if err != nil {
		closeTemp(stdout)
		return out, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = wait(ctx, cmd)
	switch broken := errors.Join(out.stdout.adopt(stdout), out.stderr.adopt(stderr)); {
	case broken == nil:
	case err == nil:
		err = fmt.Errorf("its output: %w", broken)
	default:
		err = fmt.Errorf("%w; its output: %w", err, broken)
	}
	return out, err
}

// wait runs a command to its end.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil || busy(err) {
			return err
		}
		return sluice.Permanent(err)
	}
	err := cmd.Wait()
	if err != nil && ctx.Err() != nil {
		killRest(cmd)
		// Else it would say "signal: terminated", and not whose doing it was.
		if ctx.Err() == context.DeadlineExceeded {
			return timeoutError{err}
		}
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}

// A timeoutError is that of a command that -timeout has ended.
type timeoutError struct{ error }

func (e timeoutError) Error() string   { return "it took longer than -timeout" }
func (e timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.error} }
