package crawl

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"

	"github.com/sluice-go/sluice/sluicetest"
)

// What pages and headers say about links, and to whom.
func TestNofollow(t *testing.T) {
	for _, test := range []struct {
		header, page string
		followed     bool
		noindex      bool
	}{
		{"", `<a href=/x>`, true, false},
		{"", `<a rel="external NoFollow" href=/x>`, false, false},
		{"", `<meta name=robots content="noindex,nofollow"><a href=/x>`, false, true},
		{"", `<meta name=My-Bot content=none><a href=/x>`, false, true},
		{"", `<meta name=other content=none><a href=/x>`, true, false},
		{"X-Robots-Tag: noindex, nofollow", `<a href=/x>`, false, true},
		{"X-Robots-Tag: my-bot: nofollow", `<a href=/x>`, false, false},
		{"X-Robots-Tag: otherbot: none", `<a href=/x>`, true, false},
		{"X-Robots-Tag: unavailable_after: 25 Jun 2010 15:00:00 PST", `<a href=/x>`, true, false},
		{"X-Robots-Tag: max-snippet:10, none", `<a href=/x>`, false, true},
	} {
		header := []string{"Content-Type: text/html"}
		if test.header != "" {
			header = append(header, test.header)
		}
		r := crawl(t, site(noRobots, htmlPage("/x"), sluicetest.Reply(200, test.page, header...)), "-agent", "my-bot/1", "http://a.test/")
		p := r.pages["http://a.test/"]
		if _, got := r.pages["http://a.test/x"]; got != test.followed || p.Noindex != test.noindex || len(p.Links)+len(p.Nofollow) != 1 {
			t.Errorf("%+v: %+v", test, p)
		}
	}
}

// The address that a page names as its own is visited, and noted.
func TestCanonical(t *testing.T) {
	r := crawl(t, site(
		noRobots, htmlPage("/own"),
		sluicetest.Path("/1", sluicetest.Reply(200, `<link rel=canonical href=/own>`, "Content-Type: text/html")),
		sluicetest.Path("/2", sluicetest.Reply(200, "two", "Content-Type: text/html", `Link: </style>; rel=preload, <http://a.test/own>; rel="canonical"`)),
		htmlPage("/", "/1", "/2"),
	), "-depth", "1", "http://a.test/")
	for _, path := range []string{"/1", "/2"} {
		if p := r.pages["http://a.test"+path]; p.Canonical != "http://a.test/own" {
			t.Errorf("%+v", p)
		}
	}
	if p := r.pages["http://a.test/own"]; p.Status != 200 || p.Depth != 1 {
		t.Errorf("%+v", p)
	}
}

// A page that equals an earlier one of its host leads nowhere: a calendar without events
// ends.
func TestDuplicate(t *testing.T) {
	r := crawl(t, site(
		noRobots, sluicetest.Path("/day", sluicetest.Reply(200, "<a href=next/>tomorrow</a>", "Content-Type: text/html")), htmlPage("/", "/day/1/"),
	), "-depth", "100", "http://a.test/")
	if p := r.pages["http://a.test/day/1/next/"]; len(r.pages) != 3 || p.Duplicate != "http://a.test/day/1/" || r.Duplicates != 1 {
		t.Errorf("%d pages, %+v", len(r.pages), p)
	}
}

func TestCharsets(t *testing.T) {
	utf16, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(`<title>café</title><a href=/x>`)
	if err != nil {
		t.Fatal(err)
	}
	for contentType, body := range map[string]string{
		"text/html; charset=iso-8859-1": "<title>caf\xe9</title><a href=/x>",
		"text/html":                     "<meta charset=windows-1252><title>caf\xe9</title><a href=/x>",
		"text/html; charset=utf-8":      "<title>café</title><a href=/x>",
		"text/html; charset=utf-16":     utf16,
		"text/html; charset=shift_jis":  "<title>\xb6\xcc\xaa</title><a href=/x>",
	} {
		want := "café"
		if strings.Contains(contentType, "jis") {
			want = "ｶﾌｪ"
		}
		r := crawl(t, site(noRobots, htmlPage("/x"), sluicetest.Reply(200, body, "Content-Type: "+contentType)), "http://a.test/")
		if p := r.pages["http://a.test/"]; p.Title != want || len(r.pages) != 2 {
			t.Errorf("%s: title %q, %d pages", contentType, p.Title, len(r.pages))
		}
	}
}

func TestPatterns(t *testing.T) {
	links := []string{"/doc/a", "/doc/b?print=1", "/img/c", "/doc/d.zip"}
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "/doc/a /doc/b?print=1 /doc/d.zip /img/c"},
		{"-include /doc/", "/doc/a /doc/b?print=1 /doc/d.zip"},
		{"-include /img/ -include /doc/ -exclude print= -exclude zip$", "/doc/a /img/c"},
		{"-exclude .", ""},
	} {
		r := crawl(t, site(noRobots, htmlPage("/d"), htmlPage("/i"), htmlPage("/", links...)), append(strings.Fields(test.args), "http://a.test/")...)
		var got []string
		for address := range r.pages {
			got = append(got, strings.TrimPrefix(address, "http://a.test"))
		}
		slices.Sort(got)
		if want := append([]string{"/"}, strings.Fields(test.want)...); !slices.Equal(got, want) || int(r.Excluded) != 5-len(want) {
			t.Errorf("%s: %q, %d excluded", test.args, got, r.Excluded)
		}
	}
}

func TestSitemaps(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`<urlset><url><loc>http://a.test/c</loc></url><url><loc>http://b.test/c</loc></url></urlset>`))
	_ = z.Close()
	layers := []sluicetest.Layer{
		sluicetest.Path("/robots.txt", sluicetest.Reply(200, "Sitemap: http://a.test/map.xml\nUser-agent: *\nDisallow: /b\nsitemap : /list.txt # ours")),
		sluicetest.Path("/map.xml", sluicetest.Reply(200, `<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
			<sitemap><loc>http://a.test/1.xml.gz</loc></sitemap></sitemapindex>`, "Content-Type: application/xml")),
		sluicetest.Path("/1.xml.gz", sluicetest.Reply(200, zipped.String(), "Content-Type: application/x-gzip")),
		sluicetest.Path("/list.txt", sluicetest.Reply(200, "http://a.test/a\r\nhttp://a.test/b\n", "Content-Type: text/plain")),
		htmlPage("/a"), htmlPage("/c"), htmlPage("/"),
	}
	r := crawl(t, site(layers...), "http://a.test/")
	for address, status := range map[string]int{"/": 200, "/a": 200, "/c": 200, "/b": 0, "/map.xml": 200, "/1.xml.gz": 200, "/list.txt": 200} {
		if p, ok := r.pages["http://a.test"+address]; !ok || p.Status != status || p.Error != "" {
			t.Errorf("%s: %+v", address, p)
		}
	}
	if p := r.pages["http://a.test/c"]; p.Depth != 1 || p.From != "http://a.test/1.xml.gz" || len(r.pages) != 7 || r.Elsewhere != 1 {
		t.Errorf("%+v, %d pages, %d elsewhere", p, len(r.pages), r.Elsewhere)
	}
	if r := crawl(t, site(layers...), "-sitemaps=false", "http://a.test/"); len(r.pages) != 1 {
		t.Errorf("without sitemaps: %d pages", len(r.pages))
	}
	// One of the command line is read as well.
	if r := crawl(t, site(layers...), "-sitemaps=false", "http://a.test/map.xml"); len(r.pages) != 3 {
		t.Errorf("a sitemap alone: %d pages", len(r.pages))
	}
}

func FuzzReadSitemap(f *testing.F) {
	f.Add([]byte(`<urlset><url><loc>http://a.test/c</loc></url></urlset>`))
	f.Add([]byte("http://a.test/\n/x\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	base := &url.URL{Scheme: "http", Host: "a.test", Path: "/map.xml"}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, _ := readSitemap(body, base)
		for _, address := range slices.Concat(s.pages, s.sitemaps) {
			if u, err := parseURL(address); err != nil || u.String() != address {
				t.Errorf("%q is not normal: %v", address, err)
			}
		}
	})
}

func TestBodiesKept(t *testing.T) {
	r := crawl(t, site(noRobots, sluicetest.Path("/f", sluicetest.Reply(200, "no page", "Content-Type: application/zip")), htmlPage("/", "/f")), "-bodies", "http://a.test/")
	digest := r.pages["http://a.test/"].Digest
	body, err := os.ReadFile(filepath.Join(r.dir, bodyFolder, digest[:2], digest))
	if err != nil || string(body) != `<title>/</title><a href="/f">x</a>` {
		t.Errorf("%q, %v", body, err)
	}
}

// A request on a connection that the server closes is sent again by net/http, unless it is
// prevented: past the gate.
func TestNotSentTwice(t *testing.T) {
	r := crawl(t, site(
		noRobots, sluicetest.Path("/cut", sluicetest.On(1, sluicetest.Cut())), htmlPage("/cut"), htmlPage("/", "/cut"),
	), "http://a.test/")
	if err := r.record.CheckSpacing(1000 * millisecond); err != nil {
		t.Error(err)
	}
	if p := r.pages["http://a.test/cut"]; p.Attempts != 2 || p.Status != 200 || len(r.record.Requests) != 4 {
		t.Errorf("%+v, %v", p, r.record.Requests)
	}
	if n := len(r.record.Conns); n > 2 {
		t.Errorf("%d connections", n)
	}
	for _, q := range r.record.Requests {
		if q.Header.Get("Transfer-Encoding") != "" || q.Method != http.MethodGet {
			t.Errorf("%+v", q)
		}
	}
}
