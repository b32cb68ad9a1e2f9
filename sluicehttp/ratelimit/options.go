package ratelimit

import (
	"net/http"
	"slices"
	"strings"
)

// Options configure how [Parse] reads a header. The zero Options suit most
// servers.
type Options struct {
	// Millis are the names of fields whose numbers are milliseconds from now, in any case, such as
	// "X-RateLimit-Reset". By default a number is seconds from now or a time since 1970, depending
	// on its size; see docs/headers.md.
	Millis []string

	// CacheMarkers are the names of fields that a cache adds to its own responses, such as
	// "X-From-Cache". A response with one of them, or with an Age above 0, comes from a cache.
	CacheMarkers []string
}

// inMillis reports whether the numbers of a field are milliseconds from now.
func (o *Options) inMillis(field string) bool {
	return slices.ContainsFunc(o.Millis, func(name string) bool { return strings.EqualFold(name, field) })
}

// marked reports whether header has one of the CacheMarkers.
func (o *Options) marked(header http.Header) bool {
	for _, name := range o.CacheMarkers {
		if len(field(header, http.CanonicalHeaderKey(name))) > 0 {
			return true
		}
	}
	return false
}

// field returns the values of the field with the canonical name name. In header it may
// also be in lower case, as on the wire in HTTP/2.
func field(header http.Header, name string) []string {
	if v := header[name]; len(v) > 0 {
		return v
	}
	return header[strings.ToLower(name)]
}
