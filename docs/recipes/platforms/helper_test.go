// Package platforms has recipes for programs in which others run your calls: Terraform providers, MCP servers and
// controllers. README.md shows their code. The libraries are large, so they have a module of their own.
package platforms

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// throttling runs f in virtual time, with a transport to an API that allows 20 calls a second and 20 together, and
// returns what the API saw.
func throttling(t *testing.T, f func(t *testing.T, base http.RoundTripper)) (seen sluicetest.Record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := sluicetest.NewServer(
			sluicetest.Enforce(sluicetest.Limit{Count: 20, Per: time.Second, Burst: 20}),
			sluicetest.Reply(http.StatusCreated, `{"id":"7"}`, "Content-Type: application/json"),
		)
		defer s.Close()
		base := s.Transport()
		defer base.CloseIdleConnections()
		f(t, base)
		seen = s.Record()
	})
	return seen
}

// inParallel calls f for 0 to n−1, as many at once as workers, and returns how many calls failed.
func inParallel(n, workers int, f func(i int) error) (failed int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				if f(i) != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return failed
}

// succeed checks that of 300 calls through Sluice none fails, in little more than the 14 s that the limit takes.
func succeed(t *testing.T, calls func(t *testing.T, base http.RoundTripper) (failed int)) {
	t.Helper()
	seen := throttling(t, func(t *testing.T, base http.RoundTripper) {
		began := time.Now()
		if failed := calls(t, base); failed > 0 {
			t.Errorf("%d of 300 calls failed", failed)
		}
		took := time.Since(began)
		if took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		t.Logf("300 calls took %v", took)
	})
	if n := created(seen); n != 300 {
		t.Errorf("%d things were created", n)
	}
}

// fail checks that of 300 calls without Sluice most fail.
func fail(t *testing.T, calls func(t *testing.T, base http.RoundTripper) (failed int)) {
	t.Helper()
	throttling(t, func(t *testing.T, base http.RoundTripper) {
		failed := calls(t, base)
		if failed < 200 {
			t.Errorf("only %d of 300 calls failed", failed)
		}
		t.Logf("%d of 300 failed", failed)
	})
}

// created is the number of calls that the API accepted.
func created(seen sluicetest.Record) int {
	return len(seen.Filter(func(r sluicetest.Request) bool { return r.Status == http.StatusCreated }).Requests)
}

// TestREADME: each block is the code of a test.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^<!-- (\\w+) -->\n```go\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		source, err := os.ReadFile(block[1] + "_test.go")
		if err != nil {
			t.Fatal(err)
		}
		code := regexp.MustCompile(`(?ms)^\t// begin$\n(.*?)^\t// end$`).FindStringSubmatch(string(source))
		if code == nil {
			t.Fatalf("%s_test.go has no code", block[1])
		}
		if want := regexp.MustCompile(`(?m)^\t`).ReplaceAllString(code[1], ""); block[2] != want {
			t.Errorf("%s: README.md has\n%s\nwant\n%s", block[1], block[2], want)
		}
	}
	if strings.Contains(string(page), "\r") {
		t.Error("README.md has carriage returns")
	}
}
