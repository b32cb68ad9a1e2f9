package main

import (
	"fmt"
	"net/http"
	"strings"
)

// A first command crawls a site. The addresses of its pages have no scheme if it is http.
type first struct {
	title                string
	start                string // the first address
	sluice, wget, scrapy string // the flags
	site                 map[string]page
}

// A page of a site is HTML, unless header says otherwise.
type page struct {
	status int // 0 is 200
	header http.Header
	body   string
	denied bool // by robots.txt, nofollow or the flags
	helper bool // not a page, but what a crawler reads to find some: a sitemap, a style sheet
}

// links is a page that links to others.
func links(hrefs ...string) page {
	var b strings.Builder
	b.WriteString("<!doctype html><title>A page</title>")
	for _, href := range hrefs {
		fmt.Fprintf(&b, "<p><a href=\"%s\">%s and more of it</a>\n", href, href)
	}
	return page{body: b.String()}
}

// leaf is a page without links. Its text differs from that of others.
func leaf(name string) page { return page{body: "<!doctype html><p>This is " + name} }

func moved(to string) page { return page{status: 301, header: http.Header{"Location": {to}}} }

func html(body string) page { return page{body: "<!doctype html>" + body} }

func (p page) with(name, value string) page {
	p.header = http.Header{name: {value}}
	return p
}

func (p page) deny() page { p.denied = true; return p }

func robots(text string) page { return page{body: text}.with("Content-Type", "text/plain") }

func xml(body string) page {
	p := page{body: body, helper: true}
	return p.with("Content-Type", "application/xml")
}

var firsts = []first{
	{title: "an address without a scheme", start: "site.test", site: map[string]page{
		"site.test/": links("a.html", "/b"), "site.test/a.html": leaf("a"), "site.test/b": links("c"), "site.test/c": leaf("c"),
	}},
	{title: "it redirects to www", start: "http://site.test/", site: map[string]page{
		"site.test/": moved("http://www.site.test/"), "www.site.test/": links("/a", "http://www.site.test/b", "http://site.test/c"),
		"www.site.test/a": leaf("a"), "www.site.test/b": leaf("b"), "site.test/c": moved("http://www.site.test/c"), "www.site.test/c": leaf("c"),
	}},
	{title: "it redirects to https and www", start: "site.test", site: map[string]page{
		"site.test/": moved("https://site.test/"), "https://site.test/": moved("https://www.site.test/"), "https://www.site.test/": links("/a", "b"),
		"https://www.site.test/a": links("http://www.site.test/c"), "https://www.site.test/b": leaf("b"),
		"www.site.test/c": moved("https://www.site.test/c"), "https://www.site.test/c": leaf("c"),
	}},
	{title: "a chain of seven pages", start: "http://site.test/", sluice: "-depth 7", wget: "-l 7", scrapy: "-s DEPTH_LIMIT=7", site: map[string]page{
		"site.test/": links("1"), "site.test/1": links("2"), "site.test/2": links("3"), "site.test/3": links("4"),
		"site.test/4": links("5"), "site.test/5": links("6"), "site.test/6": links("7"), "site.test/7": leaf("7"),
	}},
	{title: "the same, as each does by default", start: "http://site.test/", site: map[string]page{
		"site.test/": links("1"), "site.test/1": links("2"), "site.test/2": links("3"), "site.test/3": links("4"),
		"site.test/4": links("5"), "site.test/5": links("6"), "site.test/6": links("7"), "site.test/7": leaf("7"),
	}},
	{title: "hosts of one domain", start: "http://www.site.test/", sluice: "-domains site.test", wget: "-H -D site.test", site: map[string]page{
		"www.site.test/": links("http://a.site.test/", "//b.site.test/x", "http://other.test/"), "a.site.test/": links("/y"), "a.site.test/y": leaf("y"),
		"b.site.test/x": leaf("x"), "other.test/": leaf("another site").deny(),
	}},
	{title: "pages compressed without being asked", start: "http://site.test/", wget: "--compression=auto", site: map[string]page{
		"site.test/": links("a", "b").with("Content-Encoding", "gzip"), "site.test/a": links("c").with("Content-Encoding", "gzip"),
		"site.test/b": leaf("b"), "site.test/c": leaf("c"),
	}},
	{title: "base href", start: "http://site.test/docs/", site: map[string]page{
		"site.test/docs/":    html(`<base href="/other/"><a href="a">a</a><a href="../b">b</a>`),
		"site.test/other/a":  html(`<base href="http://site.test/x/y"><a href="c">c</a>`),
		"site.test/b":        leaf("b"),
		"site.test/x/c":      html(`<head><base target="_top"><base href="deep/"></head><a href="d">d</a>`),
		"site.test/x/deep/d": leaf("d"),
	}},
	{title: "percent forms", start: "http://site.test/", site: map[string]page{
		"site.test/": links("/a%20b", "c d", "/%7Euser/", "/100%25", "e%2Ff", "(g)"), "site.test/a%20b": leaf("a b"), "site.test/c%20d": leaf("c d"),
		"site.test/~user/": leaf("user"), "site.test/%7Euser/": {helper: true, body: "the same"}, "site.test/100%25": leaf("100"),
		"site.test/e%2Ff": leaf("ef"), "site.test/(g)": leaf("g"),
	}},
	{title: "relative links", start: "http://site.test/a/b/", site: map[string]page{
		"site.test/a/b/": links("../c", "./d", "//site.test/e", "../../../f", "?q", "g/./h/../i", "."), "site.test/a/c": leaf("c"), "site.test/a/b/d": leaf("d"),
		"site.test/e": leaf("e"), "site.test/f": leaf("f"), "site.test/a/b/?q": leaf("q"), "site.test/a/b/g/i": leaf("i"),
	}},
	{title: "a folder without its slash", start: "http://site.test/docs", site: map[string]page{
		"site.test/docs": moved("/docs/"), "site.test/docs/": links("a", "b/"), "site.test/docs/a": leaf("a"), "site.test/docs/b/": links("../c"), "site.test/docs/c": leaf("c"),
	}},
	{title: "frames, iframes and image maps", start: "http://site.test/", site: map[string]page{
		"site.test/":   html(`<frameset><frame src="f1"><frame src="f2"></frameset><noframes><a href="n">n</a></noframes>`),
		"site.test/f1": html(`<iframe src="i"></iframe>`), "site.test/f2": html(`<map><area href="m"></map>`),
		"site.test/i": leaf("i"), "site.test/m": leaf("m"), "site.test/n": leaf("n"),
	}},
	{title: "only the sitemap knows the pages", start: "http://site.test/", site: map[string]page{
		"site.test/robots.txt": robots("User-agent: *\nDisallow:\nSitemap: http://site.test/map.xml\n"), "site.test/": leaf("the start"),
		"site.test/map.xml": xml(`<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>http://site.test/one.xml</loc></sitemap></sitemapindex>`),
		"site.test/one.xml": xml(`<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://site.test/a</loc></url><url><loc> http://site.test/b </loc></url></urlset>`),
		"site.test/a":       leaf("a"), "site.test/b": leaf("b"),
	}},
	{title: "noindex and nofollow", start: "http://site.test/", site: map[string]page{
		"site.test/": links("a", "b", "c"), "site.test/a": html(`<meta name="robots" content="noindex,follow"><a href="d">d</a>`),
		"site.test/b": html(`<meta name="robots" content="nofollow"><a href="e">e</a>`), "site.test/c": html(`<a rel="nofollow" href="f">f</a><a href="g">g</a>`),
		"site.test/d": leaf("d"), "site.test/e": leaf("e").deny(), "site.test/f": leaf("f").deny(), "site.test/g": leaf("g"),
	}},
	{title: "canonical addresses", start: "http://site.test/", site: map[string]page{
		"site.test/": links("list?sort=up", "list?sort=down"), "site.test/list?sort=up": html(`<link rel="canonical" href="/list">up <a href="a">a</a>`),
		"site.test/list?sort=down": html(`<link rel="canonical" href="/list">down <a href="b">b</a>`), "site.test/list": html(`the list <a href="c">c</a>`),
		"site.test/a": leaf("a"), "site.test/b": leaf("b"), "site.test/c": leaf("c"),
	}},
	{title: "meta refresh", start: "http://site.test/", site: map[string]page{
		"site.test/": html(`<meta http-equiv="refresh" content="0; url=home.html">`), "site.test/home.html": html(`<META HTTP-EQUIV=Refresh CONTENT="5;URL='/a'"><a href="b">b</a>`),
		"site.test/a": leaf("a"), "site.test/b": leaf("b"),
	}},
	{title: "a chain of redirects", start: "http://site.test/", site: map[string]page{
		"site.test/": links("1"), "site.test/1": moved("2"), "site.test/2": moved("/3"), "site.test/3": moved("http://site.test/4"), "site.test/4": moved("?x#y"),
		"site.test/4?x": links("a"), "site.test/a": leaf("a"),
	}},
	{title: "pages without Content-Type, or an odd one", start: "http://site.test/", site: map[string]page{
		"site.test/": page{body: links("a", "b", "c").body, header: http.Header{"Content-Type": nil}}, "site.test/a": page{body: links("d").body, header: http.Header{"Content-Type": nil}},
		"site.test/b": links("e").with("Content-Type", "TEXT/HTML;charset=UTF-8"), "site.test/c": links("f").with("Content-Type", "application/xhtml+xml"),
		"site.test/d": leaf("d"), "site.test/e": leaf("e"), "site.test/f": leaf("f"),
	}},
	{title: "query strings", start: "http://site.test/list?page=1", site: map[string]page{
		"site.test/list?page=1": links("?page=2", "/item?id=1&amp;lang=en", "/item?id=2&lang=en"), "site.test/list?page=2": links("?page=3"), "site.test/list?page=3": leaf("3"),
		"site.test/item?id=1&lang=en": leaf("item 1"), "site.test/item?id=2&lang=en": leaf("item 2"),
	}},
	{title: "fragments", start: "http://site.test/#top", site: map[string]page{
		"site.test/": links("#a", "a#b", "a#c", "/b?x#y", "#!/d"), "site.test/a": leaf("a"), "site.test/b?x": leaf("b"),
	}},
	{title: "paths with letters of the world", start: "http://site.test/", site: map[string]page{
		"site.test/": links("bücher", "/日本/", "caf%C3%A9"), "site.test/b%C3%BCcher": links("größe"), "site.test/%E6%97%A5%E6%9C%AC/": leaf("Japan"),
		"site.test/caf%C3%A9": leaf("café"), "site.test/gr%C3%B6%C3%9Fe": leaf("size"),
	}},
	{title: "a name with an umlaut", start: "http://bücher.test/", site: map[string]page{
		"xn--bcher-kva.test/": links("a", "http://bücher.test/b", "http://xn--bcher-kva.test/c"), "xn--bcher-kva.test/a": leaf("a"),
		"xn--bcher-kva.test/b": leaf("b"), "xn--bcher-kva.test/c": leaf("c"),
	}},
	{title: "all that the pages show", start: "http://site.test/", sluice: "-accept */*", site: map[string]page{
		"site.test/":      html(`<link rel="stylesheet" href="s.css"><link rel="icon" href="i.ico"><style>p{background:url(p.png)}</style><img src="1.png" srcset="2.png 2x, 3.png 3x"><script src="j.js"></script><div style="background:url('d.png')"></div><video src="v.mp4" poster="po.png"></video><object data="o.svg"></object>`),
		"site.test/s.css": page{body: `@import "t.css"; body{background:url("b.png")}`}.with("Content-Type", "text/css"),
		"site.test/t.css": page{body: `@font-face{src:url(f.woff)}`}.with("Content-Type", "text/css"),
		"site.test/i.ico": png("i"), "site.test/p.png": png("p"), "site.test/1.png": png("1"), "site.test/2.png": png("2"), "site.test/3.png": png("3"),
		"site.test/d.png": png("d"), "site.test/b.png": png("b"), "site.test/po.png": png("po"), "site.test/v.mp4": png("v"), "site.test/o.svg": png("o"),
		"site.test/j.js": page{body: "0"}.with("Content-Type", "text/javascript"), "site.test/f.woff": page{body: "font"}.with("Content-Type", "font/woff"),
	}},
	{title: "robots.txt with Allow and wildcards", start: "http://site.test/", site: map[string]page{
		"site.test/robots.txt": robots("User-agent: *\nDisallow: /private/\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow: /*?print\n"),
		"site.test/":           links("private/a", "private/open", "x.pdf", "x.pdf.html", "y?print", "y"), "site.test/private/a": leaf("private").deny(),
		"site.test/private/open": leaf("open"), "site.test/x.pdf": leaf("pdf").deny(), "site.test/x.pdf.html": leaf("html"), "site.test/y?print": leaf("print").deny(), "site.test/y": leaf("y"),
	}},
	{title: "other languages, and links for browsers without scripts", start: "http://site.test/", site: map[string]page{
		"site.test/": html(`<link rel="alternate" hreflang="de" href="/de/"><noscript><a href="all">all</a></noscript>`), "site.test/de/": leaf("Deutsch"), "site.test/all": leaf("all"),
	}},
	{title: "old markup", start: "http://site.test/", site: map[string]page{
		"site.test/":  html("<BODY><A HREF=a>a</A><a href='b'>b</a><a\nhref = \"\n c \">c</a><a href=\"d&#47;e\">d</a><!-- <a href=hidden> --><a href='javascript:void(0)'>j</a><a href='mailto:x@site.test'>m</a>"),
		"site.test/a": leaf("a"), "site.test/b": leaf("b"), "site.test/c": leaf("c"), "site.test/d/e": leaf("e"),
	}},
}

func png(name string) page { return page{body: "image " + name}.with("Content-Type", "image/png") }
