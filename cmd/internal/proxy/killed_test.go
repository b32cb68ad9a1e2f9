package proxy

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// The proxy is killed while an SDK has 300 calls under way, and begins again: the SDK, which makes up
// to three attempts as it comes, gets all of them, but those whose response had begun, which it does
// not try again.
func TestFull_Killed(t *testing.T) {
	needsFull(t)
	folder := installSDKs(t)
	binary := filepath.Join(t.TempDir(), "sluice")
	if out, err := exec.Command("go", "build", "-o", binary, "../../sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	limited := sluicetest.NewServer(sluicetest.Enforce(sluicetest.Limit{Count: 40, Per: time.Second, Burst: 10}), sluicetest.Handler(http.HandlerFunc(fake)))
	defer limited.Close()
	server := httptest.NewServer(limited)
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, state := l.Addr().String(), t.TempDir()
	l.Close()
	start := func() *exec.Cmd {
		cmd := exec.Command(binary, "proxy", "-listen", address, "-state", state, "-route", "/sdk="+server.URL+" preset=openai")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() && !strings.Contains(lines.Text(), "http://") {
		}
		go func() {
			for lines.Scan() { // until it ends
			}
		}()
		return cmd
	}
	first := start()
	sdk := exec.Command("node", filepath.Join(folder, "calls.mjs"), "openai", "http://"+address+"/sdk", "300")
	ended := make(chan []byte, 1)
	go func() {
		out, err := sdk.Output()
		if err != nil {
			t.Error(err)
		}
		ended <- out
	}()
	for len(limited.Record().Requests) < 100 {
		time.Sleep(10 * time.Millisecond) // a condition, not a time
	}
	first.Process.Kill()
	first.Wait()
	second := start()
	var said struct {
		OK    int
		Error string
	}
	out := <-ended
	const begun = 10 // responses: at most the burst of the server
	if err := json.Unmarshal(out, &said); err != nil || said.OK < 300-begun || said.OK < 300 && said.Error != "TypeError: terminated" {
		t.Errorf("%s, %v: want 300 of 300, but for the responses that were cut", out, err)
	}
	second.Process.Signal(syscall.SIGTERM)
	if err := second.Wait(); err != nil {
		t.Errorf("the end after SIGTERM: %v", err)
	}
	t.Logf("%s: the server got %d requests for 300 calls", out, len(limited.Record().Requests))
}
