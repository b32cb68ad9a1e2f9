package batch

import (
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("-rate 300/20s -jobs 4 -retries 2 -log l -resume-failed -halt now,fail=3 -- grep -c {.} x"))
	if err != nil {
		t.Fatal(err)
	}
	c, ok := o.task.(command)
	if o.rate != (sluice.Rate{Count: 300, Per: 20 * time.Second}) || o.jobs != 4 || o.policy().Attempts != 3 || o.mode != batch.ResumeFailed ||
		o.halt != (batch.Halt{Now: true, Fails: 3}) || o.in != "-" || !ok || strings.Join(c.args, " ") != "grep -c {.} x" {
		t.Errorf("%+v", o)
	}
	if o, err = parseOptions([]string{"echo", "hello"}); err != nil || strings.Join(o.task.(command).args, " ") != "echo hello {}" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions(strings.Fields("-rate auto echo")); err != nil || o.rate != (sluice.Rate{}) {
		t.Errorf("%+v, %v", o.rate, err)
	}
	if _, err := parseOptions([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}

// The items behind ::: are no arguments of the command, which -url has none of.
func TestParseOptions_Items(t *testing.T) {
	for _, args := range []string{"-jobs 2 echo x {} ::: a b", "-url http://h/{} ::: a b"} {
		o, err := parseOptions(strings.Fields(args))
		if err != nil || strings.Join(o.given, " ") != "a b" {
			t.Errorf("%s: %q, %v", args, o.given, err)
		}
		if c, ok := o.task.(command); ok && strings.Join(c.args, " ") != "echo x {}" {
			t.Errorf("%s: %q", args, c.args)
		}
	}
}

// Behind -- a command may have the items of GNU parallel.
func TestParseOptions_Parallel(t *testing.T) {
	if o, err := parseOptions(strings.Fields("-- parallel echo ::: a {}")); err != nil || len(o.task.(command).args) != 5 {
		t.Errorf("%+v, %v", o.task, err)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"": "give a command or a -url", "-jobs 0 -- x": "-jobs 0", "-jobs 100001 -- x": "-jobs 100001", "-rate fast -- x": "-rate",
		"-burst 0 -- x": "-burst 0", "-retries -1 -- x": "-retries -1", "-backoff 0s -- x": "-backoff 0s", "-backoff 1m -- x": "-backoff 1m",
		"-timeout -1s -- x": "-timeout -1s", "-max-wait 0s -url http://h/{}": "-max-wait 0s", "-halt sometime -- x": "-halt",
		"-resume -- x": "give a -log", "-log l -resume -retry-failed -- x": "only one", "-url http://h/{} -- x": "only one",
		"-url http://h/": "no {}", "-url ftp://h/{}": "want http", "-url {}/x -method G?T": "-url", "-url host/{}": "want http",
		"-method PUT -- x": "-method without -url", "-header A:b -- x": "-header without -url", "-url http://h/{} -header x": "Name: value",
		"-bogus": "bogus", "-rate 5 -- x": "did you mean 5/s?", "-rate 0.5/s -- x": "did you mean 1/2s?", "-timeout 5 -- x": "did you mean 5s?",
		"echo ::: a ::: b": "only one list", "echo :::+ a": "only one list", "echo :::": "no items follow", "::: a": "give a command", "-in f echo ::: a": "only one of them", "-url http://h/{} x ::: a": "only one of them", "echo :::: f g": "cat f g | sluice batch -- echo",
		"-max-time -1s -url http://h/{}": "-max-time -1s", "-max-time 1s -- x": "without -url", "-max-body 1M -- x": "without -url", "-max-body much -url http://h/{}": "want bytes",
		"-line-buffer -ordered -- x": "only one", "-line-buffer -results d -- x": "only one", "-line-buffer -url http://h/{}": "for commands",
		"-retry-on x -- x": "want statuses", "-retry-on 75,,76 -- x": "want statuses", "-retry-on 9-3 -- x": "want statuses", "-retry-on 0 -- x": "0 is not from 1", "-retry-on 75-256 -- x": "256 is not",
		"-retry-on 75 -url http://h/{}": "75 is not from 400", "-retry-on timeout -url http://h/{}": "for commands", "-retry-on 6xx -url http://h/{}": "699 is not from 400 to 599", "-retry-on -1 -- x": "want statuses", "-retry-on 99999999999 -- x": "want statuses",
		"-key x -- x": "item or seq", "-aside -1 -url http://h/{}": "-aside -1",
	} {
		_, err := parseOptions(strings.Fields(args))
		if !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", args, err, want)
		}
	}
}

// A host that accepts a connection and is silent must not hold jobs for good.
func TestParseOptions_Timeout(t *testing.T) {
	for args, want := range map[string]time.Duration{"-url {}": time.Minute, "-timeout 0s -url {}": 0, "-- x": 0, "-timeout 3s -- x": 3 * time.Second} {
		if o, err := parseOptions(strings.Fields(args)); err != nil || o.timeout != want {
			t.Errorf("%s: %v, %v", args, o.timeout, err)
		}
	}
}

// What a log may be resumed with: the same task, at whatever rate.
func TestFingerprint(t *testing.T) {
	config := func(args string) string {
		o, err := parseOptions(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		return o.task.config()
	}
	same := []string{"-rate 1/s -- echo {} x", "-rate 9/s -jobs 2 -ordered -- echo {} x"}
	if config(same[0]) != config(same[1]) {
		t.Error("the rate counts")
	}
	all := []string{
		same[0], "echo x {}", "echo {}", "echo", "-url http://h/{}", "-url http://h/{} -method POST", "-url http://h/{} -body b", "-url http://h/{} -header A:b",
	}
	seen := make(map[string]string)
	for _, args := range all {
		if other, ok := seen[config(args)]; ok && args != "echo" {
			t.Errorf("%q is %q", args, other)
		}
		seen[config(args)] = args
	}
}
