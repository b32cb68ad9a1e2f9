package crawl

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html/charset"
)

// What the protocol of sitemaps allows (sitemaps.org).
const (
	maxSitemap       = 50 << 20 // bytes, also of what was compressed
	mostSitemapPages = 50_000
	mostSitemaps     = 1000 // in one robots.txt
)

// isSitemap reports whether to read an answer as a sitemap: robots.txt or another sitemap
// names it, or it is XML and a first address.
func isSitemap(header http.Header, l link) bool {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return l.Sitemap || l.first() && (kind == "application/xml" || kind == "text/xml")
}

// A sitemap lists pages, or other sitemaps.
type sitemap struct {
	pages, sitemaps []string
	unreadable      int // that are not addresses

	modified map[string]time.Time // of pages, as far as it says so
}

// add adds an address.
func (s *sitemap) add(to *[]string, base *url.URL, address string) {
	u, err := resolve(base, address)
	if err != nil {
		s.unreadable++
		return
	}
	*to = append(*to, u.String())
}

// readSitemap reads a sitemap, an index of sitemaps, or a text of one address per line, any
// of them perhaps compressed. It returns what it read before an error.
func readSitemap(body []byte, base *url.URL) (sitemap, error) {
	var r io.Reader = bytes.NewReader(body)
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return sitemap{}, err
		}
		r = z
	}
	body, err := io.ReadAll(io.LimitReader(r, maxSitemap))
	if trimmed := bytes.TrimLeft(body, "\ufeff \t\r\n"); len(trimmed) > 0 && trimmed[0] != '<' {
		return listOf(trimmed, base), err
	}
	s, xmlErr := readXML(bytes.NewReader(body), base)
	return s, errors.Join(err, xmlErr)
}

// listOf reads addresses, one per line.
func listOf(text []byte, base *url.URL) (s sitemap) {
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) != "" && len(s.pages) < mostSitemapPages {
			s.add(&s.pages, base, line)
		}
	}
	return s
}

func readXML(r io.Reader, base *url.URL) (s sitemap, err error) {
	d := xml.NewDecoder(r)
	d.Strict = false
	d.CharsetReader = charset.NewReaderLabel
	inSitemap, last := false, ""
	for len(s.pages)+len(s.sitemaps) < mostSitemapPages {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "url", "sitemap":
			last = ""
			inSitemap = start.Name.Local == "sitemap"
		case "lastmod":
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				return s, err
			}
			if t, ok := lastmod(strings.TrimSpace(text)); ok && !inSitemap && last != "" {
				if s.modified == nil {
					s.modified = make(map[string]time.Time)
				}
				s.modified[last] = t
			}
		case "loc":
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				return s, err
			}
			if inSitemap {
				s.add(&s.sitemaps, base, text)
				continue
			}
			n := len(s.pages)
			if s.add(&s.pages, base, text); len(s.pages) > n {
				last = s.pages[n]
			}
		}
	}
	return s, nil
}
