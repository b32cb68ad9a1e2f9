package crawl

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestNormalURL(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"http://a.test", "http://a.test/"},
		{"HTTP://A.Test:80/x", "http://a.test/x"},
		{"https://a.test:443/", "https://a.test/"},
		{"https://a.test:80/", "https://a.test:80/"},
		{"http://a.test:/", "http://a.test/"},
		{"http://a.test/x#part", "http://a.test/x"},
		{"http://a.test/x?", "http://a.test/x"},
		{"http://a.test/x?b=1&a=2", "http://a.test/x?b=1&a=2"},
		{"http://me:secret@a.test/", "http://a.test/"},
		{"http://a.test/a/../b/./c", "http://a.test/b/c"},
		{"http://a.test/../..", "http://a.test/"},
		{"http://a.test/a%2Fb", "http://a.test/a%2Fb"},
		{"http://a.test?x", "http://a.test/?x"},
		{"http://[::1]:8080/", "http://[::1]:8080/"},
		{"http://a.test//x", "http://a.test//x"},
		// One way to write an address (RFC 3986, 6.2.2).
		{"http://a.test/%7Ejoe", "http://a.test/~joe"},
		{"http://a.test/%7ejoe", "http://a.test/~joe"},
		{"http://a.test/~joe", "http://a.test/~joe"},
		{"http://a.test/a%2fb", "http://a.test/a%2Fb"},
		{"http://a.test/%2e%2e/x/%2E/y", "http://a.test/x/y"},
		{"http://a.test/a!b", "http://a.test/a!b"},
		{"http://a.test/a%21b", "http://a.test/a%21b"},
		{"http://a.test/50%25-off", "http://a.test/50%25-off"},
		{"http://a.test/x?q=%7e%2f", "http://a.test/x?q=~%2F"},
		{"http://a.test/x?q=50%-off ü\"<>", "http://a.test/x?q=50%25-off%20%C3%BC%22%3C%3E"},
		{"http://a.test/ü s", "http://a.test/%C3%BC%20s"},
		// One name of a host.
		{"http://bücher.test/", "http://xn--bcher-kva.test/"},
		{"http://BÜCHER.test:80/", "http://xn--bcher-kva.test/"},
		{"http://b%C3%BCcher.test/", "http://xn--bcher-kva.test/"},
		{"http://XN--BCHER-KVA.test/", "http://xn--bcher-kva.test/"},
		{"http://a.test./", "http://a.test/"},
		{"http://a.test.:8080/", "http://a.test:8080/"},
		{"http://a_b.test/", "http://a_b.test/"},
		{"http://[0:0::1]/", "http://[::1]/"},
		{"http://./", ""},
		{"http://a\u2028ü.test/", ""},
		{"ftp://a.test/", ""},
		{"mailto:a@a.test", ""},
		{"javascript:void(0)", ""},
		{"http:a.test", ""},
		{"http:///x", ""},
		{"//a.test/x", ""},
		{"/x", ""},
		{"http://a.test/" + strings.Repeat("x", maxURL-14), "http://a.test/" + strings.Repeat("x", maxURL-14)},
		{"http://a.test/" + strings.Repeat("x", maxURL-13), ""},
	} {
		u, err := url.Parse(test.in)
		if err != nil {
			t.Fatal(err)
		}
		before := *u
		got, err := normalURL(u)
		if *u != before {
			t.Errorf("%s was changed to %s", test.in, u)
		}
		if err != nil {
			if test.want != "" {
				t.Errorf("%s: %v", test.in, err)
			}
			continue
		}
		if got.String() != test.want {
			t.Errorf("%s: %s, want %s", test.in, got, test.want)
		}
	}
}

func TestReadHTML(t *testing.T) {
	const page = `<title> Of
		links </title><title>second</title>
		<a href="one">1</a> <A HREF=' two#x '>2</a> <a href="one">again</a> <a name=x>none</a>
		<area href=/three> <iframe src="//b.test/four"></iframe> <a href="mailto:x@a.test">no</a>
		<a href="http://a.test:80/5?a&amp;b">5</a> <a href=":%zz">bad</a> <link href="/style.css">
		<template><a href="/template">a link, too</a></template>
		<svg><a href="/svg">yes</a></svg> <p><div><a href="/broken`
	base := &url.URL{Scheme: "http", Host: "a.test", Path: "/dir/page"}
	for _, test := range []struct {
		page, title string
		links       string
	}{
		{page + "\">", "Of links", "http://a.test/dir/one http://a.test/dir/two http://a.test/5?a&b http://a.test/svg http://a.test/template http://a.test/broken http://a.test/three http://b.test/four"},
		{`<base href="/other/"><base href="/no/"><a href=x>`, "", "http://a.test/other/x"},
		{`<base href="http://b.test"><a href=x>`, "", "http://b.test/x"},
		{`<base href=":%zz"><a href=x>`, "", "http://a.test/dir/x"},
		{`<meta name=Robots content="noindex, NoFollow"><a href=x>`, "", ""},
		{`<meta name=robots content=none><a href=x>`, "", ""},
		{`<meta name=robots content=noindex><a href=x>`, "", "http://a.test/dir/x"},
		{`<meta name=other content=nofollow><a href=x>`, "", "http://a.test/dir/x"},
		{"", "", ""},
		{"\x00\xff<<<a href=x", "", ""},
		{strings.Repeat("<div>", 100_000) + "<a href=x>", "", ""}, // deeper than allowed
	} {
		doc := readHTML([]byte(test.page), "text/html; charset=utf-8", base, "my-bot", false)
		links := doc.links
		if doc.nofollow {
			links = nil
		}
		want := strings.Fields(test.links)
		slices.Sort(links)
		slices.Sort(want)
		if doc.title != test.title || !slices.Equal(links, want) {
			t.Errorf("%.60q: title %q, links %q", test.page, doc.title, links)
		}
	}
	// In the order in which they stand there.
	doc := readHTML([]byte("<a href=/b><a href=/a><a href=/c>"), "", base, "", false)
	if !slices.Equal(doc.links, []string{"http://a.test/b", "http://a.test/a", "http://a.test/c"}) {
		t.Errorf("links %q", doc.links)
	}
}

// Links are read as browsers read them, and those that nobody can read are counted.
func TestReadHTML_AsBrowsers(t *testing.T) {
	base := &url.URL{Scheme: "http", Host: "a.test", Path: "/dir/page"}
	for _, test := range []struct {
		href, want string // "" for none
		unreadable int
	}{
		{"/50%-off", "http://a.test/50%25-off", 0},
		{"/50%2", "http://a.test/50%252", 0},
		{"/%zz%20", "http://a.test/%25zz%20", 0},
		{"/x?50%-off", "http://a.test/x?50%25-off", 0},
		{" /n\n  l\t\r\n", "http://a.test/n%20%20l", 0},
		{"ht\ntp://b.test/", "http://b.test/", 0},
		{`\x`, "http://a.test/x", 0},
		{`..\x\y?a\b`, "http://a.test/x/y?a\\b", 0},
		{`\\b.test\x`, "http://b.test/x", 0},
		{`http:\\b.test\x`, "http://b.test/x", 0},
		{"/a\x01b", "http://a.test/a%01b", 0},
		{"mailto:a@b.test", "", 0},
		{`javascript:alert("50%")`, "", 0},
		{"tel:+1", "", 0},
		{"data:text/html,x", "", 0},
		{"http://", "", 1},
		{"http://[::bad/", "", 1},
		{"//b.test:port/", "", 1},
		{":%zz", "", 1},
		{"/" + strings.Repeat("x", maxURL), "", 1},
	} {
		var got []string
		doc := readHTML([]byte("<a href='"+strings.ReplaceAll(test.href, "'", "&#39;")+"'>"), "text/html; charset=utf-8", base, "", false)
		if got = doc.links; test.want == "" && len(got) > 0 || test.want != "" && !slices.Equal(got, []string{test.want}) || doc.unreadable != test.unreadable {
			t.Errorf("%.40q: %q, %d unreadable", test.href, got, doc.unreadable)
		}
	}
}

// FuzzReadHTML reads anything, and what it finds is normal.
func FuzzReadHTML(f *testing.F) {
	f.Add([]byte(`<base href="//B.test:80/../x?"><a href="./y/../z#q">`), "http://a.test/dir/")
	f.Add([]byte(`<a href="http://A.test:">`), "https://a.test")
	f.Add([]byte("<frame src=//b.test//..//x>"), "http://a.test")
	f.Add([]byte("<a href=//b.test../x><a href=//.b.test/x><a href=//../x>"), "http://a.test")
	f.Fuzz(func(t *testing.T, page []byte, from string) {
		base, err := url.Parse(from)
		if err != nil {
			t.Skip()
		}
		if base, err = normalURL(base); err != nil {
			t.Skip()
		}
		for _, u := range readHTML(page, "", base, "", false).links {
			again, err := parseURL(u)
			if err != nil || again.String() != u {
				t.Errorf("%q is not normal: %v, %v", u, again, err)
			}
			if p := target(u); p == "" || p[0] != '/' {
				t.Errorf("%q has the path %q", u, p)
			}
		}
	})
}
