package main

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	for name := range scenes {
		if err := run([]string{name, "2"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, bad := range [][]string{nil, {"do"}, {"do", "x"}, {"dont", "1"}} {
		if err := run(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
