package proxy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// configOf writes a file and returns the options of it and of other flags.
func configOf(t *testing.T, text string, args ...string) (*options, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return parseOptions(append([]string{"-config", file}, args...))
}

func TestConfig(t *testing.T) {
	o, err := configOf(t, `{"listen": "localhost:1", "patience": "2m", "drain": "5s", "allow-host": "sluice", "route": ["/a=http://a.test rate=5/s concurrency=2", "/b=http://b.test/v1 preset=openai"]}`, "-drain", "7s")
	if err != nil {
		t.Fatal(err)
	}
	if o.listen != "localhost:1" || o.patience != 2*time.Minute || o.drain != 7*time.Second || len(o.hosts) != 1 || len(o.routes) != 2 ||
		o.routes[0].limit.rate.Count != 5 || o.routes[0].limit.concurrency != 2 || o.routes[1].limit.preset != "openai" {
		t.Errorf("%+v", o)
	}
}

// A file is checked as a whole: its error has all that is wrong.
func TestConfig_Bad(t *testing.T) {
	for text, want := range map[string][]string{
		``:                           {"JSON object"},
		`[]`:                         {"JSON object"},
		`{} {}`:                      {"behind"},
		`{"patience": 5}`:            {`"patience": want a string`},
		`{"patience": ["1s", "2s"]}`: {`"patience": want one value`},
		`{"config": "x", "version": "true", "nonsense": "x", "drain": "x"}`:                                   {`"config"`, `"version"`, `"nonsense"`, `"drain"`},
		`{"route": ["/a=x", "/b=http://b rate=x", "/c=http://c preset=none", "/d=http://d concurrency=0 x"]}`: {"/a", "/b", "/c", "/d: concurrency=0", "x: want preset="},
		// A wrong flag does not hide wrong routes.
		`{"drain": "x", "route": ["/a=127.0.0.1:8000", "b http://b"]}`: {`"drain": invalid value`, "/a: want http://host", "want /NAME=URL"},
	} {
		_, err := configOf(t, text)
		if !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: no %s in %v", text, w, err)
			}
		}
		if n := strings.Count(err.Error(), cli.ErrUsage.Error()); n > 1 {
			t.Errorf("%s: says %d times that flags are invalid: %v", text, n, err)
		}
	}
	o := &options{timeout: time.Minute, routes: []routeSpec{routeOf(t, "/a=http://a.test rate=5/s"), routeOf(t, "/b=http://a.test/b")}}
	if _, err := newProxy(o); err == nil {
		t.Error("one server has two rates")
	}
}

// A reload drops no call, keeps unchanged routes, and changes nothing if it fails.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.On(1, sluicetest.Reply(429, "", "Retry-After: 30")))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if got := h.call("GET", "/api/", ""); got.StatusCode != 200 {
					t.Errorf("a call that waits: %d", got.StatusCode)
				}
			})
			synctest.Wait()
		}
		before := h.proxy.set.Load()
		changed := *before.o
		changed.listen = "localhost:1"
		if err := h.proxy.reload(&changed); err == nil || h.proxy.set.Load() != before {
			t.Errorf("another address: %v", err)
		}
		changed = *before.o
		changed.routes = []routeSpec{before.o.routes[0], routeOf(t, "/new=http://new.test")}
		changed.patience = time.Second
		if err := h.proxy.reload(&changed); err != nil {
			t.Fatal(err)
		}
		after := h.proxy.set.Load()
		if after.table.routes["api"].upstream != before.table.routes["api"].upstream {
			t.Error("a route that has not changed has another gate")
		}
		if got := h.call("GET", "/new/", ""); got.StatusCode != 200 {
			t.Errorf("a new route: %d", got.StatusCode)
		}
		if got := h.call("GET", "/other/", ""); got.StatusCode != 404 {
			t.Errorf("a route that is gone: %d", got.StatusCode)
		}
		if got := h.call("GET", "/api/", ""); got.StatusCode != 429 {
			t.Errorf("another patience: %d", got.StatusCode)
		}
		changed = *after.o
		changed.routes = []routeSpec{routeOf(t, "/api=http://api.test/v1 rate=5/s")}
		if err := h.proxy.reload(&changed); err != nil || h.proxy.set.Load().table.routes["api"].upstream == after.table.routes["api"].upstream {
			t.Errorf("another rate: %v", err)
		}
		all.Wait()
	})
}
