package ratelimit

import (
	"net/http"
	"time"
)

// Parse reads the limits in the header of a response. now is when the response arrived; zero means
// just now. Parse never fails: it ignores malformed values, with a [Warning] for each, and reads the
// rest. More than one Options panics.
//
// Parse ignores values longer than 4 KiB, items of a field after the 64th, and rate-limit fields
// after the 32nd.
func Parse(status int, header http.Header, now time.Time, options ...Options) (s Info, warnings []Warning) {
	o := new(Options)
	switch len(options) {
	case 0:
	case 1:
		o = &options[0]
	default:
		panic("ratelimit: Parse with more than one Options")
	}
	s.Status, s.Arrived = status, now
	s.Throttled = status == http.StatusTooManyRequests || status == statusOverloaded
	if len(o.CacheMarkers) > 0 {
		s.FromCache = o.marked(header)
	}
	var fields [few]knownField
	n := 0
	for key, values := range header {
		k, read := classify(key)
		if !read || len(values) == 0 {
			continue
		}
		if k.family == cache {
			s.FromCache = s.FromCache || aged(values)
			continue
		}
		if n < few {
			fields[n] = knownField{key, values, k}
		}
		n++
	}
	if n == 0 {
		return s, nil
	}
	if now.IsZero() {
		now = time.Now()
		s.Arrived = now
	}
	if n > few {
		return o.readMany(&s, header, now)
	}
	var order [few]uint8
	inOrder(fields[:n], order[:n])
	return o.read(&s, fields[:n], order[:n], header, now)
}

const (
	few        = 8 // fields: most servers send no more, and a larger array is slower
	mostFields = 32
)

// readMany is parse for a header with more than a few fields to read. If there are too many,
// it drops those that are last in the order of reading.
func (o *Options) readMany(s *Info, header http.Header, now time.Time) (Info, []Warning) {
	var fields [mostFields]knownField
	var order [mostFields]uint8
	n, lost := 0, false
	for key, values := range header {
		k, read := classify(key)
		if !read || len(values) == 0 || k.family == cache {
			continue
		}
		f := knownField{key, values, k}
		at := uint8(n)
		switch {
		case n < mostFields:
			n++
		case f.compare(&fields[order[n-1]]) > 0:
			lost = true
			continue
		default:
			at, lost = order[n-1], true
		}
		fields[at] = f
		insert(fields[:], order[:n], at)
	}
	last := fields[order[n-1]].key
	read, warnings := o.read(s, fields[:n], order[:n], header, now)
	if lost {
		warnings = append(warnings, Warning{last, "", "too many rate-limit fields: those after this one are ignored"})
	}
	return read, warnings
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
