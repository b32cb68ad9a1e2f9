package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The program crawls its site over a real socket, and says how. How long that
// takes is the machine's affair.
func TestBinary(t *testing.T) {
	cmd := asProcess(t, "-delay", "20ms", "-depth", "1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text, err := os.ReadFile(filepath.Join(cmd.Dir, "crawl.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if pages := pagesIn(t, text); len(pages) != 10 {
		t.Errorf("%d pages", len(pages))
	}
	for _, want := range []string{
		"host  pages  failed", "at the server", "start.test", "endless.test", "Crawl-delay 1h0m0s is over -max-delay 30s: skipped",
		`http://broken.test/robots.txt: line 3: Crawl-delay of "soon": not a number of seconds`, "links not followed: deeper than -depth",
		"The pages are in crawl.jsonl.\n",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout.String())
		}
	}
	if !strings.HasPrefix(stderr.String(), "crawling the built-in site on 127.0.0.1:") {
		t.Errorf("stderr %q", stderr.String())
	}
}

// A table that cannot be written is no success.
func TestBinaryTableIsLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := asProcess(t, "-delay", "20ms", "-depth", "0")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	err = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); status != exitFailed || !strings.Contains(stderr.String(), "crawler: writing the table: ") {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
}

func TestBinaryStdout(t *testing.T) {
	cmd := asProcess(t, "-delay", "20ms", "-depth", "0", "-out", "-")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if pages := pagesIn(t, stdout.Bytes()); len(pages) != 1 || !strings.Contains(stderr.String(), "host  pages") {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestBinaryStatus(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		says   string
	}{
		{"-h", 0, "Exit status"},
		{"-bogus", 2, "crawler: flag provided but not defined: -bogus\nRun with -h"},
		{"a.test", 2, `crawler: "a.test": want http://host/`},
		{"-out no/such/folder", 1, "crawler: open no/such/folder"},
		// No server can listen there. That ends the request for robots.txt, and then
		// there is nothing to crawl.
		{"-delay 20ms http://127.0.0.1:0/", 1, "unreachable: skipped"},
		{"-delay 20ms http://127.0.0.1:0/", 1, "crawler: no page could be fetched"},
	} {
		cmd := asProcess(t, strings.Fields(test.args)...)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != test.status || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: status %d, %q", test.args, got, out)
		}
	}
}

func TestBinaryFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	cmd := asProcess(t, "-delay", "20ms", "-out", "/dev/full")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(string(out), "crawler: writing the pages: ") {
		t.Errorf("status %d, %q", got, out)
	}
}

// Interrupted it keeps what it has, and says how much is left.
func TestBinaryInterrupt(t *testing.T) {
	cmd := asProcess(t, "-delay", "29s") // the first page comes after that
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 9)
	if _, err := stderr.Read(said); err != nil || string(said) != "crawling " {
		t.Fatalf("%q, %v", said, err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(stderr); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(rest.String(), "crawler: interrupted") ||
		!strings.Contains(stdout.String(), "1 link not gone to: enough pages, or interrupted") {
		t.Errorf("status %d, stdout %q, stderr %q", got, stdout.String(), rest.String())
	}
}
