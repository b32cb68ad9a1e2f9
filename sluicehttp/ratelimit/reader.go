package ratelimit

import (
	"net/http"
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

// A limit is a Limit under construction.
type limit struct {
	Limit
	family  family
	part    part // of structured: whether it is a policy
	resetBy part // of the field that ResetAt is from
	exact   bool // Window belongs to exactly this Max
	refills bool // ResetAt is from a field of a bucket, not of a window
}

// stated reports whether l has any number.
func (l *limit) stated() bool {
	return l.Max.known || l.Used.known || l.Remaining.known || !l.ResetAt.IsZero()
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
