package crawl

import (
	"bytes"
	"crypto/sha256"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// isHTML reports whether an answer is a page.
func isHTML(header http.Header) bool {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return kind == "text/html" || kind == "application/xhtml+xml"
}

// digestOf is what tells contents apart.
func digestOf(body []byte) (digest [16]byte) {
	sum := sha256.Sum256(body)
	copy(digest[:], sum[:])
	return digest
}

// A document is what a page says, as far as it matters here. Addresses are normal, each
// once, in the order in which they stand there.
type document struct {
	title     string
	links     []string
	rel       []string // links that the page does not vouch for: rel=nofollow
	canonical string   // the address that the page names as its own

	unreadable int // links that are not addresses
	robotsSaid
}

// A robotsSaid is what a page, or its header, says to crawlers.
type robotsSaid struct{ nofollow, noindex bool }

func (r *robotsSaid) add(directives string) {
	for word := range strings.SplitSeq(strings.ToLower(directives), ",") {
		switch strings.TrimSpace(word) {
		case "nofollow":
			r.nofollow = true
		case "noindex":
			r.noindex = true
		case "none":
			r.nofollow, r.noindex = true, true
		}
	}
}

// robotsTag reads the fields X-Robots-Tag. A field that begins with the name of another
// crawler does not count.
func robotsTag(header http.Header, token string) (said robotsSaid) {
	for _, field := range header.Values("X-Robots-Tag") {
		name, directives, ok := strings.Cut(field, ":")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case !ok || strings.ContainsAny(name, ", ") || strings.HasPrefix(name, "max-") || name == "unavailable_after":
			said.add(field)
		case strings.EqualFold(name, token):
			said.add(directives)
		}
	}
	return said
}

// linkHeader returns the canonical address that a header names, or "".
func linkHeader(header http.Header, base *url.URL) string {
	for _, field := range header.Values("Link") {
		for part := range strings.SplitSeq(field, ",") {
			to, params, ok := strings.Cut(strings.TrimSpace(part), ">")
			if !ok || !strings.HasPrefix(to, "<") {
				continue
			}
			for param := range strings.SplitSeq(params, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
				if strings.EqualFold(name, "rel") && hasWord(strings.Trim(value, `"`), "canonical") {
					address, _ := absolute(base, to[1:])
					return address
				}
			}
		}
	}
	return ""
}

// absolute returns the normal form of a link of a page, or "" if it goes to no page: to
// mail, or a script. It returns an error if it is not an address at all.
func absolute(base *url.URL, href string) (string, error) {
	u, err := resolve(base, href)
	if err == nil {
		return u.String(), nil
	}
	if s := schemeOf(browserForm(href)); s != "" && s != "http" && s != "https" {
		return "", nil
	}
	return "", err
}

func hasWord(text, word string) bool {
	for w := range strings.FieldsSeq(text) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// toUTF8 decodes a page, in the charset that its byte order mark, its header or its first
// kilobyte names, as browsers do.
func toUTF8(page []byte, contentType string) []byte {
	encoding, _, _ := charset.DetermineEncoding(page, contentType)
	text, err := io.ReadAll(encoding.NewDecoder().Reader(bytes.NewReader(page)))
	if err != nil {
		return page
	}
	return text
}

// readHTML reads a page that was found at base. What is not HTML has no links; what
// is broken is read as a browser reads it. With embedded, what a page shows or runs is also linked to.
func readHTML(page []byte, contentType string, base *url.URL, token string, embedded bool) document {
	r := reader{base: base, token: token, embedded: embedded, seen: make(map[string]bool)}
	r.read(toUTF8(page, contentType))
	return r.document()
}

// read reads the elements of a page or of a part of it. Without scripts the contents of noscript are
// elements. What is nested deeper than x/net/html allows has none.
func (r *reader) read(text []byte) {
	root, err := html.ParseWithOptions(bytes.NewReader(text), html.ParseOptionEnableScripting(false))
	if err != nil {
		return
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			r.element(n)
		}
	}
}

// document returns what was read.
func (r *reader) document() document {
	for _, a := range r.anchors {
		to, err := absolute(r.base, a.href)
		if err != nil {
			r.doc.unreadable++
		}
		if to == "" || r.seen[to] {
			continue
		}
		r.seen[to] = true
		if a.nofollow {
			r.doc.rel = append(r.doc.rel, to)
		} else {
			r.doc.links = append(r.doc.links, to)
		}
	}
	if r.canonical != "" {
		r.doc.canonical, _ = absolute(r.base, r.canonical)
	}
	return r.doc
}

// A reader reads the elements of a page.
type reader struct {
	doc       document
	base      *url.URL
	hasBase   bool
	token     string
	embedded  bool
	anchors   []anchor
	canonical string
	seen      map[string]bool
}

type anchor struct {
	href     string
	nofollow bool
}

func (r *reader) element(n *html.Node) {
	switch n.DataAtom {
	case atom.Base: // the first one counts
		if u, err := r.base.Parse(browserForm(attribute(n, "href"))); err == nil && has(n, "href") && !r.hasBase {
			r.base, r.hasBase = u, true
		}
	case atom.Title:
		if r.doc.title == "" && n.FirstChild != nil {
			r.doc.title = strings.Join(strings.Fields(n.FirstChild.Data), " ")
		}
	case atom.Meta:
		r.meta(n)
	case atom.A, atom.Area:
		r.anchor(n, "href")
	case atom.Iframe, atom.Frame:
		r.anchor(n, "src")
	case atom.Noframes: // for a browser with frames its content is text
		if n.FirstChild != nil && n.FirstChild.Type == html.TextNode {
			r.read([]byte(n.FirstChild.Data))
		}
	case atom.Img, atom.Script, atom.Source, atom.Video, atom.Audio, atom.Embed, atom.Track, atom.Input:
		if r.embedded {
			r.anchor(n, "src")
			r.anchor(n, "poster")
			r.show(srcset(attribute(n, "srcset")))
		}
	case atom.Style:
		if r.embedded && n.FirstChild != nil {
			r.show(cssLinks(n.FirstChild.Data))
		}
	case atom.Object:
		if r.embedded {
			r.anchor(n, "data")
		}
	case atom.Link:
		switch rel := attribute(n, "rel"); {
		case hasWord(rel, "canonical"):
			r.canonical = attribute(n, "href")
		case hasWord(rel, "next"), hasWord(rel, "prev"):
			r.anchor(n, "href")
		case hasWord(rel, "alternate") && has(n, "hreflang"):
			r.anchor(n, "href")
		case r.embedded && (hasWord(rel, "stylesheet") || hasWord(rel, "icon")):
			r.anchor(n, "href")
		}
	}
	if r.embedded {
		r.show(cssLinks(attribute(n, "style")))
	}
}

// show notes what a page shows.
func (r *reader) show(hrefs []string) {
	for _, href := range hrefs {
		r.anchors = append(r.anchors, anchor{href: href})
	}
}

func (r *reader) anchor(n *html.Node, key string) {
	if has(n, key) {
		r.anchors = append(r.anchors, anchor{attribute(n, key), hasWord(attribute(n, "rel"), "nofollow")})
	}
}

// meta reads what a page says to crawlers, and where it sends browsers.
func (r *reader) meta(n *html.Node) {
	name, content := attribute(n, "name"), attribute(n, "content")
	switch {
	case strings.EqualFold(name, "robots"), strings.EqualFold(name, r.token):
		r.doc.add(content)
	case strings.EqualFold(attribute(n, "http-equiv"), "refresh"):
		_, to, ok := strings.Cut(content, ";")
		key, to, isURL := strings.Cut(strings.TrimSpace(to), "=")
		if ok && isURL && strings.EqualFold(strings.TrimSpace(key), "url") {
			r.anchors = append(r.anchors, anchor{href: strings.Trim(strings.TrimSpace(to), `"'`)})
		}
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == key {
			return true
		}
	}
	return false
}
