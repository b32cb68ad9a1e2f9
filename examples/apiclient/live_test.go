package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// While two calls are held by the server, the page says what the others wait for.
func TestBinaryLive(t *testing.T) {
	h := hold(t)
	p := startBinary(t, "stdout", h.args("-live", ":0")...)
	p.until(t, messages+"-live: http://")
	_, address, _ := strings.Cut(strings.TrimSpace(p.read.String()), "-live: ")
	<-h.arrived
	<-h.arrived
	for !strings.Contains(read(t, address), "for the concurrency of 2") {
		if t.Context().Err() != nil {
			t.Fatal(read(t, address))
		}
	}
	close(h.release)
	p.wait(t).wantStatus(t, 0)
}

func read(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
