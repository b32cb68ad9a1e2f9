package crawl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

const millisecond = time.Millisecond // ms is a function here

// asProgram, in the environment, makes the test binary the program.
const asProgram = "SLUICE_RUN_CRAWL"

func TestMain(m *testing.M) {
	if pages, err := strconv.Atoi(os.Getenv(asScale)); err == nil {
		if err := scale(pages); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(Command.Execute(slices.Insert(os.Args, 1, "crawl"), os.Stdin, os.Stdout, os.Stderr))
	}
	storeFS = vfs.NewMem()
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

// pagesIn reads JSON Lines, by address. Each address must be there once, unless twice.
func pagesIn(t *testing.T, name string, twice ...bool) map[string]page {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	pages := make(map[string]page)
	for line := range bytes.Lines(text) {
		var p page
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, again := pages[p.URL]; again && !slices.Contains(twice, true) {
			t.Errorf("%s is there twice", p.URL)
		}
		pages[p.URL] = p
	}
	return pages
}

// A result is what a crawl in a bubble has come to.
type result struct {
	summary
	dir    string
	hosts  map[string]hostRecord // by name
	pages  map[string]page
	record sluicetest.Record
	took   time.Duration
}

func (r result) host(name string) hostRecord { return r.hosts["http://"+name] }

// crawl crawls a site in a bubble, with these flags and addresses.
func crawl(t *testing.T, srv func() *sluicetest.Server, args ...string) result {
	t.Helper()
	return crawlWith(t, crawling{}, srv, args...)
}

// A crawling is how to crawl.
type crawling struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	dir  string        // to be continued
	stop time.Duration // after which nothing more begins
	cut  bool          // and what has begun is cancelled

	twice bool // pages may have two lines, of which the last counts

	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

func crawlWith(t *testing.T, how crawling, srv func() *sluicetest.Server, args ...string) (r result) {
	t.Helper()
	if r.dir = how.dir; r.dir == "" {
		r.dir = t.TempDir()
	}
	synctest.Test(t, func(t *testing.T) {
		s := srv()
		defer s.Close()
		transport := s.Transport()
		if how.dial != nil {
			transport.DialContext = how.dial
		}
		defer transport.CloseIdleConnections()
		o := mustParse(t, args...)
		o.dir = r.dir
		c, err := newCrawler(o, transport)
		if err != nil {
			t.Fatal(err)
		}
		c.lookup = how.lookup
		begin, calls := t.Context(), t.Context()
		if how.stop > 0 {
			var cancel context.CancelFunc
			begin, cancel = context.WithCancel(begin)
			defer cancel()
			defer time.AfterFunc(how.stop, cancel).Stop() // no deadline, which gates heed
		}
		if how.cut {
			calls = begin
		}
		before := time.Now()
		if err := c.run(begin, calls); err != nil {
			t.Error(err)
		}
		r.took = time.Since(before)
		r.summary, r.record = c.summary(r.took), s.Record()
		r.hosts = make(map[string]hostRecord)
		for _, h := range r.summary.hosts {
			r.hosts[h.Key] = h
		}
		if c.asking != 0 || len(c.active) != 0 {
			t.Errorf("%d asking, %d active", c.asking, len(c.active))
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	r.pages = pagesIn(t, filepath.Join(r.dir, pagesFile), how.twice)
	return r
}

// mustParse parses flags; the built-in site is the first page if there is none.
func mustParse(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parseOptions(args)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.seeds) == 0 && !o.resume && !o.refresh {
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
