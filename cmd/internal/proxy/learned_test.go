package proxy

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// memoryOf returns a memory for one run.
func memoryOf(t *testing.T) *memory {
	t.Helper()
	m, err := newMemory("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A second run begins at the limit and not with a burst of
// refusals.
func TestMemory_OutlivesARestart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	var tenants [2]string
	var refused [2]int
	for run := range 2 {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, &options{state: folder, patience: time.Hour}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second, Burst: 2}))
			var all sync.WaitGroup
			for range 300 {
				all.Go(func() {
					if got := h.call("GET", "/api/", ""); got.StatusCode != 200 {
						t.Errorf("%d", got.StatusCode)
					}
				})
			}
			all.Wait()
			refused[run] = h.upstream.Record().Throttled()
			if err := h.proxy.memory.save(); err != nil {
				t.Error(err)
			}
			tenants[run] = h.proxy.tenants.digest("x")
		})
	}
	if refused[1] > refused[0] || refused[1] > 9 {
		t.Errorf("refused %d, then %d", refused[0], refused[1])
	}
	if tenants[0] != tenants[1] {
		t.Error("tenants have other names after a restart")
	}
	for _, name := range []string{learnedFile, keyFile} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if all, _ := os.ReadDir(folder); len(all) != 2 {
		t.Errorf("%v", all)
	}
}

func TestMemory_BadFiles(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{learnedFile: "{", keyFile: "short"} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newProxy(&options{state: folder, timeout: time.Minute}); err == nil || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(file)
	}
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newProxy(&options{state: filepath.Join(folder, "file"), timeout: time.Minute}); err == nil {
		t.Error("a file is accepted as a folder")
	}
	// A snapshot of another version does not prevent the start.
	if err := os.WriteFile(filepath.Join(folder, learnedFile), []byte(`{"version":1,"gates":{"http://api.test":"AAAA"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{state: folder})
		if got := h.call("GET", "/api/", ""); got.StatusCode != 200 {
			t.Errorf("%d", got.StatusCode)
		}
		os.RemoveAll(folder)
		h.proxy.memory.written = "something else"
		if err := h.proxy.memory.save(); err == nil {
			t.Error("the folder is gone, and nobody says so")
		}
	})
}

func TestMetricsAndPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.On(1, sluicetest.Reply(429, "", "Retry-After: 30")))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { h.call("GET", "/api/", "") })
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		h.call("GET", "/api/", "", "Sluice-Patience: 1")
		got := h.call("GET", "/metrics", "").body
		for _, want := range []string{
			`sluice_paused{gate="http://api.test"} 1`, "sluice_proxy_calls 3\n", "sluice_proxy_calls_waiting 2\n",
			`sluice_proxy_responses_total{route="api",by="proxy",code="429"} 1`, `sluice_proxy_wait_seconds_count{route="api"} 1`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		page := h.call("GET", "/live", "")
		if page.StatusCode != 200 || !strings.Contains(page.body, "http://api.test") || !strings.Contains(page.body, "tenant "+nobody) {
			t.Errorf("%d %s", page.StatusCode, page.body)
		}
		if line, _ := h.proxy.line(0); !strings.HasPrefix(line, "0/s, 3 calls under way, 2 wait; http://api.test: ") {
			t.Errorf("%q", line)
		}
		all.Wait()
		h.proxy.page.Close()
	})
}

func TestStatus(t *testing.T) {
	var b strings.Builder
	s := &statusLine{to: &b}
	s.show("")
	s.Write([]byte("a\n"))
	s.show("line")
	s.Write([]byte("b\n"))
	s.show("")
	s.Write([]byte("c\n"))
	const clear = "\r\x1b[K"
	if want := "a\n" + clear + "line" + clear + "b\nline" + clear + "c\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	s.follow(nil, nil)()
}
