package robots

import "strings"

// normal returns a path, or the pattern of a rule, in the one way to write it
// (RFC 9309, section 2.2.2): unreserved characters as they are, %7E as ~; other
// ASCII as it is or, if it was escaped, escaped in upper case; everything else
// escaped. In a pattern * and a $ at its end are signs, and stay; elsewhere
// they are characters like others, and escaped. Several * in a row are one, and
// those at the end say nothing and go.
//
// After a ?, an escaped : / ? or @ is as it is, too: RFC 9309 has a rule baz=http://foo.bar
// match baz=http%3A%2F%2Ffoo.bar (second row of its table), and servers answer both with the
// same page. Google's parser tells them apart.
func normal(s string, pattern bool) string {
	const hex = "0123456789ABCDEF"
	if pattern {
		s = strings.TrimRight(s, "*")
	}
	var out strings.Builder
	query := false // whether it has begun
	escape := func(c byte) {
		out.WriteByte('%')
		out.WriteByte(hex[c>>4])
		out.WriteByte(hex[c&15])
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0:
			if c = byte(unhex(s[i+1])<<4 | unhex(s[i+2])); unreserved(c) || query && strings.IndexByte(":/?@", c) >= 0 {
				out.WriteByte(c)
			} else {
				escape(c)
			}
			i += 2
		case pattern && c == '*':
			if i == 0 || s[i-1] != '*' {
				out.WriteByte(c)
			}
		case pattern && c == '$' && i == len(s)-1:
			out.WriteByte(c)
		case c == '*' || c == '$' || c == '%' || c <= ' ' || c >= 0x7F:
			escape(c)
		default:
			out.WriteByte(c)
		}
		query = query || s[i] == '?'
	}
	return out.String()
}

// intoQuery returns patterns for the paths with a query that a pattern without a ? matches
// because a * of it stands for the ?: what is escaped after that * is not escaped in a query
// that is normal. There are none if it has no escape.
func intoQuery(pattern string) (all []string) {
	if strings.Contains(pattern, "?") || !strings.Contains(pattern, "%") {
		return nil
	}
	for i := range len(pattern) {
		if pattern[i] == '*' {
			all = append(all, normal(pattern[:i+1]+"?"+pattern[i:], true))
		}
	}
	return all
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unreserved is RFC 3986, section 2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// encode writes each octet as two letters, the first from A to P and the second
// from a to p, after a slash.
//
// In such a path nothing has a meaning for the scanner of temoto or in a
// regular expression, and a pattern can match only from the slash on, at whole
// octets. And since temoto weighs a rule by the length of the path or of the
// expression, all weigh as RFC 9309 has it, by their octets: each is two bytes,
// and so is the ".*" that temoto makes of "*", and the "$$" of a "$$", which
// matches where "$" does.
//
// s must be normal. In a path that is, there is neither * nor $.
func encode(s string) string {
	var out strings.Builder
	out.Grow(1 + 2*len(s))
	out.WriteByte('/')
	for i := range len(s) {
		switch c := s[i]; c {
		case '*':
			out.WriteByte('*')
		case '$':
			out.WriteString("$$")
		default:
			out.WriteByte('A' + c>>4)
			out.WriteByte('a' + c&15)
		}
	}
	return out.String()
}
