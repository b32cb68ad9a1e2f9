package crawl

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// isCSS reports whether an answer is a style sheet.
func isCSS(header http.Header) bool {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return kind == "text/css"
}

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// cssLink has the address in one of its groups, by how it is quoted.
	cssLink = regexp.MustCompile(`(?i)url\(\s*(?:"([^"]*)"|'([^']*)'|([^)'"\s]*))\s*\)|@import\s+(?:"([^"]*)"|'([^']*)')`)
)

// cssLinks returns the addresses in a style sheet as they stand there. Escapes are not decoded.
func cssLinks(text string) (links []string) {
	for _, match := range cssLink.FindAllStringSubmatch(cssComment.ReplaceAllString(text, " "), -1) {
		if to := strings.TrimSpace(strings.Join(match[1:], "")); to != "" {
			links = append(links, to)
		}
	}
	return links
}

// readCSS reads a style sheet that was found at base.
func readCSS(sheet []byte, base *url.URL) (doc document) {
	r := reader{base: base, seen: make(map[string]bool)}
	for _, href := range cssLinks(string(sheet)) {
		r.anchors = append(r.anchors, anchor{href: href})
	}
	return r.document()
}

// srcset returns the addresses of a list of images for screens of several kinds. An address may
// have commas, but none at its end.
func srcset(list string) (links []string) {
	for {
		list = strings.TrimLeft(list, ", \t\r\n\f")
		if list == "" {
			return links
		}
		end := strings.IndexAny(list, " \t\r\n\f")
		if end < 0 {
			end = len(list)
		}
		to := list[:end]
		list = list[end:]
		if trimmed := strings.TrimRight(to, ","); trimmed != to {
			to = trimmed
		} else if _, rest, more := strings.Cut(list, ","); more {
			list = rest
		} else {
			list = ""
		}
		links = append(links, to)
	}
}
