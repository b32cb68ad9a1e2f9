package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Options configure how [Options.Parse] reads a header. The zero Options suit most
// servers.
type Options struct {
	// Millis are the names of fields whose numbers are milliseconds from now, in
	// any case, such as "X-RateLimit-Reset". By default a number is taken for
	// seconds from now or for a time since 1970, depending on its size; see
	// "Times" in the package comment.
	Millis []string

	// CacheMarkers are the names of fields that a cache adds to its own
	// responses, such as "X-From-Cache". A response with one of them, or with an
	// Age above 0, comes from a cache.
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

// Parse reads what the header of a response says about limits. now is when the response
// arrived, and must not be zero. Parse never fails: it ignores malformed values, with a
// warning, and reads the rest. A header without rate-limit fields costs no allocation.
//
// The work is bounded: Parse ignores values longer than 4 KiB, items of a field after the
// 64th, and rate-limit fields after the 32nd.
func (o Options) Parse(status int, header http.Header, now time.Time) (Info, []Warning) {
	s := Info{Status: status, Throttled: status == http.StatusTooManyRequests || status == statusOverloaded}
	if len(o.CacheMarkers) > 0 {
		s.FromCache = o.marked(header)
	}
	var some [few]knownField
	n := 0
	for key, values := range header {
		if len(key) < shortestName {
			if len(key) == len("Age") && strings.EqualFold(key, "Age") {
				s.FromCache = s.FromCache || aged(values)
			}
			continue
		}
		if !mayMatter(key) || len(values) == 0 {
			continue
		}
		if f := (knownField{values: values}); f.classify(key) {
			if n < len(some) {
				insert(some[:n+1], &f)
			}
			n++
		}
	}
	switch {
	case n == 0:
		return s, nil
	case n <= len(some):
		return o.read(&s, some[:n], header, now)
	}
	return o.readMany(&s, header, now)
}

const (
	few        = 8 // fields: most servers send no more, and a larger array is slower
	mostFields = 32
)

// readMany is Parse for a header with more than a few fields to read. If there are too many,
// it drops those that are last in the order of reading.
func (o *Options) readMany(s *Info, header http.Header, now time.Time) (Info, []Warning) {
	var fields [mostFields]knownField
	n, lost := 0, false
	for key, values := range header {
		f := knownField{values: values}
		if !mayMatter(key) || len(values) == 0 || !f.classify(key) {
			continue
		}
		switch {
		case n < mostFields:
			n++
		case f.compare(&fields[n-1]) > 0:
			lost = true
			continue
		default:
			lost = true
		}
		insert(fields[:n], &f)
	}
	read, warnings := o.read(s, fields[:n], header, now)
	if lost {
		warnings = append(warnings, Warning{fields[n-1].key, "", "too many rate-limit fields: those after this one are ignored"})
	}
	return read, warnings
}

// insert puts f into fields, which are ordered except for the last one; that is replaced.
func insert(fields []knownField, f *knownField) {
	i := len(fields) - 1
	for ; i > 0 && f.compare(&fields[i-1]) < 0; i-- {
		fields[i] = fields[i-1]
	}
	fields[i] = *f
}

// aged reports whether a value of Age is above 0. Malformed values are ignored.
func aged(values []string) bool {
	for _, v := range values {
		if n, _, why := parseNumber(trim(v)); why == "" && n != (number{}) {
			return true
		}
	}
	return false
}
