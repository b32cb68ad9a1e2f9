package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

var binary string // the program

func TestMain(m *testing.M) { os.Exit(built.Test(m, "download", &binary, main)) }

// TestRun: what fails once is fetched again, and an error of one download is returned.
func TestRun(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/missing":
			http.NotFound(w, r)
		case calls.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	if err := downloadAll(t.Context(), []string{server.URL + "/a", server.URL + "/b"}); err != nil || calls.Load() != 3 {
		t.Errorf("%v after %d calls, want 3", err, calls.Load())
	}
	if err := downloadAll(t.Context(), []string{server.URL + "/missing"}); err == nil {
		t.Error("no error for a page that is missing")
	}
}

// TestUsage: without URLs, and with -h, it says how to use it.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"-h"}} {
		out, err := exec.Command(binary, args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !bytes.HasPrefix(out, []byte("usage: download URL")) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}
