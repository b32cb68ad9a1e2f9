package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the program: what fleet starts is itself.
func TestMain(m *testing.M) {
	if addr := os.Getenv(asynqRole); addr != "" {
		asynqWorker(addr)
		return
	}
	if os.Getenv(tied) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// runJSON runs the program, all but its children in this process.
func runJSON(t *testing.T, args ...string) (status int, r figures) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(append(args, "-json"), &stdout, &stderr)
	t.Logf("exit status %d\n%s", status, stderr.String())
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, stdout.String())
	}
	return status, r
}
