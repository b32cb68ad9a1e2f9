package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// An output is what an item prints.
type output struct {
	stdout, stderr spool
	response       int   // the status of the response, 0 if there is none
	ended          bool  // a command has ended
	waits          bool  // it is in the backlog
	unprinted      error // why it was not printed with -line-buffer, or nil
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
}

// A command is the template of one, run by a shell or, if that is "", without one.
type command struct {
	args  []string
	shell string
}

func newCommand(args []string, shell string, numbered bool) (command, error) {
	if len(args) == 0 {
		return command{}, errors.New("give a command or a -url")
	}
	if !hasPlaceholder(strings.Join(args, " "), numbered) {
		args = append(args[:len(args):len(args)], "{}")
	}
	return command{args, shell}, nil
}

// expand returns the arguments for an item.
func (c command) expand(s subject) []string {
	if c.shell != "" {
		return []string{c.shell, "-c", expand(strings.Join(c.args, " "), s, quoteInShell)}
	}
	args := make([]string, 0, len(c.args)+len(s.items))
	for _, arg := range c.args {
		args = append(args, s.arguments(arg)...)
	}
	return args
}

func (c command) describe(s subject) string { return cli.QuoteAll(c.expand(s)) }

func (c command) config() string {
	text := "command\x00" + strings.Join(c.args, "\x00")
	if c.shell != "" {
		text += "\x00shell\x00" + c.shell
	}
	return text
}

// start looks for the program, if it is the same for all items, and for room for outputs:
// otherwise each item would fail, with all its retries.
func (c command) start(j *job) (runner, error) {
	if c.shell != "" {
		if _, err := exec.LookPath(c.shell); err != nil {
			return nil, fmt.Errorf("-shell: %w", err)
		}
	} else if _, err := exec.LookPath(c.args[0]); err != nil {
		if words := strings.Fields(c.args[0]); len(words) > 1 {
			if _, notFound := exec.LookPath(words[0]); notFound == nil {
				return nil, fmt.Errorf("there is no program %q: commands run without a shell; did you mean %s, or -shell sh %s?", c.args[0], c.args[0], cli.Quote(c.args[0]))
			}
		}
		if !hasPlaceholder(c.args[0], true) {
			if errors.Is(err, exec.ErrNotFound) {
				err = fmt.Errorf("%w%s", err, hintOfFile(c.args[0]))
			}
			return nil, err
		}
	}
	file, err := tempFile()
	if err != nil {
		return nil, fmt.Errorf("outputs are kept in temporary files: %w", err)
	}
	closeTemp(file)
	all := &commands{command: c, timeout: j.o.timeout, stops: &j.stops, failures: &j.failures}
	if given := &j.o.retryOn; given.text != "" {
		all.retryOn = given
	}
	if j.o.lineBuffer {
		all.follow = j.follower
	}
	return all, nil
}

// hintOfFile says how to read items from name, which was given as a command, if it is a file.
func hintOfFile(name string) string {
	if about, err := os.Stat(name); err != nil || !about.Mode().IsRegular() {
		return ""
	}
	return "; to read items from a file, write -in " + cli.Quote(name)
}

// commands runs a command for each item.
type commands struct {
	command
	timeout  time.Duration // 0: none
	stops    *stops
	failures *failures
	follow   func(s subject) *follower // nil unless -line-buffer
	retryOn  *retryOn                  // nil for all
	room     room
}

func (*commands) paced() bool     { return false }
func (*commands) pauses() []pause { return nil }

func (c *commands) learned() []string { return c.room.says() }

// Nothing is known of what delays a command.
func (*commands) group() func(item) string { return nil }

// killAfter is how long a canceled command has to end by itself.
const killAfter = 2 * time.Second

// run runs the command. If the system has no room for it, it waits until another one has ended.
func (c *commands) run(ctx context.Context, s subject) (out output, err error) {
	c.room.use(ctx, func() (nothingLeft bool) {
		var began bool
		out, began, err = c.once(ctx, s)
		return !began && isScarce(err)
	})
	if err != nil && ctx.Err() == nil {
		c.failures.add("", reason(err))
		if c.retryOn != nil && !c.retryOn.covers(err) {
			err = sluice.Permanent(err)
		}
	}
	return out, err
}

// The causes for which a command is canceled.
var (
	errTimeout = errors.New("-timeout")
	errUnread  = errors.New("its output could not be printed")
	errAsks    = errors.New("it asks for input on the terminal, and would wait for ever: commands that run beside each other get none. See to it that it need not ask, as ssh -o BatchMode=yes and sudo -n do, or use xargs")
)

// once runs a command once. It writes to files: then its end is the end of the command, as for
// a shell, although children of it may be running and may write on.
func (c *commands) once(ctx context.Context, s subject) (out output, began bool, err error) {
	args := c.expand(s)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = killAfter
	stdout, err := tempFile()
	if err != nil {
		return out, false, err
	}
	stderr, err := tempFile()
	if err != nil {
		closeTemp(stdout)
		return out, false, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	defer alone(cmd)()
	if err := cmd.Start(); err != nil {
		closeTemp(stdout)
		closeTemp(stderr)
		if ctx.Err() == nil && !isBusy(err) {
			err = sluice.Permanent(err)
		}
		return out, false, err
	}
	var broken error
	if c.follow != nil {
		end := c.follow(s).follow(stdout, stderr, func() { cancel(errUnread) })
		err = c.wait(ctx, cancel, cmd)
		out.unprinted = end()
		broken = errors.Join(out.unprinted, drop(stdout), drop(stderr))
	} else {
		err = c.wait(ctx, cancel, cmd)
		broken = errors.Join(out.stdout.adopt(stdout), out.stderr.adopt(stderr))
	}
	switch {
	case broken == nil:
	case err == nil:
		err = fmt.Errorf("its output: %w", broken)
	default:
		err = fmt.Errorf("%w; its output: %w", err, broken)
	}
	out.ended = true
	return out, true, err
}

// wait waits for the end of a command, which cancel cancels.
func (c *commands) wait(ctx context.Context, cancel context.CancelCauseFunc, cmd *exec.Cmd) error {
	if c.timeout > 0 {
		defer c.stops.after(c.timeout, func() { cancel(errTimeout) })()
	}
	remove := c.stops.add(cmd.Process.Pid, func() { cancel(errAsks) })
	err := cmd.Wait()
	remove()
	if err == nil || ctx.Err() == nil {
		return err
	}
	killRest(cmd)
	switch cause := context.Cause(ctx); cause { // else it would say "signal: terminated"
	case errTimeout:
		return timeoutError{err}
	case errAsks, errUnread:
		return sluice.Permanent(cause)
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), err)
}

// A timeoutError says that -timeout has ended a command.
type timeoutError struct{ error }

func (e timeoutError) Error() string   { return "it took longer than -timeout" }
func (e timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.error} }
