package crawl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// A changing site has a start page and pages that it links to, with some of their versions above 0.
// A version below 0 is of a page that is gone.
type changing struct {
	pages    int
	version  map[int]int
	etags    bool // else Last-Modified
	sitemap  bool
	unlinked int // a page that nothing links to, if it is above 0
	sent     int // bytes of bodies
}

// began is when time begins in a bubble of testing/synctest.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *changing) serve() *sluicetest.Server {
	return sluicetest.NewServer(sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		body := ""
		switch _, err := fmt.Sscanf(r.URL.Path, "/p%d", &n); {
		case r.URL.Path == "/robots.txt" && s.sitemap:
			fmt.Fprint(w, "Sitemap: /sitemap.xml")
			return
		case r.URL.Path == "/sitemap.xml" && s.sitemap:
			w.Header().Set("Content-Type", "text/xml")
			body = "<urlset>"
			for i := range s.pages {
				if s.version[i] < 0 {
					continue
				}
				body += fmt.Sprintf("<url><loc>http://a.test/p%d</loc><lastmod>%s</lastmod></url>", i, began.AddDate(0, 0, s.version[i]*10-5).Format(time.DateOnly))
			}
			s.sent += len(body)
			fmt.Fprint(w, body+"</urlset>")
			return
		case r.URL.Path == "/":
			n = -1
			for i := range s.pages {
				if i != s.unlinked || i == 0 {
					body += fmt.Sprintf("<a href=/p%d>x</a>", i)
				}
			}
		case err != nil || n >= s.pages && s.version[n] == 0 || s.version[n] < 0:
			http.NotFound(w, r)
			return
		}
		version := s.version[n]
		w.Header().Set("Content-Type", "text/html")
		if s.etags {
			w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(n, version, s.unlinked)))
		} else {
			w.Header().Set("Last-Modified", began.AddDate(0, 0, version-5-s.unlinked).Format(http.TimeFormat))
		}
		if r.Header.Get("If-None-Match") == w.Header().Get("ETag") && s.etags || !s.etags && r.Header.Get("If-Modified-Since") == w.Header().Get("Last-Modified") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body += fmt.Sprintf("page %d, version %d", n, version) + strings.Repeat(".", 5000)
		s.sent += len(body)
		fmt.Fprint(w, body)
	})))
}

// Of a site of which 1 % has changed, another crawl costs less than 5 % of the bytes, and one
// request for each page at most. Its file of pages is complete.
func TestRefresh(t *testing.T) {
	for _, s := range []*changing{{etags: true}, {etags: false}, {etags: true, sitemap: true}} {
		s.pages, s.version = 200, make(map[int]int)
		args := []string{"-refresh", "-delay", "1s", "-host-pages", "1000", "http://a.test/"}
		r := crawl(t, s.serve, args...)
		first := s.sent
		if len(r.pages) < 201 || r.New+r.Changed+r.Unchanged+r.Vanished != 0 {
			t.Fatalf("%d pages, %+v", len(r.pages), r.totals)
		}
		s.sent, s.version[7], s.version[8], s.version[9] = 0, 1, 2, -1
		r = crawlWith(t, crawling{dir: r.dir}, s.serve, args...)
		asked := r.record.Filter(func(q sluicetest.Request) bool { return strings.HasPrefix(q.Path, "/p") })
		sitemaps := 0
		if s.sitemap {
			sitemaps = 1
		}
		if s.sent*20 >= first || len(asked.Requests) > 200 || int(r.New) != 0 || int(r.Changed) != 2+sitemaps || r.Unchanged != 198 || r.Vanished != 1 {
			t.Errorf("%d of %d bytes, %d requests, %+v", s.sent, first, len(asked.Requests), r.totals)
		}
		// Where a sitemap says when pages were changed, the others are not asked for. Of two, the
		// crawl had begun before it was read.
		if s.sitemap && len(asked.Requests) > 5 {
			t.Errorf("%d requests in spite of the sitemap", len(asked.Requests))
		}
		for address, want := range map[string]string{"/": unchanged, "/p7": changed, "/p8": changed, "/p9": gone, "/p10": unchanged} {
			if got := r.pages["http://a.test"+address]; got.Refresh != want || want != gone && (got.Digest == "" || got.Status != 200) {
				t.Errorf("%s: %+v", address, got)
			}
		}
		if p := r.pages["http://a.test/"]; len(p.Links) != 200 || p.ETag+p.Modified == "" || p.Bytes != 0 {
			t.Errorf("the start page: %d links, %+v", len(p.Links), p.Refresh)
		}
	}
}

// A page that nothing links to any more is asked for again, and one that is new is. A page with
// another ETag and the same body has not changed.
func TestRefresh_Links(t *testing.T) {
	s := &changing{pages: 20, version: make(map[int]int), etags: true}
	r := crawl(t, s.serve, "-delay", "0s", "http://a.test/")
	s.pages, s.unlinked = 21, 5
	r = crawlWith(t, crawling{dir: r.dir}, s.serve, "-refresh", "-delay", "0s")
	for address, want := range map[string]string{"/": changed, "/p4": unchanged, "/p5": unchanged, "/p20": isNew} {
		if got := r.pages["http://a.test"+address].Refresh; got != want {
			t.Errorf("%s: %q", address, got)
		}
	}
	if len(r.pages) != 22 {
		t.Errorf("%d pages", len(r.pages))
	}
}

// A crawl that refreshes goes on with -resume, with its store and without; and if it does not, the
// next one knows what it has not come to.
func TestRefresh_Resumed(t *testing.T) {
	for _, how := range []string{"resume", "store lost", "again"} {
		s := &changing{pages: 20, version: map[int]int{}, etags: true}
		r := crawl(t, s.serve, "http://a.test/")
		s.version[3], s.version[15], s.sent = 1, 1, 0
		r = crawlWith(t, crawling{dir: r.dir, stop: 10500 * millisecond}, s.serve, "-refresh", "http://a.test/")
		if len(r.pages) >= 15 || len(r.pages) < 5 {
			t.Fatalf("%d pages", len(r.pages))
		}
		want := int64(2)
		args := []string{"-refresh", "-resume"}
		switch how {
		case "store lost":
			must(t, storeFS.RemoveAll(filepath.Join(r.dir, storeFolder)))
		case "again":
			args, want = args[:1], 2-r.Changed
		}
		r = crawlWith(t, crawling{dir: r.dir}, s.serve, args...)
		if len(r.pages) != 21 || r.Changed != want || r.Unchanged != 21-want || s.sent > 11000 {
			t.Errorf("%s: %d pages, %d bytes, %+v", how, len(r.pages), s.sent, r.totals)
		}
	}
}

// Wherever the begin of a crawl that refreshes was interrupted, nothing is lost.
func TestRefresh_Interrupted(t *testing.T) {
	s := &changing{pages: 5, version: map[int]int{}, etags: true}
	for _, left := range []string{"pages.before.jsonl.new", "both", "neither"} {
		r := crawl(t, s.serve, "http://a.test/")
		pages, old := filepath.Join(r.dir, pagesFile), filepath.Join(r.dir, beforeFile)
		text, err := os.ReadFile(pages)
		must(t, err)
		switch left {
		case "both":
			must(t, os.WriteFile(old, text, 0o666))
		case "neither":
			must(t, errors.Join(os.Rename(pages, old), storeFS.RemoveAll(filepath.Join(r.dir, storeFolder))))
		default:
			must(t, os.WriteFile(old+".new", text[:100], 0o666))
		}
		r = crawlWith(t, crawling{dir: r.dir}, s.serve, "-refresh")
		if len(r.pages) != 6 || r.Unchanged != 6 {
			t.Errorf("%s: %d pages, %+v", left, len(r.pages), r.totals)
		}
		if _, err := os.Stat(old + ".new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", left, err)
		}
	}
}

// -retry-failed asks again for the pages that failed, and for no others; a store that is lost
// afterwards is made again with what came of it.
func TestRetryFailed(t *testing.T) {
	broken := true
	srv := site(noRobots, sluicetest.When(func(_ int, r *http.Request) bool { return broken && strings.HasPrefix(r.URL.Path, "/x") }, sluicetest.Status(500)),
		htmlPage("/x1", "/new"), htmlPage("/"))
	start := site(noRobots, sluicetest.When(func(_ int, r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/x") }, sluicetest.Status(500)),
		htmlPage("/a"), htmlPage("/", "/x1", "/a", "/x2"))
	r := crawl(t, start, "http://a.test/")
	if r.Failed != 2 || r.Taken != 4 || r.status(nil) != 1 {
		t.Fatalf("%+v", r.totals)
	}
	broken = false
	synctestLines(t, r.dir, srv)
}

// synctestLines goes on with a crawl, of which two pages failed, and looks at the lines.
func synctestLines(t *testing.T, dir string, srv func() *sluicetest.Server) {
	t.Helper()
	r := crawlWith(t, crawling{dir: dir, twice: true}, srv, "-retry-failed")
	asked := r.record.Filter(func(q sluicetest.Request) bool { return q.Path != "/robots.txt" })
	if r.Failed != 0 || r.Taken != 5 || r.Pages != 5 || len(asked.Requests) != 3 || r.status(nil) != 0 {
		t.Errorf("%d requests, %+v", len(asked.Requests), r.totals)
	}
	if p := r.pages["http://a.test/x1"]; !p.Again || p.Status != 200 {
		t.Errorf("%+v", p)
	}
	must(t, storeFS.RemoveAll(filepath.Join(dir, storeFolder)))
	r = crawlWith(t, crawling{dir: dir, twice: true}, srv, "-retry-failed")
	if r.Failed != 0 || r.Taken != 5 || r.Pages != 5 || len(r.record.Requests) != 0 {
		t.Errorf("made again: %d requests, %+v", len(r.record.Requests), r.totals)
	}
}

func TestLastmod(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-27": "2026-11-28T12:00:00Z", "2026-11-27T10:00:00+02:00": "2026-11-27T08:00:00Z", "2026-11-27T10:00Z": "2026-11-27T10:00:00Z", "yesterday": "", "": "",
	} {
		got, ok := lastmod(text)
		if ok != (want != "") || ok && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// With -accept other types are read and kept, and what pages show is fetched.
func TestAccept(t *testing.T) {
	kind := func(path, kind string) sluicetest.Layer {
		return sluicetest.Path(path, sluicetest.Reply(200, "body of "+path, "Content-Type: "+kind))
	}
	srv := site(noRobots, kind("/a.png", "image/png"), kind("/b.pdf", "application/pdf"), kind("/c.css", "text/css"),
		sluicetest.Path("/", sluicetest.Reply(200, `<img src=/a.png><a href=/b.pdf>x</a><link rel=stylesheet href=/c.css>`, "Content-Type: text/html")))
	for accept, want := range map[string]string{"": "", "image/*": "/a.png", "*/*": "/a.png /b.pdf /c.css", "text/css, application/PDF": "/b.pdf /c.css"} {
		args := []string{"-bodies", "http://a.test/"}
		if accept != "" {
			args = append([]string{"-accept", accept}, args...)
		}
		r := crawl(t, srv, args...)
		var read []string
		for _, path := range []string{"/a.png", "/b.pdf", "/c.css"} {
			p, there := r.pages["http://a.test"+path]
			if there != (accept != "" || path == "/b.pdf") {
				t.Errorf("%s: %s: %v", accept, path, there)
			}
			if p.Digest == "" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(r.dir, bodyFolder, p.Digest[:2], p.Digest))
			if string(text) != "body of "+path {
				t.Errorf("%q, %v", text, err)
			}
			read = append(read, path)
		}
		if strings.Join(read, " ") != want {
			t.Errorf("-accept %q: %q", accept, read)
		}
	}
	for _, accept := range []string{"png", "image/[", "a/b/c"} {
		if _, err := parseOptions([]string{"-accept", accept, "http://a.test/"}); err == nil {
			t.Errorf("-accept %s", accept)
		}
	}
}
