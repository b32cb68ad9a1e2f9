package ratelimit

import (
	"net/http"
	"strings"
	"time"
)

const (
	mostItems    = 64      // of a field; values it is split over, too
	longestValue = 4 << 10 // bytes
	longestText  = 64      // bytes
	mostWarnings = 64
)

// Why a value is not used, in addition to the reasons in number.go and structured.go.
const (
	whyNoBool = "neither true nor false"
	whyLong   = "too long"
	whySecond = "more than one value: only the first is read"
)

// A reader puts an Info together.
type reader struct {
	Info
	options  Options
	header   http.Header
	now      time.Time
	ref      time.Time // now on the clock of the server; zero until it is needed
	first    limit     // if some is true
	limits   []limit   // first and all others, if there are others
	some     bool
	policies []limit // of drafts up to 07, which do not say which limit they are of
	warnings []Warning

	pushedBack bool // a gRPC server asks not to retry
	hides      bool // the server has limits that it does not show
}

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

// wait reads a time value, and returns by how much it may be too long. Fields that are named
// after milliseconds have only numbers.
func (r *reader) wait(f *knownField, v string, millis bool) (wait, rounding time.Duration, why string) {
	if millis {
		n, _, why := parseNumber(v)
		return n.of(time.Millisecond), 0, why
	}
	w, why := parseTime(v, f.inMillis() || r.options.inMillis(f.key))
	wait, rounding = r.until(w)
	return wait, rounding, why
}

// until returns how long it is until w, and by how much that may be too long.
func (r *reader) until(w when) (wait, rounding time.Duration) {
	if w.rounded {
		rounding = time.Second
	}
	if !w.instant {
		return w.delta, rounding
	}
	ref := r.reference()
	if ref != r.now { // the start of a second
		rounding += time.Second
	}
	return w.after(ref), rounding
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

// reference returns when the response arrived on the clock of the server: its Date if that
// is plausible, or now. A Date is the start of a second, which is not corrected.
func (r *reader) reference() time.Time {
	if !r.ref.IsZero() {
		return r.ref
	}
	r.ref = r.now
	if r.FromCache {
		return r.ref // the Date is that of the first response
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

// clean returns a value without spaces around it, or "" if there is nothing to read.
func (r *reader) clean(f *knownField, v string) string {
	if len(v) > longestValue {
		r.warn(f.key, v, whyLong)
		return ""
	}
	return trim(v)
}

// cleaned returns the values of a field that are not empty.
func (r *reader) cleaned(f *knownField) (values []string) {
	for _, v := range f.values {
		if v = r.clean(f, v); v != "" {
			values = append(values, v)
		}
	}
	return values
}

// warn adds a warning.
func (r *reader) warn(field, value, why string) {
	if len(r.warnings) < mostWarnings {
		r.warnings = append(r.warnings, Warning{field, shortened(value), why})
	}
}
