package ratelimit

import (
	"net/http"
	"strings"
	"time"
)

// read reads fields, in order, into a copy of s.
func (o *Options) read(s *Info, fields []knownField, order []uint8, header http.Header, now time.Time) (Info, []Warning) {
	r := reader{Info: *s, options: *o, header: header, now: now}
	for len(order) > 0 {
		order = order[r.read(fields, order):]
	}
	r.join()
	r.judge()
	return r.Info, r.warnings
}

// read reads the first of fields and those that belong to it, and returns how many these
// are.
func (r *reader) read(fields []knownField, order []uint8) int {
	f := &fields[order[0]]
	if len(f.values) > mostItems {
		r.warn(f.key, f.values[mostItems], "too many values: this one and those after it are ignored")
		f.values = f.values[:mostItems]
	}
	switch f.family {
	case retryAfter:
		r.readRetryAfter(f)
		return 1
	case shouldRetry:
		r.readShouldRetry(f)
		return 1
	}
	if r.FromCache {
		return len(order)
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
	for n < len(order) && fields[order[n]].belongsTo(f) {
		n++
	}
	r.readPlain(fields, order[:n])
	return n
}

// readRetryAfter reads a field of the Retry-After family. The longest of several waits
// counts.
func (r *reader) readRetryAfter(f *knownField) {
	if f.part == grpcPushback {
		r.readPushback(f)
		return
	}
	if !r.needsRetryAt() || (f.part == contentfulReset || f.part == esiErrorReset) && r.Status != 420 && r.Status != http.StatusTooManyRequests {
		return
	}
	longest := time.Duration(-1)
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		wait, _, why := r.wait(f, v, f.part <= amzRetryAfter)
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

// readPushback reads the field in which a gRPC server says after how many milliseconds to
// retry; anything else means not to retry.
func (r *reader) readPushback(f *knownField) {
	seen, bad := 0, false
	var wait time.Duration
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		var why string
		if wait, _, why = r.wait(f, v, true); why == "" && digits(v) < len(v) {
			why = "not a whole number"
		}
		if seen++; seen > 1 {
			why = "more than one value"
		}
		bad = bad || why != ""
		if why != "" && v != "-1" { // the usual value for no retry
			r.warn(f.key, v, why)
		}
	}
	switch {
	case bad:
		r.pushedBack = true
	case seen == 1 && r.needsRetryAt():
		r.retry(f, wait)
	}
}

// needsRetryAt reports whether a field about when to retry still matters.
func (r *reader) needsRetryAt() bool { return r.Status >= 300 && r.RetrySource == "" }

// retry sets RetryAt.
func (r *reader) retry(f *knownField, wait time.Duration) {
	r.RetryAt, r.RetrySource = r.now.Add(wait), f.key
}

// readShouldRetry reads a field that says whether to retry.
func (r *reader) readShouldRetry(f *knownField) {
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		yes := strings.EqualFold(v, "true")
		switch {
		case !yes && !strings.EqualFold(v, "false"):
			r.warn(f.key, v, whyNoBool)
		case r.ShouldRetry == nil:
			r.ShouldRetry = new(yes)
		}
	}
}
