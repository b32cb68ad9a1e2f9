package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

const millisecond = time.Millisecond // ms is a function here

// asProgram, in the environment, makes the test binary the program.
const asProgram = "CRAWLER_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// asProcess returns the program, to be run in a process and a folder of its own.
func asProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Dir = t.TempDir()
	return cmd
}

// pagesIn reads JSON Lines, by address. Each address must be there once.
func pagesIn(t *testing.T, text []byte) map[string]page {
	t.Helper()
	pages := make(map[string]page)
	for line := range bytes.Lines(text) {
		var p page
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, twice := pages[p.URL]; twice {
			t.Errorf("%s is there twice", p.URL)
		}
		pages[p.URL] = p
	}
	return pages
}

// A result is what a crawl in a bubble has come to.
type result struct {
	*crawler
	pages  map[string]page
	record sluicetest.Record
	took   time.Duration
}

// host returns what is known of a host of http.
func (r result) host(name string) *host { return r.frontier.hosts["http://"+name] }

// crawl crawls a site in a bubble, with these flags and addresses.
func crawl(t *testing.T, srv func() *sluicetest.Server, args ...string) result {
	t.Helper()
	return crawlWith(t, nil, srv, args...)
}

// crawlWith is crawl with another way to connect, unless dial is nil.
func crawlWith(t *testing.T, dial func(ctx context.Context, network, addr string) (net.Conn, error), srv func() *sluicetest.Server, args ...string) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := srv()
		defer s.Close()
		transport := s.Transport()
		if dial != nil {
			transport.DialContext = dial
		}
		defer transport.CloseIdleConnections()
		var out bytes.Buffer
		c, err := newCrawler(mustParse(t, args...), transport, &out)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := c.run(t.Context()); err != nil {
			t.Error(err)
		}
		r = result{c, pagesIn(t, out.Bytes()), s.Record(), time.Since(before)}
	})
	if n := r.gates.Len(); n != len(r.frontier.hosts) && r.took < 5*time.Minute {
		t.Errorf("%d gates, for %d hosts", n, len(r.frontier.hosts))
	}
	return r
}

// mustParse parses flags; the built-in site is the first page if there is none.
func mustParse(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parseOptions(args)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.seeds) == 0 {
		o.seeds = []*url.URL{start()}
	}
	return o
}

// site makes a server of layers, which serves HTML unless they say otherwise.
func site(layers ...sluicetest.Layer) func() *sluicetest.Server {
	return func() *sluicetest.Server { return sluicetest.NewServer(layers...) }
}

// htmlPage is a page with links, for paths that begin with path.
func htmlPage(path string, links ...string) sluicetest.Layer {
	body := "<title>" + path + "</title>"
	for _, l := range links {
		body += "<a href=\"" + l + "\">x</a>"
	}
	return sluicetest.Path(path, sluicetest.Reply(200, body, "Content-Type: text/html"))
}

// robotsTxt is a robots.txt for everybody.
func robotsTxt(lines string) sluicetest.Layer {
	return sluicetest.Path("/robots.txt", sluicetest.Reply(200, "User-agent: *\n"+lines))
}

var noRobots = sluicetest.Path("/robots.txt", sluicetest.Status(404))
