// Package clean makes strings from elsewhere fit to be shown.
package clean

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// most is the number of bytes of a string that are shown.
const most = 300

// Text returns a string as it may be shown: without the user, the query and the fragment of any address
// in it, which may be secrets, without values that are named as secrets (token=…), without control
// characters, and short. The rest is not HTML; the page escapes it.
func Text(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "://")
		b.WriteString(before)
		if !found {
			break
		}
		b.WriteString("://")
		end := strings.IndexFunc(after, unicode.IsSpace) // not a quote: it may be part of the address
		if end < 0 {
			end = len(after)
		}
		b.WriteString(withoutSecrets(after[:end]))
		text = after[end:]
	}
	text = b.String()
	if strings.Contains(text, "=") {
		text = secret.ReplaceAllString(text, "$1…")
	}
	return Shorten(text)
}

// secret matches values that are named as secrets, wherever it stands: key=… in an address without a
// scheme as well.
var secret = regexp.MustCompile(`(?i)([\w-]*(?:token|key|secret|passw|auth|signature)[\w-]*=)[^\s&,;)]+`)

// withoutSecrets returns the host and the path of an address without its scheme.
func withoutSecrets(address string) string {
	host, rest := address, ""
	if i := strings.IndexAny(address, "/?#"); i >= 0 {
		host, rest = address[:i], address[i:]
	}
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	} else if strings.Contains(rest, "@") && strings.Trim(port(host), "0123456789") != "" {
		return "…" // a password with a slash in it
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return host + rest
}

// port returns everything after the last colon that is not part of an IPv6 address.
func port(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return host[i+1:]
	}
	return ""
}

// Shorten cuts text between two runes.
func Shorten(text string) string {
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
