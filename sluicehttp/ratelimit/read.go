package ratelimit

import (
	"net/http"
	"strings"
	"time"
)

const (
	mostFields   = 32
	mostItems    = 64      // of a field; values it is split over, too
	longestValue = 4 << 10 // bytes
	longestText  = 64      // bytes
	mostWarnings = 64
)

// Why a value is not used, if it is not for what number.go and structured.go
// say.
const (
	whyNoBool = "neither true nor false"
	whyLong   = "too long"
	whySecond = "more than one value: only the first is read"
)

// A reader puts a Snapshot together.
type reader struct {
	Snapshot
	options  *Options
	header   http.Header
	now      time.Time
	ref      time.Time // now by the clock of the server; zero until it is asked for
	limits   []limit
	policies []limit // of drafts up to 07, which do not say which limit they are of
	warnings []Warning

	pushedBack bool // a gRPC server asks for no retry
	hides      bool // the server is one that has limits it does not show
}

// read is Parse for a header that has something to read. s is what is known
// already.
func read(o *Options, s Snapshot, header http.Header, now time.Time) (Snapshot, []Warning) {
	r := reader{Snapshot: s, options: o, header: header, now: now}
	var fields [mostFields]knownField
	n := r.collect(&fields)
	for i := 0; i < n; {
		i += r.read(fields[i:n])
	}
	r.join()
	r.judge()
	return r.Snapshot, r.warnings
}

// collect fills fields with what there is to read, in order, and returns how
// much that is. A map has no order: it is the last ones in order that are left
// out if there are too many.
func (r *reader) collect(fields *[mostFields]knownField) int {
	n, lost := 0, 0
	for key, values := range r.header {
		f, ok := classify(key)
		if !ok {
			continue
		}
		f.values = values
		if n == mostFields {
			if lost++; f.compare(&fields[n-1]) > 0 {
				continue
			}
			n--
		}
		i := n
		for ; i > 0 && f.compare(&fields[i-1]) < 0; i-- {
			fields[i] = fields[i-1]
		}
		fields[i] = f
		n++
	}
	if lost > 0 {
		r.warn(fields[n-1].key, "", "too many rate-limit fields: those after this one are ignored")
	}
	return n
}

// read reads the first of fields, with those that belong to it, and returns how
// many these are.
func (r *reader) read(fields []knownField) int {
	f := &fields[0]
	switch f.family {
	case retryAfter:
		r.readRetryAfter(f)
		return 1
	case shouldRetry:
		r.readShouldRetry(f)
		return 1
	}
	if r.FromCache {
		return len(fields)
	}
	switch f.family {
	case structured:
		r.readStructured(f)
		return 1
	case vendor:
		r.readVendor(f)
		return 1
	}
	n := 1
	for n < len(fields) && fields[n].family == f.family && compareFold(fields[n].key[fields[n].from:fields[n].to], f.key[f.from:f.to]) == 0 {
		n++
	}
	r.readPlain(fields[:n])
	return n
}

// readRetryAfter reads a field of the Retry-After family. Of several values the
// longest wait counts.
func (r *reader) readRetryAfter(f *knownField) {
	if f.part == grpcPushback {
		r.readPushback(f)
		return
	}
	if !r.tells() {
		return
	}
	longest := time.Duration(-1)
	for v := range r.valuesOf(f) {
		wait, why := r.wait(f, v, f.part <= amzRetryAfter)
		if why != "" {
			r.warn(f.key, v, why)
			continue
		}
		longest = max(longest, wait)
	}
	if longest >= 0 {
		r.retry(f, longest)
	}
}

// wait reads a time value. A field named after milliseconds has nothing but
// numbers.
func (r *reader) wait(f *knownField, v string, millis bool) (wait time.Duration, why string) {
	form := r.options.form(f.key)
	if !millis {
		return form.wait(v, r)
	}
	n, _, why := parseNumber(v)
	if why != "" {
		return 0, why
	}
	if form == Guess {
		form = Millis
	}
	return form.number(n, r)
}

// readPushback reads the field with which a gRPC server says after how many
// milliseconds to retry, or with anything else that it should not be done.
func (r *reader) readPushback(f *knownField) {
	seen, bad := 0, false
	var n number
	for v := range r.valuesOf(f) {
		why := ""
		if n, _, why = parseNumber(v); why == "" && digits(v) < len(v) {
			why = "not a whole number"
		}
		if seen++; seen > 1 {
			why = "more than one value"
		}
		bad = bad || why != ""
		if why != "" && v != "-1" { // which is how servers put it
			r.warn(f.key, v, why)
		}
	}
	switch {
	case bad:
		r.pushedBack = true
	case seen == 1 && r.tells():
		r.retry(f, n.of(time.Millisecond))
	}
}

// tells reports whether it still matters what a field says about when to come
// back.
func (r *reader) tells() bool { return r.Status >= 300 && r.RetrySource == "" }

// retry is called when the server said when to come back.
func (r *reader) retry(f *knownField, wait time.Duration) {
	r.RetryAt, r.RetrySource = r.now.Add(wait), f.key
}

// readShouldRetry reads a field that says whether to try again.
func (r *reader) readShouldRetry(f *knownField) {
	for v := range r.valuesOf(f) {
		answer := Unset
		switch {
		case strings.EqualFold(v, "true"):
			answer = Yes
		case strings.EqualFold(v, "false"):
			answer = No
		default:
			r.warn(f.key, v, whyNoBool)
		}
		if r.ShouldRetry == Unset {
			r.ShouldRetry = answer
		}
	}
}

// reference returns when the response arrived by the clock of the server: its
// Date, if there is one that can be believed, or now. A Date is the start of a
// second; nothing is added for that.
func (r *reader) reference() time.Time {
	if !r.ref.IsZero() {
		return r.ref
	}
	r.ref = r.now
	if r.FromCache {
		return r.ref // the Date is that of the first answer
	}
	for _, v := range field(r.header, "Date") {
		date, ok := parseHTTPDate(trim(v))
		if !ok {
			r.warn("Date", v, whyNoTime)
			continue
		}
		if skew := date.Sub(r.now); skew < -longestSkew || skew > longestSkew {
			r.warn("Date", v, "too far from the local clock, which is used instead")
			continue
		}
		r.ref = date
		break
	}
	return r.ref
}

const longestSkew = 24 * time.Hour

// valuesOf yields the values of a field that are neither empty nor too long,
// without spaces around them.
func (r *reader) valuesOf(f *knownField) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i, v := range f.values {
			switch {
			case i == mostItems:
				r.warn(f.key, v, "too many values: this one and those after it are ignored")
				return
			case len(v) > longestValue:
				r.warn(f.key, v, whyLong)
				continue
			}
			if v = trim(v); v != "" && !yield(v) {
				return
			}
		}
	}
}

// warn adds a warning.
func (r *reader) warn(field, value, why string) {
	if len(r.warnings) < mostWarnings {
		r.warnings = append(r.warnings, Warning{field, shortened(value), why})
	}
}
