package crawl

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// maxURL is the most bytes of an address that is followed. Longer ones are
// mostly made by a mistake that makes them longer and longer.
const maxURL = 2048

// normalURL returns an absolute address in the one way in which the frontier
// knows it: scheme and host in lower case, the host as DNS has it (normalHost), no
// default port, no fragment, no password, "/" for an empty path, and escapes as in
// normalEscapes. It returns an error if that is not a page: not http or https, without a
// host, or longer than maxURL. It does not change u.
func normalURL(u *url.URL) (*url.URL, error) {
	n := url.URL{Scheme: strings.ToLower(u.Scheme)}
	switch {
	case n.Scheme != "http" && n.Scheme != "https" || u.Opaque != "":
		return nil, errors.New("want http://host/… or https://host/…")
	case u.Hostname() == "":
		return nil, errors.New("there is not a host")
	}
	var err error
	if n.Host, err = normalHost(u); err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" && (n.Scheme != "http" || port != "80") && (n.Scheme != "https" || port != "443") {
		n.Host += ":" + port
	}
	n.RawPath, n.RawQuery = normalEscapes(u.EscapedPath()), normalEscapes(u.RawQuery)
	if n.Path, err = url.PathUnescape(n.RawPath); err != nil {
		return nil, err
	}
	if n.Path == "" {
		n.Path = "/"
	} else {
		n = *n.ResolveReference(&url.URL{Path: n.Path, RawPath: n.RawPath, RawQuery: n.RawQuery}) // no "..", no "."
	}
	if len(n.String()) > maxURL {
		return nil, errors.New("the address is too long")
	}
	return &n, nil
}

// normalHost returns the host of an address, without its port, in the one way to write it:
// in lower case, letters beyond ASCII in Punycode as in DNS, without a final dot; an IPv6
// address as RFC 5952 has it.
func normalHost(u *url.URL) (string, error) {
	name := strings.ToLower(u.Hostname())
	if strings.Contains(name, ":") {
		addr, err := netip.ParseAddr(name)
		if err != nil || u.Host[0] != '[' { // only the last colon begins a port
			return "", fmt.Errorf("%q is not a host", u.Host)
		}
		return (&url.URL{Host: "[" + addr.String() + "]"}).Host, nil
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		// Only these: the rules for them forbid the _ of names that exist.
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%q is not a host: %w", name, err)
		}
		name = ascii
	}
	if name = strings.TrimSuffix(name, "."); slices.Contains(strings.Split(name, "."), "") { // DNS has no empty label
		return "", fmt.Errorf("%q is not a host", u.Host)
	}
	return name, nil
}

// normalEscapes writes a path or a query in the one way to write it (RFC 3986, 6.2.2):
// unreserved characters as they are, %7E as ~; other escapes in upper case; and escaped what
// cannot stand in an address, such as a space or a % that begins no escape.
func normalEscapes(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], false
		if c == '%' {
			if b, err := hex.DecodeString(s[i+1 : min(i+3, len(s))]); err == nil && len(b) == 1 {
				c, escaped = b[0], true
				i += 2
			}
		}
		switch {
		case escaped && !unreserved(c), c <= ' ' || c >= 0x7F || c == '"' || c == '<' || c == '>', c == '%':
			fmt.Fprintf(&out, "%%%02X", c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// unreserved is RFC 3986, section 2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// parseURL parses an address and makes it normal.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return normalURL(u)
}

// resolve returns the normal form of what a page or a header refers to, read as browsers
// read it.
func resolve(base *url.URL, reference string) (*url.URL, error) {
	u, err := base.Parse(browserForm(reference))
	if err != nil {
		return nil, err
	}
	return normalURL(u)
}

// browserForm writes a reference so that package url reads it as browsers do (WHATWG URL
// Standard, section 4.4): tabs and ends of lines do not count, \ in a path is /, and a %
// that begins no escape is one, as are other control characters.
func browserForm(reference string) string {
	r := strings.TrimFunc(reference, func(c rune) bool { return c <= ' ' })
	r = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(r)
	if s := schemeOf(r); s != "" && s != "http" && s != "https" {
		return r
	}
	path, rest := r, ""
	if i := strings.IndexAny(r, "?#"); i >= 0 {
		path, rest = r[:i], r[i:]
	}
	r = strings.ReplaceAll(path, `\`, "/") + rest
	if strings.IndexFunc(r, func(c rune) bool { return c == '%' || c < ' ' || c == 0x7F }) < 0 {
		return r
	}
	var out strings.Builder
	for i := range len(r) {
		c := r[i]
		_, err := hex.DecodeString(r[i+1 : min(i+3, len(r))])
		if c < ' ' || c == 0x7F || c == '%' && (err != nil || i+2 >= len(r)) {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// schemeOf returns the scheme of a reference in lower case, or "".
func schemeOf(reference string) string {
	for i := range len(reference) {
		switch c := reference[i] | 0x20; {
		case 'a' <= c && c <= 'z':
		case reference[i] == ':' && i > 0:
			return strings.ToLower(reference[:i])
		case i > 0 && ('0' <= reference[i] && reference[i] <= '9' || strings.IndexByte("+-.", reference[i]) >= 0):
		default:
			return ""
		}
	}
	return ""
}

// target is what robots.txt is asked about: the path of a normal address with its query.
func target(address string) string { return address[len(keyOf(address)):] }

// keyOf is the scheme, host and port of a normal address. Each key has a robots.txt.
func keyOf(address string) string {
	begin := strings.Index(address, "://") + len("://")
	if end := strings.IndexByte(address[begin:], '/'); end >= 0 {
		return address[:begin+end]
	}
	return address
}

// siteOf is what of a key tells sites apart: the host, without www., and its port if it is
// not the usual one.
func siteOf(key string) string {
	_, host, _ := strings.Cut(key, "://")
	return strings.TrimPrefix(host, "www.")
}

// nameOf is the host of a key without its port. Each name has a gate.
func nameOf(key string) string {
	return (&url.URL{Host: key[strings.Index(key, "://")+len("://"):]}).Hostname()
}
