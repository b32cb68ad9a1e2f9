package crawl

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// moved is a server that redirects each request that is not for a prefix of scheme and host
// there, with the path.
func moved(to string, layers ...sluicetest.Layer) func() *sluicetest.Server {
	elsewhere := func(_ int, r *http.Request) bool {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		return scheme+r.Host != to
	}
	redirect := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	return site(append([]sluicetest.Layer{sluicetest.When(elsewhere, redirect)}, layers...)...)
}

// addresses returns the addresses of the pages, in order.
func (r result) addresses() string { return strings.Join(slices.Sorted(maps.Keys(r.pages)), " ") }

// Where a first address redirects the crawl begins, too; http and https, and www, are one site.
func TestFirst_Redirected(t *testing.T) {
	for _, test := range []struct{ first, to, want string }{
		{"http://a.test/", "https://a.test", "http://a.test/ https://a.test/ https://a.test/1"},
		{"http://a.test/", "http://www.a.test", "http://a.test/ http://www.a.test/ http://www.a.test/1"},
		{"http://www.a.test/", "http://a.test", "http://a.test/ http://a.test/1 http://www.a.test/"},
		{"http://a.test/", "https://www.b.test", "http://a.test/ https://www.b.test/ https://www.b.test/1"},
		{"http://a.test:8080/", "http://a.test", "http://a.test/ http://a.test/1 http://a.test:8080/"},
	} {
		r := crawl(t, moved(test.to, noRobots, htmlPage("/1"), htmlPage("/", "/1", "http://c.test/")), test.first)
		if r.addresses() != test.want || r.Elsewhere != 1 || r.status(nil) != 0 {
			t.Errorf("%s: %s, %d elsewhere, status %d", test.first, r.addresses(), r.Elsewhere, r.status(nil))
		}
		moves := strings.Join(r.moves, "; ")
		if another := test.to == "https://www.b.test" || strings.Contains(test.first, ":8080"); another != (moves == test.first+" redirects to "+test.to+"/: that site is crawled, too") || !another && moves != "" {
			t.Errorf("%s: says %q", test.first, moves)
		}
	}
}

// So they are where a second redirect leads.
func TestFirst_RedirectedTwice(t *testing.T) {
	to := func(host, address string) sluicetest.Layer {
		return sluicetest.Host(host, sluicetest.Status(301, "Location: "+address))
	}
	r := crawl(t, site(noRobots, to("a.test", "http://b.test/"), to("b.test", "http://c.test/"), htmlPage("/1"), htmlPage("/", "/1")), "http://a.test/")
	if r.addresses() != "http://a.test/ http://b.test/ http://c.test/ http://c.test/1" {
		t.Error(r.addresses())
	}
}

// Links within a first site that have another scheme, or www, are followed.
func TestFirst_OneSite(t *testing.T) {
	links := []string{"https://a.test/1", "http://www.a.test/2", "https://www.a.test/3", "http://b.a.test/4", "http://a.test:81/5", "http://wwwa.test/6"}
	for _, first := range []string{"http://a.test/", "https://www.a.test/"} {
		home := sluicetest.When(func(_ int, r *http.Request) bool { return r.URL.Path == "/" }, htmlPage("/", links...))
		r := crawl(t, site(noRobots, home, htmlPage("/")), first)
		if want := first + " http://www.a.test/2 https://a.test/1 https://www.a.test/3"; len(r.pages) != 4 || strings.Join(sortedWords(want), " ") != r.addresses() || r.Elsewhere != 3 {
			t.Errorf("%s: %s, %d elsewhere", first, r.addresses(), r.Elsewhere)
		}
	}
}

func sortedWords(text string) []string { return slices.Sorted(slices.Values(strings.Fields(text))) }

// -domains are followed with what is below them.
func TestDomains(t *testing.T) {
	links := []string{"http://b.test/", "https://x.y.b.test/", "http://ab.test/", "http://b.test.c.test/", "http://bücher.test/"}
	home := sluicetest.When(func(_ int, r *http.Request) bool { return r.Host == "a.test" }, htmlPage("/", links...))
	for domains, want := range map[string]string{
		"b.test":                  "http://a.test/ http://b.test/ https://x.y.b.test/",
		"*.B.test., bücher.test":  "http://a.test/ http://b.test/ http://xn--bcher-kva.test/ https://x.y.b.test/",
		".y.b.test":               "http://a.test/ https://x.y.b.test/",
		"test":                    "http://a.test/ http://ab.test/ http://b.test.c.test/ http://b.test/ http://xn--bcher-kva.test/ https://x.y.b.test/",
		"xn--bcher-kva.test,none": "http://a.test/ http://xn--bcher-kva.test/",
	} {
		r := crawl(t, site(noRobots, home, htmlPage("/", "/")), "-domains", domains, "http://a.test/")
		if r.addresses() != want {
			t.Errorf("%s: %s", domains, r.addresses())
		}
	}
}

// A crawl that is continued knows where its first addresses were redirected, also if its
// store was lost; without that it would leave the site there alone.
func TestFirst_Resumed(t *testing.T) {
	srv := moved("https://b.test", noRobots, htmlPage("/1", "/2"), htmlPage("/2"), htmlPage("/", "/1"))
	for _, lost := range []bool{false, true} {
		r := crawl(t, srv, "-pages", "2", "http://a.test/")
		if r.addresses() != "http://a.test/ https://b.test/" {
			t.Fatal(r.addresses())
		}
		if p := r.pages["https://b.test/"]; !p.First || p.Hops != 1 {
			t.Errorf("%+v", p)
		}
		if lost {
			must(t, storeFS.RemoveAll(filepath.Join(r.dir, storeFolder)))
		}
		r = crawlWith(t, crawling{dir: r.dir}, srv, "-resume")
		if r.addresses() != "http://a.test/ https://b.test/ https://b.test/1 https://b.test/2" {
			t.Errorf("store lost: %v: %s", lost, r.addresses())
		}
	}
}

// A store of an earlier version knows the first hosts by scheme, host and port.
func TestFirst_OldStore(t *testing.T) {
	srv := site(noRobots, htmlPage("/1", "/2", "https://a.test/3"), htmlPage("/2"), htmlPage("/", "/1"))
	r := crawl(t, srv, "-pages", "1", "http://a.test/")
	s, err := openStore(filepath.Join(r.dir, storeFolder))
	must(t, err)
	must(t, s.db.DeleteRange([]byte{'f'}, []byte{'f' + 1}, nil))
	must(t, s.db.Set(hostKeyOf('f', idOf("http://a.test")), nil, nil))
	must(t, s.close())
	r = crawlWith(t, crawling{dir: r.dir}, srv, "-resume")
	if _, ok := r.pages["https://a.test/3"]; !ok {
		t.Error(r.addresses())
	}
}

// Nothing but redirects is no success.
func TestOnlyRedirects(t *testing.T) {
	loop := site(noRobots, sluicetest.Path("/a", sluicetest.Status(302, "Location: /b")), sluicetest.Status(302, "Location: /a"))
	r := crawl(t, loop, "http://a.test/")
	hints := r.hints(nil, cli.ExitFailed)
	if r.Pages != 3 || r.Redirects != 3 || r.status(nil) != cli.ExitFailed || !slices.Contains(hints, "no page could be fetched, only redirects") {
		t.Errorf("%d pages, status %d, %q", r.Pages, r.status(nil), hints)
	}
}

// endlessly leads from /n to /n+1, by redirects or by canonical links.
func endlessly(canonical bool) func() *sluicetest.Server {
	return site(noRobots, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		to := fmt.Sprintf("/%d", n+1)
		if n%2 == 0 && canonical {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<link rel=canonical href=%s>%d", to, n)
			return
		}
		http.Redirect(w, r, to, http.StatusFound)
	})))
}

// A chain of redirects, and of canonical addresses, has an end, also if it is continued in
// between, with its store or without.
func TestHops(t *testing.T) {
	for _, canonical := range []bool{false, true} {
		r := crawl(t, endlessly(canonical), "http://a.test/0")
		if p := r.pages["http://a.test/10"]; len(r.pages) != 1+mostHops || p.Hops != mostHops || p.Depth != 0 || r.TooManyHops != 1 {
			t.Errorf("canonical %v: %d pages, %d not followed, %+v", canonical, len(r.pages), r.TooManyHops, p)
		}
		for _, lost := range []bool{false, true} {
			r := crawl(t, endlessly(canonical), "-pages", "4", "http://a.test/0")
			if lost {
				must(t, storeFS.RemoveAll(filepath.Join(r.dir, storeFolder)))
			}
			if r = crawlWith(t, crawling{dir: r.dir}, endlessly(canonical), "-resume"); len(r.pages) != 1+mostHops {
				t.Errorf("canonical %v, store lost %v: %d pages", canonical, lost, len(r.pages))
			}
		}
	}
	// A link of a page begins a new chain.
	r := crawl(t, site(noRobots, sluicetest.Path("/a", sluicetest.Status(301, "Location: /b")), htmlPage("/b", "/c"), htmlPage("/c")), "http://a.test/a")
	if p := r.pages["http://a.test/c"]; p.Hops != 0 || p.First || p.Depth != 1 {
		t.Errorf("%+v", p)
	}
}
