package crawl

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/sluicetest"
)

// What a browser would load and where it would go without scripts and frames.
func TestReadHTML_Shown(t *testing.T) {
	base := &url.URL{Scheme: "http", Host: "a.test", Path: "/d/"}
	for _, test := range []struct {
		page   string
		always string // links that are followed without -accept, too
		shown  string // and further ones with it
	}{
		{`<img src=1 srcset="2 2x,3 3x, 4,5,">`, "", "1 2 3 4,5"},
		{`<picture><source srcset="a,b 1x"><img></picture>`, "", "a,b"},
		{`<img srcset=",, ,"><img srcset="x"><img srcset>`, "", "x"},
		{`<video src=v poster=p></video><input type=image src=i>`, "", "v p i"},
		{`<style>@import "a.css"; @IMPORT 'b.css'; p{background: URL( "c" )} /* url(no) */ q{src:url(d),url('e')} r{x:url(data:image/png,x) url()}</style>`, "", "a.css b.css c d e"},
		{`<p style="background:url(x)">`, "", "x"},
		{`<frameset><frame src=f></frameset><noframes><a href=n>n</a></noframes>`, "f n", ""},
		{`<noframes><a href=n>n</a></noframes><a href=o>`, "n o", ""},
		{`<noscript><a href=n>n</a><img src=i></noscript>`, "n", "i"},
		{`<link rel=alternate hreflang=de href=de><link rel=alternate type=application/rss+xml href=feed>`, "de", ""},
	} {
		for _, embedded := range []bool{false, true} {
			want := strings.Fields(test.always)
			if embedded {
				want = append(want, strings.Fields(test.shown)...)
			}
			var got []string
			for _, link := range readHTML([]byte(test.page), "text/html", base, "", embedded).links {
				got = append(got, strings.TrimPrefix(link, "http://a.test/d/"))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: embedded %t: %q, want %q", test.page, embedded, got, want)
			}
		}
	}
}

func TestReadCSS(t *testing.T) {
	doc := readCSS([]byte(`@import url(t.css); a{b:url("../f.woff"),url(t.css)} c{d:url(:%zz)}`), &url.URL{Scheme: "http", Host: "a.test", Path: "/css/s.css"})
	if !slices.Equal(doc.links, []string{"http://a.test/css/t.css", "http://a.test/f.woff"}) || doc.unreadable != 1 {
		t.Errorf("%+v", doc)
	}
}

func TestWithScheme(t *testing.T) {
	for arg, want := range map[string]string{
		"a.test": "http://a.test", "a.test/b?c#d": "http://a.test/b?c#d", "a.test:8080/x": "http://a.test:8080/x", "localhost": "http://localhost",
		"localhost:80": "http://localhost:80", "box:80": "http://box:80", "http://a.test/": "http://a.test/", "ftp://a.test/": "ftp://a.test/",
		"resume": "resume", "mailto:x@a.test": "mailto:x@a.test", "": "", "/a.test": "/a.test", "a.test?http://b.test": "http://a.test?http://b.test",
	} {
		if got := withScheme(arg); got != want {
			t.Errorf("%q: %q, want %q", arg, got, want)
		}
	}
}

// What a style sheet refers to is fetched, unless its header says nofollow.
func TestAccept_Sheets(t *testing.T) {
	for field, want := range map[string][]string{"X-Other: x": {"/a.css", "/b.css"}, "X-Robots-Tag: nofollow": {"/a.css"}} {
		r := crawl(t, site(
			noRobots, sluicetest.Path("/a.css", sluicetest.Reply(200, `@import "b.css"`, "Content-Type: text/css", field)),
			sluicetest.Path("/b.css", sluicetest.Reply(200, "p{}", "Content-Type: text/css")),
		), "-accept", "text/css", "http://a.test/a.css")
		var got []string
		for address := range r.pages {
			got = append(got, strings.TrimPrefix(address, "http://a.test"))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}
