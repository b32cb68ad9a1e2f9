package live

import (
	"net/http"
	"strings"
	"testing"
)

// A page of its own is there until it is stopped, viewers or not, and answers only to the
// names of this machine.
func TestHandler_Listen(t *testing.T) {
	h := New()
	url, stop, err := h.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") && !strings.HasPrefix(url, "http://[::1]:") {
		t.Errorf("without a host it is at %s", url)
	}
	for host, status := range map[string]int{
		"": 200, "localhost": 200, "localhost:80": 200, "[::1]:80": 200, "[::1]": 200, "127.0.0.1": 200,
		"evil.example": 403, "evil.example:80": 403, "localhost.evil.example": 403, "10.0.0.1": 403,
	} {
		req, _ := http.NewRequest("GET", url, nil)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%q: %s", host, resp.Status)
		}
	}
	v := watch(t, url+"?events=1")
	defer v.resp.Body.Close()
	v.next()
	http.DefaultClient.CloseIdleConnections()
	stop()
	if _, err := http.Get(url); err == nil {
		t.Error("it is still there")
	}
	for _, address := range []string{"", "8080", "localhost:http:x", "localhost:99999"} {
		if _, _, err := New().Listen(address); err == nil || !strings.HasPrefix(err.Error(), "live: ") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
