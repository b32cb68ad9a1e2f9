package crawl

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

func chain() *sluicetest.Server {
	return sluicetest.NewServer(noRobots, sluicetest.Path("/slow", sluicetest.Delay(10*time.Second)),
		htmlPage("/a"), htmlPage("/slow"), htmlPage("/", "/a", "/slow", "/ab", "/ac"))
}

// Interrupted, it lets what is in flight finish. Continued, it goes on with the rest, and
// does not ask for robots.txt again.
func TestResume(t *testing.T) {
	r := crawlWith(t, crawling{stop: 3500 * millisecond}, chain, "http://a.test/")
	if len(r.pages) != 3 || r.Queued != 2 || r.took != 13*time.Second {
		t.Errorf("%d pages, %d left, in %v", len(r.pages), r.Queued, r.took)
	}
	r = crawlWith(t, crawling{dir: r.dir}, chain, "-resume", "http://a.test/")
	if len(r.pages) != 5 || r.Queued != 0 || len(r.record.Requests) != 2 {
		t.Errorf("%d pages, %d left, %v", len(r.pages), r.Queued, r.record.Requests)
	}
}

// What is cancelled was not visited.
func TestResume_Cancelled(t *testing.T) {
	r := crawlWith(t, crawling{stop: 3500 * millisecond, cut: true}, chain, "http://a.test/")
	if len(r.pages) != 2 || r.Queued != 3 || r.took != 3500*millisecond {
		t.Errorf("%d pages, %d left, in %v", len(r.pages), r.Queued, r.took)
	}
	r = crawlWith(t, crawling{stop: time.Second / 2, cut: true}, site(sluicetest.Delay(time.Minute)), "http://a.test/")
	if len(r.pages) != 0 || r.Queued != 1 { // robots.txt was being read
		t.Errorf("%d pages, %d left", len(r.pages), r.Queued)
	}
	r = crawlWith(t, crawling{dir: r.dir}, chain, "-resume")
	if len(r.pages) != 5 || r.Queued != 0 {
		t.Errorf("%d pages, %d left", len(r.pages), r.Queued)
	}
}

// The store is an index of the file of pages: it may be behind it by any number of lines,
// have none of it, or more than is left of it after a power loss. The file may end within a line.
func TestResume_FileCounts(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, pages, frontier string)
		lines int // that are left
	}{
		{"no store", func(t *testing.T, _, frontier string) { must(t, storeFS.RemoveAll(frontier)) }, 3},
		{"no store, no address", func(t *testing.T, _, frontier string) { must(t, storeFS.RemoveAll(frontier)) }, 3},
		{"half a line", func(t *testing.T, pages, _ string) {
			f, err := os.OpenFile(pages, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString(`{"url":"http://a.test/ab","dep`)
			must(t, errors.Join(err, f.Close()))
		}, 3},
		{"a line that the store does not know", func(t *testing.T, pages, _ string) {
			f, err := os.OpenFile(pages, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString(`{"url":"http://a.test/ab","depth":1,"status":200,"links":["http://a.test/new"]}` + "\n")
			must(t, errors.Join(err, f.Close()))
		}, 4},
		{"lines lost", func(t *testing.T, pages, _ string) {
			text, err := os.ReadFile(pages)
			must(t, err)
			must(t, os.Truncate(pages, int64(len(text)-10)))
		}, 2},
	} {
		r := crawlWith(t, crawling{stop: 3500 * millisecond}, chain, "http://a.test/")
		test.spoil(t, filepath.Join(r.dir, pagesFile), filepath.Join(r.dir, storeFolder))
		again := []string{"-resume", "http://a.test/"}
		if strings.Contains(test.name, "no address") {
			again = again[:1]
		}
		r = crawlWith(t, crawling{dir: r.dir}, chain, again...)
		want := 5
		if test.lines == 4 {
			want = 6 // with the page that the line linked to
		}
		asked := r.record.Filter(func(q sluicetest.Request) bool { return q.Path != "/robots.txt" })
		if len(r.pages) != want || r.Queued != 0 || len(asked.Requests) != want-test.lines {
			t.Errorf("%s: %d pages, %d left, requests %v", test.name, len(r.pages), r.Queued, asked.Requests)
		}
	}
}

// A crawl is not replaced, and not continued by two at once.
func TestResume_Refuses(t *testing.T) {
	defer func(fs vfs.FS) { storeFS = fs }(storeFS)
	storeFS = vfs.Default
	o := mustParse(t, "http://a.test/")
	o.dir = t.TempDir()
	c, err := newCrawler(o, new(http.Transport))
	must(t, err)
	defer c.close()
	for args, says := range map[string]string{
		"":        "holds a crawl; -resume continues it",
		"-resume": filepath.Join(o.dir, storeFolder),
	} {
		cmd := asProcess(t, append(strings.Fields(args), "-dir", o.dir, "http://a.test/")...)
		out, _ := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != cli.ExitUsage || !strings.Contains(string(out), says) {
			t.Errorf("%q: status %d, %s", args, status, out)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A host whose robots.txt cannot be had for a while loses no page by that.
func TestResume_AfterAnOutage(t *testing.T) {
	r := crawl(t, site(sluicetest.Path("/robots.txt", sluicetest.Status(503)), htmlPage("/")), "http://a.test/")
	if h := r.host("a.test"); h.Queued != 1 || !h.Gone || r.status(nil) != cli.ExitStopped {
		t.Errorf("%+v, status %d", h, r.status(nil))
	}
	r = crawlWith(t, crawling{dir: r.dir}, chain, "-resume")
	if len(r.pages) != 5 || r.Queued != 0 || r.status(nil) != 0 {
		t.Errorf("%d pages, %d left, status %d", len(r.pages), r.Queued, r.status(nil))
	}
}

// Of the pages that failed the first are named.
func TestFailuresAreNamed(t *testing.T) {
	links := []string{"/x1", "/x2", "/x3", "/x4", "/good"} // or the host would be set aside
	r := crawl(t, site(noRobots, sluicetest.Path("/x", sluicetest.Status(500)), htmlPage("/", links...)), "http://a.test/")
	hints := r.hints(nil, cli.ExitFailed)
	if len(hints) != 4 || hints[0] != "failed: http://a.test/x1: 500 Internal Server Error" || hints[3] != "other pages that failed have an error in pages.jsonl" {
		t.Errorf("%q", hints)
	}
}
