package proxy

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

func TestOptions_Bad(t *testing.T) {
	for _, args := range []string{
		"-route x", "-route /x", "-route x=http://a", "-route /=http://a", "-route /..=http://a", "-route /a/b=http://a", "-route /healthz=http://a", "-route /live=http://a",
		"-route /x=ftp://a", "-route /x=http://", "-route /x=//a", "-route /x=http://u:p@a", "-route /x=http://a?b", "-route /x=http://a#b", "-route /x=http://a/../b", "-route /x=http://a:b",
		"-patience -1s", "-patience 5", "-drain -1s", "-timeout 0s", "-allow-host a:1", "-allow-host *", "-tenant-header Sluice-Token", "-tenant-header a:b", "-class-header Sluice-X",
		"-class =1", "-class a=1", "-class a -class a", "-tenant a -tenant a", "-token-file /nonexistent", "x", "-rout",
	} {
		_, err := parseOptions(strings.Fields(args))
		if !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%s: %v", args, err)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v shows a password", args, err)
		}
	}
	if _, err := parseOptions([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	o, err := parseOptions([]string{"-route", "/a=http://A.example/b/", "-route", "/a=http://b"})
	if err != nil || o.routes[0].target.String() != "http://a.example/b" {
		t.Fatalf("%+v, %v", o, err)
	}
	if _, err := newProxy(o); err == nil {
		t.Error("two routes of one name are accepted")
	}
}

// After SIGTERM calls go on, new ones find nobody, and the proxy ends when they are done.
func TestRun_Drains(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, "late")
	}))
	defer server.Close()
	for _, test := range []struct {
		name  string
		drain time.Duration
		cut   bool
	}{{"in time", time.Minute, false}, {"too late", 0, true}} {
		t.Run(test.name, func(t *testing.T) {
			o := &options{listen: "127.0.0.1:0", routes: []routeSpec{routeOf(t, "/up="+server.URL)}, patience: time.Minute, timeout: time.Minute, drain: test.drain}
			signals := make(chan os.Signal, 1)
			listening := make(chan string, 1)
			ended := make(chan error)
			go func() {
				ended <- run(o, signals, &statusLine{to: writerFunc(func(p []byte) {
					if _, text, ok := strings.Cut(string(p), "http://"); ok {
						address, _, _ := strings.Cut(text, "/")
						listening <- address
					}
				})}, nil)
			}()
			address := <-listening
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			answered := make(chan error)
			go func() {
				resp, err := client.Get("http://" + address + "/up/")
				if err == nil {
					text, _ := io.ReadAll(resp.Body)
					if resp.Body.Close(); string(text) != "late" {
						err = errors.New("got " + string(text))
					}
				}
				answered <- err
			}()
			<-arrived
			signals <- syscall.SIGTERM
			if !test.cut {
				release <- struct{}{}
			}
			if err := <-answered; (err != nil) != test.cut {
				t.Errorf("the call: %v", err)
			}
			if err := <-ended; (err != nil) != test.cut {
				t.Errorf("the end: %v", err)
			}
			if test.cut {
				release <- struct{}{}
			}
		})
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestHealth(t *testing.T) {
	p, err := newProxy(&options{timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	get := func(method string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/healthz", nil)
		r.Host = "localhost"
		p.ServeHTTP(w, r)
		return w.Code
	}
	if got := get("GET"); got != 200 {
		t.Error(got)
	}
	if got := get("POST"); got != 405 {
		t.Error(got)
	}
	p.draining.Store(true)
	if got := get("GET"); got != 503 {
		t.Error(got)
	}
}
