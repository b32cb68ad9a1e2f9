package ratelimit

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Options say what a header cannot: how a server means its fields. The zero
// Options are for servers that are not known. They are plain data, and safe
// for use by multiple goroutines as long as nobody changes them.
type Options struct {
	// Times says how the numbers of a field are meant, by the name of the
	// field, in upper or lower case: {"X-RateLimit-Reset": Millis}. A field
	// that is not listed is guessed, see [Guess]. Dates, and durations with a
	// unit, are read as they are; structured fields know seconds only.
	Times map[string]TimeForm

	// CacheMarkers are names of fields that a cache adds to what it answers
	// itself, such as "X-From-Cache". A response with one of them comes from
	// a cache, as one with an Age above 0 always does.
	CacheMarkers []string
}

// Check returns an error if a form of Times is none, or if Times has a field
// twice. [Options.Parse] takes an unknown form for Guess, and of two spellings
// of a field the one that sorts first.
func (o Options) Check() error {
	names := make([]string, 0, len(o.Times))
	for name, form := range o.Times {
		if form > EpochMillis {
			return fmt.Errorf("ratelimit: field %q has the unknown time form %d", name, form)
		}
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	for i := range names {
		if i > 0 && names[i] == names[i-1] {
			return fmt.Errorf("ratelimit: field %q has two time forms", names[i])
		}
	}
	return nil
}

// form returns how the numbers of a field are meant.
func (o *Options) form(field string) TimeForm {
	var form TimeForm
	best := ""
	for name, f := range o.Times {
		if strings.EqualFold(name, field) && (best == "" || name < best) {
			best, form = name, f
		}
	}
	return form
}

// marked reports whether a cache has left its mark in header.
func (o *Options) marked(header http.Header) bool {
	for _, name := range o.CacheMarkers {
		if len(field(header, http.CanonicalHeaderKey(name))) > 0 {
			return true
		}
	}
	return false
}

// field returns the values of the field called name, which is spelled as net/http
// does; in header it may also be spelled as on the wire in HTTP/2.
func field(header http.Header, name string) []string {
	if v := header[name]; len(v) > 0 {
		return v
	}
	return header[strings.ToLower(name)]
}

// Parse reads what a response that arrived at now, on the local clock, says
// about limits. It is a pure function, never panics and never fails: what is
// malformed is ignored, with a warning, and the rest is read. A header that
// says nothing of limits costs no allocation.
//
// Names of fields may be spelled in upper or lower case. The work is bounded,
// whatever the header: values longer than 4 KiB, items of a field after the
// 64th, and rate-limit fields after the 32nd in the order in which they are
// read, are ignored.
//
// Times of the server's clock are compared with its Date, unless that is more
// than 24 hours off or the response is from a cache. now must not be the zero
// time.
func (o Options) Parse(status int, header http.Header, now time.Time) (Snapshot, []Warning) {
	s := Snapshot{Status: status, Throttled: status == http.StatusTooManyRequests || status == statusOverloaded}
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
	few        = 8 // fields: most servers have no more; an array of more is dear to make
	mostFields = 32
)

// readMany is Parse for a header with more than a few fields to read. A map has
// no order: what is left out if there are too many is what is last in ours.
func (o *Options) readMany(s *Snapshot, header http.Header, now time.Time) (Snapshot, []Warning) {
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

// insert puts f into fields, which are in order but for the last one: that is
// replaced.
func insert(fields []knownField, f *knownField) {
	i := len(fields) - 1
	for ; i > 0 && f.compare(&fields[i-1]) < 0; i-- {
		fields[i] = fields[i-1]
	}
	fields[i] = *f
}

// aged reports whether one of the values of Age is above 0. One that is
// malformed says nothing.
func aged(values []string) bool {
	for _, v := range values {
		if n, _, why := parseNumber(trim(v)); why == "" && n != (number{}) {
			return true
		}
	}
	return false
}
