package main

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		list string
		real bool
		want string // names, or a part of the error
		err  string
	}{
		{list: "echo-200,xtime-20", want: "xtime-20 echo-200"}, // in the order of the zoo
		{list: "throttled-20*", want: "throttled-20 throttled-20b5 throttled-200b20 throttled-20b1"},
		{list: "guards", want: "honest-503-5 honest-503-5-late flaky down"},
		{list: "xtime-20,xtime-20", want: "xtime-20"},
		{list: "short", want: "short-xtime-50 short-throttled-50 short-httprate-50in1 short-bursty-50in1"}, // nginx and express need -real
		{list: "short-nginx-50,grpc-20", real: true, want: "short-nginx-50 grpc-20"},
		{list: "nginx-20", err: "nginx-20 needs a real clock: -real"},
		{list: "xtime-21", err: "xtime-21"},
		{list: "xtime-20,", err: "is called ,"},
		{list: "[", err: "syntax error"},
	} {
		got, err := choose(c.list, c.real)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want %s", c.list, err, c.err)
			}
			continue
		}
		var names []string
		for _, s := range got {
			names = append(names, s.name)
		}
		if err != nil || strings.Join(names, " ") != c.want {
			t.Errorf("%q: %v, %v, want %s", c.list, names, err, c.want)
		}
	}
	virtual, _ := choose("", false)
	real, _ := choose("", true)
	if len(virtual)+len(real) != len(servers) || len(virtual) == 0 || len(real) == 0 {
		t.Errorf("%d virtual and %d real servers of %d", len(virtual), len(real), len(servers))
	}
}

func TestAdd_PanicsOfServersThatCannotRun(t *testing.T) {
	good := server{name: "new", group: moreGroup, limit: bucketOf(1, 1), handler: ok}
	for name, bad := range map[string]server{
		"two servers are called": func() server { s := good; s.name = "xtime-20"; return s }(),
		"no group":               func() server { s := good; s.group = "others"; return s }(),
		"a handler or a start":   func() server { s := good; s.handler = nil; return s }(),
		"has no limit":           func() server { s := good; s.limit = limit{}; return s }(),
	} {
		func() {
			defer func() {
				if what, _ := recover().(string); !strings.Contains(what, name) {
					t.Errorf("panic %q, want one with %q", what, name)
				}
			}()
			add(bad)
		}()
	}
	if find("new") != nil {
		t.Error("a bad server was added")
	}
}

func TestServer_Refused(t *testing.T) {
	graphQL := find("linear-20")
	for _, c := range []struct {
		s      *server
		status int
		body   string
		want   bool
	}{
		{find("xtime-20"), 200, "ok\n", false},
		{find("xtime-20"), 429, "", true},
		{find("xtime-20"), 503, "", true},
		{graphQL, 200, `{"data":{}}`, false},
		{graphQL, 200, `{"errors":[{}],"data":null}`, true},
		{graphQL, 400, `{"data":{}}`, true},
		{graphQL, 200, `<html>`, true},
		{find("jsonrpc-32005-20"), 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32005}}`, true},
		{find("jsonrpc-32005-20"), 200, `{"jsonrpc":"2.0","id":1,"result":null}`, false},
	} {
		if got := c.s.refused(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%s, %d %s: %v", c.s.name, c.status, c.body, got)
		}
	}
}

func TestMissing_SaysWhatToInstall(t *testing.T) {
	s := server{name: "x", needs: []need{
		{what: "this", check: func(string) bool { return true }, install: "apt-get install this"},
		{what: "that", check: func(string) bool { return false }, install: "apt-get install that"},
	}}
	if got, want := s.missing(""), "x: no that; install it: apt-get install that"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if what := find("xtime-20").missing(""); what != "" {
		t.Errorf("a handler needs %s", what)
	}
	if what := find("express-20in1").missing(t.TempDir()); !strings.Contains(what, "install") {
		t.Errorf("an empty folder has all packages: %q", what)
	}
}

// What clients are told is what the limit is.
func TestTold(t *testing.T) {
	for name, want := range map[string]string{
		"xtime-20":             "20/s",
		"httprate-30in10":      "30/10s",
		"failsafe-smooth-200":  "200/s",
		"bulkhead-10":          "",
		"honest-503-5":         "",
		"shopify-throttled-20": "",
	} {
		cfg := told(find(name))
		got := ""
		if cfg.Rate.Count > 0 {
			got = cfg.Rate.String()
		}
		if got != want {
			t.Errorf("%s: told %q, want %q", name, got, want)
		}
	}
	if c := told(find("bulkhead-10")).Concurrency; c != 10 {
		t.Errorf("bulkhead-10: told %d in flight", c)
	}
	if l := told(find("shopify-throttled-20")).Limits; len(l) != 1 {
		t.Errorf("shopify: %d limits", len(l))
	}
	if cfg := told(find("honest-503-5")); cfg.Concurrency != 0 || cfg.Limits != nil {
		t.Errorf("there is nothing to tell of a server without a limit: %+v", cfg)
	}
}
