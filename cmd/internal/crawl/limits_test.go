package crawl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// The limit that ended a crawl is named, in words and in summary.json, and is an exit status.
func TestLimits_AreNamed(t *testing.T) {
	tree := site(noRobots, htmlPage("/a", "/aa", "/ab"), htmlPage("/b", "/ba"), htmlPage("/c", "/ca"), htmlPage("/", "/a", "/b", "/c"))
	for _, test := range []struct {
		args   string
		status int
		json   string
		hints  []string
	}{
		{"-depth 9", 0, `null`, nil},
		{"-depth 1", 0, `[{"flag":"-depth","value":1,"links":4,"kept":false}]`, []string{"-depth 1 left out 4 links, also for a later -resume"}},
		{"-depth 9 -host-pages 3", cli.ExitLimit, `[{"flag":"-host-pages","value":3,"links":4,"hosts":1,"kept":true}]`,
			[]string{"-host-pages 3 ended the crawl of 1 host: 4 links not visited; to go on, use -resume and a higher -host-pages"}},
		{"-depth 9 -pages 7", cli.ExitLimit, `[{"flag":"-pages","value":7,"links":1,"kept":true}]`,
			[]string{"-pages 7 ended the crawl: 1 link not visited; to go on, use -resume and a higher -pages"}},
		{"-depth 9 -pages 8", 0, `null`, nil},
		{"-depth 9 -host-pages 8", 0, `null`, nil},
		{"-frontier 4", cli.ExitLimit, `[{"flag":"-frontier","value":4,"links":4,"kept":false}]`, []string{"-frontier 4 left out 4 links, also for a later -resume"}},
	} {
		r := crawl(t, tree, append(strings.Fields(test.args), "http://a.test/")...)
		text, err := json.Marshal(r.Limits)
		must(t, err)
		if hints := r.hints(nil, r.status(nil)); r.status(nil) != test.status || string(text) != test.json || !slices.Equal(hints, test.hints) {
			t.Errorf("%s: status %d, %s, %q", test.args, r.status(nil), text, hints)
		}
	}
	// A failure says more than a limit.
	s := summary{totals: totals{Pages: 2, Failed: 1}, Limits: []limit{{Flag: "-pages"}}}
	if got := s.status(nil); got != cli.ExitFailed {
		t.Errorf("status %d", got)
	}
}

// On a terminal no row of the table is longer than a line, and what did not fit is below it.
func TestTable(t *testing.T) {
	long := strings.Repeat("long-name.", 12) + "test"
	s := summary{hosts: []hostRecord{
		{Key: "https://" + long, Pages: 1234567, Queued: 7, About: "2 rules"},
		{Key: "http://a.test", Pages: 3, About: "status 404: all allowed, but it says much more"},
		{Key: "http://b.test", Pages: 2, Refused: 1, About: "1 rule, Crawl-delay 1h0m0s is over -max-delay 30s: skipped"},
	}}
	t.Setenv("LC_ALL", "C.UTF-8")
	for _, width := range []int{0, 60, 80, 120} {
		lines := s.table(width)
		rows := lines[:4]
		for _, row := range rows {
			if n := utf8.RuneCountInString(row); width > 0 && n > width {
				t.Errorf("%d columns: %q has %d", width, row, n)
			}
		}
		text := strings.Join(lines, "\n")
		for _, want := range []string{"https://" + long, "1234567", "1 rule, Crawl-delay 1h0m0s is over -max-delay 30s: skipped"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: no %q in\n%s", width, want, text)
			}
		}
		if strings.Contains(text, "forbidden") || !strings.Contains(rows[0], "refused  left") {
			t.Errorf("columns: %q", rows[0])
		}
		if width == 0 && len(lines) != 4 {
			t.Errorf("%q", lines)
		}
	}
}

// What is damaged, or in use, is named with what to do about it; and that works.
func TestDamaged(t *testing.T) {
	t.Parallel()
	srv := site(noRobots, htmlPage("/1"), htmlPage("/", "/1", "/2"))()
	defer srv.Close()
	listener := serveOnLoopback(t, srv)
	crawlOnce := func(dir string, args ...string) (string, int) {
		cmd := asProcess(t, append(args, "-quiet", "-delay", "0", "-dir", dir, listener)...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dir string)
		says  []string
		mend  func(t *testing.T, dir string)
	}{
		"manifest": {
			func(t *testing.T, dir string) {
				all, err := filepath.Glob(filepath.Join(dir, storeFolder, "MANIFEST-*"))
				must(t, err)
				for _, name := range all {
					must(t, os.WriteFile(name, []byte("rubbish that is no manifest"), 0o666))
				}
			},
			[]string{storeFolder + " is damaged: ", "delete the folder frontier and continue with -resume and the same addresses: it is made again from pages.jsonl"},
			func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, storeFolder))) },
		},
		"line": {
			func(t *testing.T, dir string) {
				must(t, os.RemoveAll(filepath.Join(dir, storeFolder)))
				name := filepath.Join(dir, pagesFile)
				lines, err := os.ReadFile(name)
				must(t, err)
				all := bytes.SplitAfter(lines, []byte("\n"))
				all[1][0] = '#'
				must(t, os.WriteFile(name, bytes.Join(all, nil), 0o666))
			},
			[]string{pagesFile + ": line 2, at byte ", "is damaged: invalid character '#'", "delete this line and use -resume: its page is fetched again"},
			func(t *testing.T, dir string) {
				name := filepath.Join(dir, pagesFile)
				lines, err := os.ReadFile(name)
				must(t, err)
				all := bytes.SplitAfter(lines, []byte("\n"))
				must(t, os.WriteFile(name, bytes.Join(slices.Delete(all, 1, 2), nil), 0o666))
			},
		},
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if out, status := crawlOnce(dir); status != 0 {
			t.Fatalf("status %d: %s", status, out)
		}
		test.spoil(t, dir)
		out, status := crawlOnce(dir, "-resume")
		for _, want := range test.says {
			if status != cli.ExitUsage || !strings.Contains(out, want) {
				t.Errorf("%s: status %d, no %q in %s", name, status, want, out)
			}
		}
		test.mend(t, dir)
		if out, status := crawlOnce(dir, "-resume"); status != 0 {
			t.Errorf("%s mended: status %d: %s", name, status, out)
		}
		if pages := pagesIn(t, filepath.Join(dir, pagesFile)); len(pages) != 3 {
			t.Errorf("%s mended: %d pages", name, len(pages))
		}
	}
}

// serveOnLoopback returns the address at which a handler listens until the test ends.
func serveOnLoopback(t *testing.T, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// A crawl that another process is at work on is left alone, and it says so.
func TestBinary_InUse(t *testing.T) {
	defer func(fs vfs.FS) { storeFS = fs }(storeFS)
	storeFS = vfs.Default
	o := mustParse(t, "http://a.test/")
	o.dir = t.TempDir()
	c, err := newCrawler(o, new(http.Transport))
	must(t, err)
	defer c.close()
	cmd := asProcess(t, "-resume", "-dir", o.dir, "http://a.test/")
	out, _ := cmd.CombinedOutput()
	want := "sluice crawl: " + filepath.Join(o.dir, storeFolder) + ": another crawler is at work here; wait until it has ended, or give another -dir ("
	if status := cmd.ProcessState.ExitCode(); status != cli.ExitUsage || !strings.HasPrefix(string(out), want) {
		t.Errorf("status %d, %s", status, out)
	}
}

// A page without a Content-Type is what it looks like.
func TestNoContentType(t *testing.T) {
	untyped := func(path, body string) sluicetest.Layer {
		return sluicetest.Path(path, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, body)
		})))
	}
	r := crawl(t, site(noRobots,
		untyped("/image", "\x89PNG\x0d\x0a\x1a\x0a<a href=/no>"), untyped("/text", "words <a href=/no>"), untyped("/empty", ""), htmlPage("/found"),
		untyped("/", " <!-- home --> <meta charset=windows-1252><title>caf\xe9</title><a href=/found>1</a><a href=/image><a href=/text><a href=/empty>"+strings.Repeat("x", 9999)),
	), "http://a.test/")
	p := r.pages["http://a.test/"]
	if p.Type != "text/html" || p.Title != "café" || len(r.pages) != 5 || p.Bytes < 9999 {
		t.Errorf("%+v, %s", p, r.addresses())
	}
	if p := r.pages["http://a.test/image"]; p.Type != "image/png" || p.Bytes != 0 {
		t.Errorf("%+v", p)
	}
}

// A redirect leads to a sitemap as a link to one does.
func TestSitemap_Redirected(t *testing.T) {
	r := crawl(t, site(
		sluicetest.Path("/robots.txt", sluicetest.Reply(200, "Sitemap: http://a.test/map.xml")),
		sluicetest.Path("/map.xml", sluicetest.Status(301, "Location: https://a.test/real.xml")),
		sluicetest.Path("/real.xml", sluicetest.Reply(200, "<urlset><url><loc>/x</loc></url><url><loc>http://[::bad/</loc></url></urlset>", "Content-Type: application/xml")), htmlPage("/"),
	), "http://a.test/")
	if _, ok := r.pages["https://a.test/x"]; !ok || r.Unreadable != 1 {
		t.Errorf("%s, %d unreadable", r.addresses(), r.Unreadable)
	}
}

// While only hosts are left that have to wait, it says for which, until when and why.
func TestMoment_Next(t *testing.T) {
	o := mustParse(t, "http://a.test/")
	o.dir = t.TempDir()
	c, err := newCrawler(o, new(http.Transport))
	must(t, err)
	defer c.close()
	at := time.Now().Add(time.Minute)
	for _, test := range []struct {
		h    hostRecord
		want string
	}{
		{hostRecord{Aside: 2, Bad: 11, Last: "connection refused"}, ", pause 2 of 6 (11 requests failed, the last: connection refused)"},
		{hostRecord{Bad: 1, Last: "429 Too Many Requests"}, " (429 Too Many Requests)"},
		{hostRecord{RobotsTries: 1, Last: "503 Service Unavailable"}, " (503 Service Unavailable)"},
		{hostRecord{CrawlDelay: time.Minute}, " (the delay between requests)"},
	} {
		test.h.Key, test.h.NotBefore, test.h.Queued = "http://b.test", at, 1
		id := idOf(test.h.Key)
		ch := c.change()
		ch.hosts[id] = &host{id: id, hostRecord: test.h}
		c.waiting, c.isWaiting = nil, make(map[hostID]bool)
		must(t, ch.commit())
		if m := c.now(); m.next != "http://b.test waits until "+clock(at)+test.want || !strings.Contains(m.line(m), m.next) {
			t.Errorf("%q, %q", m.next, m.line(m))
		}
	}
	c.waiting[0].at = 0 // it has not been asked yet
	if m := c.now(); m.next != "" {
		t.Errorf("%q of a host that need not wait", m.next)
	}
}
