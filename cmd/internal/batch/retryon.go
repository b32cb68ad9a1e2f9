package batch

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A retryOn is the value of -retry-on: statuses of commands or of responses. It is zero if the flag was
// not given.
type retryOn struct {
	text    string
	spans   []span
	timeout bool // what -timeout ended, too
}

// A span has the statuses from one to another one, both included.
type span struct{ from, to int }

func (r *retryOn) Set(text string) error {
	*r = retryOn{text: text}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "timeout" {
			r.timeout = true
			continue
		}
		s, err := parseSpan(part)
		if err != nil {
			return err
		}
		r.spans = append(r.spans, s)
	}
	return nil
}

func (r *retryOn) String() string { return r.text }

// parseSpan reads 75, 100-110 or 5xx.
func parseSpan(text string) (span, error) {
	from, to, isSpan := strings.Cut(text, "-")
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok && len(class) == 1 {
		from, to, isSpan = class+"00", class+"99", true
	}
	if !isSpan {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 15)
	b, err2 := strconv.ParseUint(to, 10, 15)
	if err1 != nil || err2 != nil || a > b {
		return span{}, fmt.Errorf("%q: want statuses, such as 75,100-110,timeout or 404,5xx", text)
	}
	return span{int(a), int(b)}, nil
}

// within returns an error if a status is not from least to most.
func (r *retryOn) within(least, most int) error {
	for _, s := range r.spans {
		if s.from < least || s.to > most {
			return fmt.Errorf("-retry-on %s: %d is not from %d to %d", r.text, outside(s, least), least, most)
		}
	}
	return nil
}

// outside returns the end of a span that is outside.
func outside(s span, least int) int {
	if s.from < least {
		return s.from
	}
	return s.to
}

// has reports whether a status is one of them.
func (r *retryOn) has(status int) bool {
	return slices.ContainsFunc(r.spans, func(s span) bool { return s.from <= status && status <= s.to })
}

// statuses returns the statuses of responses to be retried. 501 says that it would be the same
// again.
func (r *retryOn) statuses() (all []int) {
	for status := 400; status <= 599; status++ {
		if r.has(status) && status != 501 {
			all = append(all, status)
		}
	}
	return all
}

// covers reports whether a command that ended with an error is to be retried.
func (r *retryOn) covers(err error) bool {
	if _, late := errors.AsType[timeoutError](err); late {
		return r.timeout
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	return !ok || r.has(exitStatus(exit))
}

// exitStatus returns the status of a command; 128 and the number of the signal if one ended it.
func exitStatus(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
