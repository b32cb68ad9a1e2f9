package sluicehttp

import (
	"net/http"
	"slices"
	"strings"
)

// # What is a route?
//
// The method and the path, with ids cut off: numbers, UUIDs, long hexadecimal and other tokens. Two
// calls of one route are the same operation on other objects, and that is the usual scope of a
// server's limit:
//
//	GET /repos/golang/go/issues/123            GET /repos/golang/go/issues/{}
//	POST /v1/customers/cus_9s6XKzkNRiz8i3      POST /v1/customers/{}
//
// Names that look like words are not cut off, such as those of users, so an API may have many routes.
// That costs nothing: a route is a number until one of its calls is throttled, and scopes are bounded.

const (
	mostSegments = 8   // of a path; later segments do not make another route
	mostSegment  = 32  // bytes of a segment that is not an id
	mostName     = 120 // bytes of the name of a scope
)

// ByRoute is a [Config.Key] for a server that limits each route: there is a gate for each
// server, method and path without ids, such as
//
//	https://api.example.com GET /v1/customers/{}
//
// With ByRoute, a wait of one route never delays another one, and only a Parent limits all routes
// together.
func ByRoute(req *http.Request) string {
	return destination(req).String() + " " + routeName(req)
}

// routeOf returns the number of the route of req, never 0: FNV-1a of its name, without making that.
// With major, its major parameter is not cut off.
func routeOf(req *http.Request, major bool) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	add := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	add(req.Method)
	for segment := range segments(req, major) {
		h = (h ^ '/') * prime
		add(segment)
	}
	return max(h, 1) // 0 is none
}

// routeName returns the route of req for people.
func routeName(req *http.Request) string {
	var b strings.Builder
	if b.WriteString(req.Method); req.Method == "" {
		b.WriteString(http.MethodGet)
	}
	b.WriteByte(' ')
	for segment := range segments(req, false) {
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return short(b.String())
}

// short returns the beginning of a name that may come from a server.
func short(name string) string {
	if len(name) <= mostName {
		return name
	}
	return strings.ToValidUTF8(name[:mostName], "") + "…"
}

// majors are the segments whose id belongs to the limit if the server names that with
// X-RateLimit-Bucket: the top-level resources of https://discord.com/developers/docs/topics/rate-limits.
var majors = []string{"channels", "guilds", "webhooks"}

// ofMajor returns the name of a bucket together with the major parameter of req, such as
// "channels/123 80c17d2f203122d9".
func ofMajor(bucket string, req *http.Request) string {
	before := ""
	for segment := range segments(req, true) {
		if slices.Contains(majors, before) {
			return before + "/" + segment + " " + bucket
		}
		before = segment
	}
	return bucket
}

// segments yields the segments of the path of req, "{}" for an id, and "…" for all after mostSegments.
// With major, the first id after one of majors stays.
func segments(req *http.Request, major bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		path := req.URL.Path
		path = strings.TrimPrefix(path, "/")
		before, kept := "", false
		for n := 0; ; n++ {
			if n == mostSegments {
				yield("…")
				return
			}
			end := strings.IndexByte(path, '/')
			segment := path
			if end >= 0 {
				segment = path[:end]
			}
			switch keeps := major && !kept && slices.Contains(majors, before); {
			case keeps:
				kept = true
			case isID(segment, n == 0 && end >= 0):
				segment = "{}"
			}
			before = segment
			if !yield(segment) || end < 0 {
				return
			}
			path = path[end+1:]
		}
	}
}

// isID reports whether a segment of a path names an object, as far as can be seen. The first of several
// may be a version, such as 2.
func isID(s string, first bool) bool {
	digits, lower, other, hex := 0, 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
			hex++
		case 'a' <= c && c <= 'z':
			lower++
			if c <= 'f' {
				hex++
			}
		case 'A' <= c && c <= 'F':
			hex++
		case c == '-' || c == '_':
			other++
		}
	}
	switch n := len(s); {
	case digits == 0:
		return n > mostSegment
	case digits == n:
		return !first || n > 2
	case n > mostSegment, hex+other == n && n >= 8: // UUIDs and hashes
		return true
	case digits >= 2 && n >= 8 && lower == 0: // C012AB3CD
		return true
	}
	return digits >= 2 && len(s) >= 16 // cus_9s6XKzkNRiz8i3
}
