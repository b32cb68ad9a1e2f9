package robots

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temoto/robotstxt"
)

const us = "sluice-crawler"

// Each row is a file, with "|" for the ends of lines, and paths with whether
// they are allowed.
func TestAllowed(t *testing.T) {
	for _, test := range []struct {
		file, yes, no string
	}{
		{"", "/ /a", ""},
		{"   ||# nothing|", "/ /a", ""},
		{"<!doctype html>|<p>Disallow: everything</p>", "/", ""},
		{"User-agent: *|Disallow: /", "/robots.txt", "/ /a /robots.txt?x"},
		{"User-agent: *|Disallow:", "/ /a", ""},
		{"User-agent: *|Disallow: /a", "/ /b/a /A", "/a /a/b /ab /a?x"},
		{"User-agent: *|Disallow: a", "/b/a", "/a"},
		{"User-agent: *|Disallow: /a|Allow: /a/b", "/a/b /a/b/c", "/a /a/c"},

		// Bad lines: the others count, and in temoto none would.
		{"User-agent: *|Crawl-delay: abc|Disallow: /a", "/", "/a"},
		{"User-agent: *|Crawl-delay: -3|Disallow: /a", "/", "/a"},
		{"User-agent: *|Crawl-delay: NaN|Disallow: /a", "/", "/a"},
		{"User-agent: *|Crawl-delay:|Disallow: /a", "/", "/a"},
		{"Crawl-delay: 2|User-agent: *|Disallow: /a", "/", "/a"},
		{"Disallow: /b|User-agent: *|Disallow: /a", "/ /b", "/a"},
		{"Allow: /a|User-agent: *|Disallow: /a", "/", "/a"},
		{"User-agent: *|\x00\xFF\xFE: ::|Disallow: /a", "/", "/a"},

		// Lines that temoto takes for another.
		{"User-agent: *|Disallow: /a#why", "/", "/a /a/b"},
		{"User-agent: *|Disallow : /a", "/ /:", "/a"},
		{"User-agent: *|Disallow /a", "/", "/a"},
		{"User-agent: *|Disallow\t/a", "/", "/a"},
		{"User-agent: *|Disalow: /a", "/", "/a"},
		{"User-agent: *|DISALLOW:/a", "/", "/a"},
		{"User-agent: *|Disallow: *", "", "/ /a"},
		{"User-agent: *|Disallow: /a b", "/a", "/a%20b"},
		{"\uFEFFUser-agent: *|Disallow: /a", "/", "/a"},

		// Ends of lines.
		{"User-agent: *\rDisallow: /a\r\nDisallow: /b\n\r\n\rDisallow: /c", "/", "/a /b /c"},

		// Wildcards hold from the beginning on.
		{"User-agent: *|Disallow: /*.php", "/a /php", "/a.php /a/b.php?x /.phpx"},
		{"User-agent: *|Disallow: /*.php$", "/a.php?x /a.phps", "/a.php"},
		{"User-agent: *|Disallow: /a*b", "/c/a/b /a", "/ab /axb /axxbyy"},
		{"User-agent: *|Disallow: /a*|Disallow: /b**c", "/", "/a /ab /bc /bxc"},
		{"User-agent: *|Disallow: *.js", "/", "/x.js /a/x.js"},
		{"User-agent: *|Disallow: /$", "/a", "/"},
		{"User-agent: *|Disallow: /a$b", "/a", "/a$b /a%24b"},
		{"User-agent: *|Disallow: /a%2Ab|Disallow: /c%24", "/axb /c", "/a*b /a%2ab /c$"},
		{"User-agent: *|Disallow: /a(b|Disallow: /[z|Disallow: /q+", "/ /qq /ab", "/a(b /[z /q+"},
		{"User-agent: *|Disallow: /a.b", "/axb", "/a.b"},

		// The longest rule counts, and of two as long the one that allows.
		{"User-agent: *|Disallow: /a|Allow: /a", "/a", ""},
		{"User-agent: *|Allow: /a|Disallow: /a", "/a", ""},
		{"User-agent: *|Allow: /|Disallow: /", "/a", ""},
		{"User-agent: *|Allow: /*.html|Disallow: /secret/", "/a.html", "/secret/a.html"},
		{"User-agent: *|Disallow: /*.ht|Allow: /page", "/page.htm", "/pag.htm"},
		{"User-agent: *|Allow: /$|Disallow: /", "/", "/a"},
		{"User-agent: *|Allow: /a*$|Disallow: /ab", "/ab", ""},
		{"User-agent: *|Allow: /a$|Disallow: /*a", "/a", "/ba"},

		// One way to write a path.
		{"User-agent: *|Disallow: /~me", "/", "/~me /%7Eme /%7eme"},
		{"User-agent: *|Disallow: /%7eme", "/", "/~me /%7Eme"},
		{"User-agent: *|Disallow: /ü", "/u", "/ü /%C3%BC /%c3%bc"},
		{"User-agent: *|Disallow: /a%2Fb", "/a/b", "/a%2Fb /a%2fb"},
		{"User-agent: *|Disallow: /100%", "/100", "/100% /100%25"},

		// RFC 9309, table of section 2.2.2, second row, and the other way round.
		{"User-agent: *|Disallow: /foo/bar?baz=http://foo.bar", "/foo/bar?baz=http /foo/bar?baz%3Dhttp://foo.bar", "/foo/bar?baz=http://foo.bar /foo/bar?baz=http%3A%2F%2Ffoo.bar /foo/bar?baz=http:%2f/foo.bar"},
		{"User-agent: *|Disallow: /foo/bar?baz=http%3A%2F%2Ffoo.bar", "/foo/bar", "/foo/bar?baz=http://foo.bar /foo/bar?baz=http%3A%2F%2Ffoo.bar"},
		{"User-agent: *|Disallow: /*//x", "/a?b=/x /a%2F/x", "/a?b=//x /a?b=%2F/x /a//x"},
		{"User-agent: *|Disallow: /*%2fx", "/a?b=x /a/x", "/a%2Fx /a?b=%2Fx /a?b=/x"},
		{"User-agent: *|Disallow: /*b*%2fx", "/ab?x /ab/x", "/ab%2Fx /a?b=%2Fx /ab?%2Fx"},
		{"User-agent: *|Disallow: /|Allow: /a?b=/", "/a?b=/ /a?b=%2F", "/a"},
		{"User-agent: *|Disallow: /|Allow: /a?b=%2f", "/a?b=/ /a?b=%2F", "/a"},
		{"User-agent: *|Disallow: /a%3Fb", "/a?b", "/a%3Fb"},
		{"User-agent: *|Disallow: /a?b%3Dc", "/a?b=c", "/a?b%3Dc"},

		// Groups.
		{"User-agent: sluice-crawler|Crawl-delay: 0|User-agent: other|Disallow: /a", "/", "/a"}, // RFC 9309, 2.2.4
		{"User-agent: *|Crawl-delay: 9|User-agent: other|Disallow: /a", "/", "/a"},
		{"User-agent: *|Disallow: /b|Crawl-delay: 9|User-agent: other|Disallow: /a", "/a", "/b"},
		{"User-agent: sluice-crawler|Sitemap: /x|User-agent: other|Disallow: /a", "/", "/a"},
		{"User-agent: sluice-crawler|Disallow: /a||User-agent: *|Disallow: /b", "/b", "/a"},
		{"User-agent: *|Disallow: /b||User-agent: Sluice-Crawler/2.0 (x)|Disallow: /a", "/b", "/a"},
		{"User-agent: sluice|Disallow: /a|User-agent: s|Disallow: /|User-agent: sluice-crawler-news|Disallow: /", "/ /a", ""},
		{"User-agent: sluice-crawler|Disallow:||User-agent: *|Disallow: /", "/ /a", ""},
		{"User-agent: *|Disallow: /|User-agent: sluice-crawler", "/ /a", ""},
		{"User-agent: other|Disallow: /", "/", ""},
		{"User-agent: other|User-agent: *||User-agent: third|Disallow: /a", "/", "/a"},
		{"User-agent: *|Disallow: /a|User-agent: other|Disallow: /b|User-agent: *|Disallow: /c", "/b", "/a /c"},
		{"User-agent: a|Sitemap: https://x.test/|Nonsense: x|User-agent: *|Disallow: /a", "/", "/a"},
		{"User-agent: * all of you|Disallow: /a", "/", "/a"},
		{"User-agent: *bot|Disallow: /", "/", ""},
		{"User-agent:|Disallow: /", "/", ""},
		{"Useragent: *|Disallow: /a", "/", "/a"},
	} {
		r := Parse([]byte(strings.ReplaceAll(test.file, "|", "\n")), us)
		for _, path := range strings.Fields(test.yes) {
			if !r.Allowed(path) {
				t.Errorf("%q forbids %s", test.file, path)
			}
		}
		for _, path := range strings.Fields(test.no) {
			if r.Allowed(path) {
				t.Errorf("%q allows %s", test.file, path)
			}
		}
	}
}

func TestAllowedEmptyPath(t *testing.T) {
	if Parse([]byte("User-agent: *\nDisallow: /$"), us).Allowed("") {
		t.Error("the empty path is not /")
	}
}

// Why there is a sanitiser: what temoto makes of the same files. If this test
// fails, some of it may go.
func TestTemoto(t *testing.T) {
	for _, file := range []string{
		"User-agent: *\nCrawl-delay: abc\nDisallow: /a",
		"User-agent: *\nCrawl-delay: -3\nDisallow: /a",
		"User-agent: *\nCrawl-delay: NaN\nDisallow: /a",
		"User-agent: *\nCrawl-delay:\nDisallow: /a",
		"Crawl-delay: 2\nUser-agent: *\nDisallow: /a",
		"Disallow: /b\nUser-agent: *\nDisallow: /a",
	} {
		if _, err := robotstxt.FromString(file); err == nil {
			t.Errorf("temoto reads %q now", file)
		}
	}
	if data, err := robotstxt.FromString("User-agent: *\nCrawl-delay: 1e30"); err != nil || data.FindGroup(us).CrawlDelay > 0 {
		t.Errorf("temoto reads a delay of 1e30 as it should, %v", err)
	}
	for _, test := range []struct{ file, path string }{
		{"User-agent: *\nDisallow: /a#why", "/a"},
		{"User-agent: *\nDisallow : /a", "/a"},
		{"User-agent: *\nDisallow: *", "/a"},
		{"User-agent: *\nDisallow: /\nAllow: /a*.js", "/secret/a.js"},
		{"User-agent: *\nDisallow: /~me", "/%7Eme"},
		{"User-agent: sluice-crawler/2.0\nDisallow: /a", "/a"},
		{"User-agent: *\nDisallow: /\n\nUser-agent: sl\nDisallow: /b", "/a"},
		{"User-agent: *\nAllow: /*.html\nDisallow: /secret/", "/secret/a.html"},
	} {
		if data, err := robotstxt.FromString(test.file); err != nil || !data.TestAgent(test.path, us) {
			t.Errorf("temoto forbids %s by %q now, as it should, or not at all: %v", test.path, test.file, err)
		}
		if Parse([]byte(test.file), us).Allowed(test.path) {
			t.Errorf("%q allows %s", test.file, test.path)
		}
	}
}

func TestDelay(t *testing.T) {
	for _, test := range []struct {
		file string
		want time.Duration // −1: none
		note string
	}{
		{"User-agent: *", -1, ""},
		{"User-agent: *|Crawl-delay: 0", 0, ""},
		{"User-agent: *|Crawl-delay: 10", 10 * time.Second, ""},
		{"User-agent: *|Crawl-Delay:0.3 # slow", 300 * time.Millisecond, ""},
		{"User-agent: *|Crawl-delay: 1e-12", 1, ""}, // rounded up
		{"User-agent: *|Crawl-delay: 86400", 24 * time.Hour, ""},
		{"User-agent: *|Crawl-delay: 86401", MaxDelay, "line 2: Crawl-delay of 86401 s: taken for 24h0m0s"},
		{"User-agent: *|Crawl-delay: 1e30", MaxDelay, "line 2: Crawl-delay of 1e30 s: taken for 24h0m0s"},
		{"User-agent: *|Crawl-delay: 1e999", MaxDelay, "line 2: Crawl-delay of 1e999 s: taken for 24h0m0s"},
		{"User-agent: *|Crawl-delay: -1e999", -1, `line 2: Crawl-delay of "-1e999": not a number of seconds`},
		{"User-agent: *|Crawl-delay: +Inf", -1, `line 2: Crawl-delay of "+Inf": not a number of seconds`},
		{"User-agent: *|Crawl-delay: nan", -1, `line 2: Crawl-delay of "nan": not a number of seconds`},
		{"User-agent: *|Crawl-delay: -3", -1, `line 2: Crawl-delay of "-3": not a number of seconds`},
		{"User-agent: *|Crawl-delay: abc", -1, `line 2: Crawl-delay of "abc": not a number of seconds`},
		{"User-agent: *|Crawl-delay:", -1, `line 2: Crawl-delay of "": not a number of seconds`},
		{"Crawl-delay: 3|User-agent: *", -1, "line 1: Crawl-delay before the first User-agent"},
		// The longest, in whatever order.
		{"User-agent: *|Crawl-delay: 5|Crawl-delay: 2", 5 * time.Second, ""},
		{"User-agent: *|Crawl-delay: 2|User-agent: x|Disallow: /|User-agent: *|Crawl-delay: 5", 5 * time.Second, ""},
		// That of the group, and of no other.
		{"User-agent: *|Crawl-delay: 5|User-agent: sluice-crawler|Crawl-delay: 1", time.Second, ""},
		{"User-agent: *|Crawl-delay: 5|User-agent: sluice-crawler|Disallow: /a", -1, ""},
		{"User-agent: sluice-crawler|Crawl-delay: 1|User-agent: *|Crawl-delay: 5", time.Second, ""},
		{"User-agent: *|Crawl-delay: 5|Crawl-delay: 7|User-agent: other|Crawl-delay: 9|Disallow: /a", 7 * time.Second, ""},
		{"User-agent: other|User-agent: *|Crawl-delay: 5|Disallow: /a|Crawl-delay: 6", 6 * time.Second, ""},
		{"User-agent: *|Crawl-delay: 5|User-agent: other|Disallow: /a|Crawl-delay: 9", 5 * time.Second, ""},
	} {
		r := Parse([]byte(strings.ReplaceAll(test.file, "|", "\n")), us)
		d, ok := r.Delay()
		if !ok {
			if d != 0 {
				t.Errorf("%q: %v, and none", test.file, d)
			}
			d = -1
		}
		if d != test.want {
			t.Errorf("%q: delay %v, want %v", test.file, d, test.want)
		}
		if got := strings.Join(r.Notes(), "; "); got != test.note {
			t.Errorf("%q: notes %q, want %q", test.file, got, test.note)
		}
	}
}

func TestNotes(t *testing.T) {
	r := Parse([]byte("Disallow: /a\r\n\r\nwhat is this\n"+strings.Repeat("x", 100)+"\nSitemap: https://a.test/\nUser-agent: *\nAllow: /"), us)
	want := []string{
		"line 1: Disallow before the first User-agent",
		`line 3: "what is this" is not a known line`,
		`line 4: "` + strings.Repeat("x", 40) + `…" is not a known line`,
	}
	if !slices.Equal(r.Notes(), want) {
		t.Errorf("notes %q, want %q", r.Notes(), want)
	}
	if r.Len() != 1 {
		t.Errorf("%d rules, want 1", r.Len())
	}
	if n := Parse([]byte("User-agent: *\nUser-agent: *\nDisallow: /a"), us).Len(); n != 1 {
		t.Errorf("%d rules, want 1", n)
	}
	if n := Parse([]byte(strings.Repeat("what\n", 25)), us).Notes(); len(n) != 21 || n[20] != "and 5 more" {
		t.Errorf("notes %q", n)
	}
}

// What is beyond MaxSize does not count, and neither does the half of a line
// before it.
func TestTooLarge(t *testing.T) {
	begin := "User-agent: *\nDisallow: /a\n"
	fill := begin + strings.Repeat("#\n", (MaxSize-len(begin))/2-2)
	file := fill + "Allow: /aaaaaaaaaaaaaaaaaaaaaaa\nDisallow: /b\n"
	r := Parse([]byte(file), us)
	if r.Allowed("/a") || !r.Allowed("/b") || r.Allowed("/aaaaaaaaaaaaaaaaaaaaaaa") || r.Len() != 1 {
		t.Errorf("%d rules of a file that is cut off", r.Len())
	}
	if want := []string{"longer than 512 KiB: the rest does not count"}; !slices.Equal(r.Notes(), want) {
		t.Errorf("notes %q", r.Notes())
	}
	whole := fill[:len(begin)] + strings.Repeat("#\n", (MaxSize-len(begin))/2)
	whole = whole[:MaxSize-13] + "\nDisallow: /b"
	if len(whole) != MaxSize {
		t.Fatal(len(whole))
	}
	if r := Parse([]byte(whole), us); r.Allowed("/b") || len(r.Notes()) != 0 {
		t.Errorf("a file of exactly 512 KiB is cut off: %q", r.Notes())
	}
	if r := Parse([]byte(strings.Repeat("z", MaxSize+1)), us); !r.Allowed("/") {
		t.Error("a file of one long line forbids something")
	}
}

// Rules that are too long forbid more rather than less.
func TestLongRules(t *testing.T) {
	long := "/" + strings.Repeat("a", 2*MaxPath)
	r := Parse([]byte("User-agent: *\nDisallow: /a\nAllow: "+long+"\nDisallow: /b"+long), us)
	want := []string{"line 3: Allow of 8193 octets", "line 4: Disallow of 8195 octets: cut off after 4096"}
	if !slices.Equal(r.Notes(), want) || r.Allowed(long[:MaxPath]) || !r.Allowed("/b") || r.Len() != 2 {
		t.Errorf("%d rules, notes %q", r.Len(), r.Notes())
	}
	if r := Parse([]byte("User-agent: *\nDisallow: /\nAllow: "+long[:MaxPath]), us); !r.Allowed(long[:MaxPath]) || len(r.Notes()) > 0 {
		t.Errorf("a rule of %d octets does not count: %q", MaxPath, r.Notes())
	}
	if r := Everything(); !r.Allowed(long[:MaxPath]) || r.Allowed(long[:MaxPath+1]) {
		t.Error("MaxPath is not the longest path")
	}
}

// A file with more wildcards than can be tried forbids everything; without them
// it may be as long as it likes.
func TestTooManyWildcards(t *testing.T) {
	var some, many, plain strings.Builder
	for _, b := range []*strings.Builder{&some, &many, &plain} {
		b.WriteString("User-agent: *\n")
	}
	for i := range maxWildcards + 1 {
		if i < maxWildcards {
			fmt.Fprintf(&some, "Disallow: /x*%d$\n", i)
		}
		fmt.Fprintf(&many, "Disallow: /x*%d$\n", i)
		fmt.Fprintf(&plain, "Disallow: /x%d*\n", i) // that * says nothing
	}
	if r := Parse([]byte(some.String()), us); !r.Allowed("/a") || r.Allowed("/x/7") || len(r.Notes()) != 0 {
		t.Errorf("%d wildcards: notes %q", maxWildcards, r.Notes())
	}
	if r := Parse([]byte(many.String()), us); r.Allowed("/a") || !slices.Equal(r.Notes(), []string{"2001 rules with wildcards, more than 2000: nothing is allowed"}) {
		t.Errorf("%d wildcards: notes %q", maxWildcards+1, r.Notes())
	}
	if r := Parse([]byte(plain.String()), us); !r.Allowed("/a") || r.Allowed("/x7") || r.Len() != maxWildcards+1 {
		t.Errorf("%d plain rules: notes %q", r.Len(), r.Notes())
	}
}

func TestEverything(t *testing.T) {
	for _, path := range []string{"", "/", "/a", "/a?b"} {
		if !Everything().Allowed(path) {
			t.Errorf("Everything forbids %q", path)
		}
	}
	if _, ok := Everything().Delay(); ok {
		t.Error("Everything has a delay")
	}
}
