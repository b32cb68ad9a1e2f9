package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-n 0", "-n 0: must be above 0"},
		{"-workers 0", "-workers 0: must be above 0"},
		{"-goroutines 0", "-goroutines 0: must be above 0"},
		{"-kill -1s", "must not be negative"},
		{"-lease 1ms", "at least 100ms"},
		{"-catch-up -1s", "-catch-up -1s: must be 0s to 1s"},
		{"-catch-up 2s", "-catch-up 2s: must be 0s to 1s"},
		{"-rate unlimited", "must not be unlimited"},
		{"-rate fast", "fast"},
		{"x", `unexpected argument "x"`},
		{"worker -nats a -redis b", "needs -nats, -redis and -url"},
		{"worker -n 3", "-n"},
		{"queue", "-dir is missing"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(strings.Fields(c.args), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%s: exit status %d, stderr %q, want 2 and %q", c.args, status, stderr.String(), c.want)
		}
	}
}

func TestNoRedis(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{"-redis", "127.0.0.1:" + port}, &stdout, &stderr); status != exitLost || !strings.Contains(stderr.String(), "it does not answer") {
		t.Errorf("exit status %d, stderr %q", status, stderr.String())
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run([]string{"-h"}, &stdout, &stderr); status != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "sluice batch -queue") {
		t.Errorf("exit status %d, stderr %q, stdout %s", status, stderr.String(), stdout.String())
	}
}
