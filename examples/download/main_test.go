package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

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
