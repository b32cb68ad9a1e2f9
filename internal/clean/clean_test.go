package clean

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"github":                              "github",
		"<script>alert(1)</script>":           "<script>alert(1)</script>", // escaped where it is shown
		"https://api.example.com":             "https://api.example.com",
		"https://user:secret@host:8080/v1":    "https://host:8080/v1",
		"https://secret@host":                 "https://host",
		"https://host?key=secret":             "https://host",
		"https://host/a?mail=a@b.example#top": "https://host/a",
		"https://host?mail=a@b.example":       "https://host",
		"https://host/@name":                  "https://host/@name",
		"https://[::1]:80/@name":              "https://[::1]:80/@name",
		"https://user:se/cret@host/":          "https://…", // not an address, but meant as one
		"https://user:se?cret@host/":          "https://…",
		"https://a/?next=https://u:secret@b/": "https://a/",
		"https://a@b@c/":                      "https://c/",
		`429 for "https://u:secret@host/x?y", and ftp://z?w`: `429 for "https://host/x and ftp://z`,
		"token=sk-live-1 host?key=secret&page=2":             "token=… host?key=…&page=2",
		"(api_key=5, X-Auth-Token=6)":                        "(api_key=…, X-Auth-Token=…)",
		"a=b monkey = 3":                                     "a=b monkey = 3",
		"no://":                                              "no://",
		"a\nb\x1b[31m\u202ec":                                "a b [31m c",
		"a\xffb":                                             "a\ufffdb",
	} {
		if got := Text(text); got != want {
			t.Errorf("Text(%q) = %q, want %q", text, got, want)
		}
	}
	if got := Text(strings.Repeat("é", 1000)); len(got) > most+len("…") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// Of a valid address neither user nor query nor fragment is shown, whatever stands around it,
// and what is shown is short and has no control characters.
func FuzzText(f *testing.F) {
	f.Add("a ", "user", "pass", "host", "/path", "q=1", "top", " b")
	f.Add("", "", "s?:/#@", "h:80", "/@x", "x=@", "@", "://")
	f.Fuzz(func(t *testing.T, before, user, pass, host, path, query, fragment, after string) {
		const secret = "5ecret"
		u := url.URL{
			Scheme: "https", User: url.UserPassword(user+secret, pass+secret), Host: host,
			Path: path, RawQuery: url.QueryEscape(query + secret), Fragment: fragment + secret,
		}
		parsed, err := url.Parse(u.String())
		if err != nil || parsed.Host == "" || strings.Contains(before+host+path+after, secret) {
			return
		}
		if strings.HasSuffix(before, ":") { // another "://", which may hide the address
			return
		}
		text := Text(before + " " + u.String() + " " + after)
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q, of %q", secret, text, u.String())
		}
		if len(text) > most+len("…") || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r\t\x00\x1b") {
			t.Errorf("%q", text)
		}
	})
}
