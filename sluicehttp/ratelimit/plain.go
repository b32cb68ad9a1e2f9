package ratelimit

import (
	"cmp"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// readPlain reads the fields of one limit: those of plain, of xPlain, or those of perUnit or
// perVendor with the same unit or vendor.
func (r *reader) readPlain(fields []knownField, order []uint8) {
	f := &fields[order[0]]
	l := r.next()
	l.family = f.family
	switch f.family {
	case perUnit:
		l.Name = f.unit()
		l.Unit, l.Window = unitOf(l.Name)
	case perVendor:
		l.Name = strings.TrimPrefix(f.unit(), "x-")
	}
	for _, i := range order {
		r.readPart(l, &fields[i])
	}
	if !l.stated() {
		return
	}
	if !l.Max.known && l.Used.known && l.Remaining.known { // Reddit
		l.Max = l.Used.number().plus(l.Remaining.number()).amount()
	}
	r.add(l)
}

// unitOf returns the unit of a limit whose fields have name in their names, and its window
// if name is one.
func unitOf(name string) (unit string, window time.Duration) {
	switch name {
	case "second", "secondly":
		return "requests", time.Second
	case "minute":
		return "requests", time.Minute
	case "hour", "hourly":
		return "requests", time.Hour
	case "day", "daily":
		return "requests", 24 * time.Hour
	case "week", "weekly":
		return "requests", 7 * 24 * time.Hour
	case "month", "monthly", "year", "yearly": // of variable length
		return "requests", 0
	case "api-key", "api-token": // Trello: whose requests they are
		return "requests", 0
	}
	for _, unit := range []string{"requests", "tokens"} { // input-tokens
		if strings.HasSuffix(name, unit) {
			return unit, 0
		}
	}
	return name, 0
}

// readPart reads one field of a limit.
func (r *reader) readPart(l *limit, f *knownField) {
	switch f.part {
	case most:
		r.readAmount(&l.Max, l, f)
	case remaining:
		r.readAmount(&l.Remaining, l, f)
	case used:
		r.readAmount(&l.Used, l, f)
		r.hides = r.hides || f.family == plain && l.Used.known // RateLimit-Observed: GitLab
	case resetAfter, reset, resetTime, next:
		r.readReset(l, f)
	case interval:
		r.readInterval(l, f)
	case resource:
		r.readText(&l.Name, f)
		r.hides = r.hides || l.Name != "" // GitHub
		if l.Name == "graphql" {
			l.Unit = "points"
		}
	case bucket:
		r.readText(&r.Bucket, f)
	case scope:
		r.readText(&r.Scope, f)
	case reason:
		r.readText(&r.Reason, f)
	case global:
		r.readGlobal(f)
	}
}

// readAmount reads a number of l into a, unless a is known.
func (r *reader) readAmount(a *Amount, l *limit, f *knownField) {
	read := r.amount(f, l)
	switch {
	case !read.known:
	case a.known: // spelled X-RateLimit and X-Rate-Limit
		if *a != read {
			r.warn(f.key, read.String(), "ignored: it contradicts a field with another spelling")
		}
	default:
		*a = read
		if l.Source == "" {
			l.Source = f.key
		}
	}
}

// amount reads an amount. In RateLimit- fields it is a list whose first integer counts;
// others may follow with their windows: "10, 10;w=1, 600;w=60". Envoy and others also write
// that into X-RateLimit- fields.
func (r *reader) amount(f *knownField, l *limit) Amount {
	if n, ok := f.isNumber(); ok {
		return n.amount()
	}
	if f.family == plain || f.family == xPlain && strings.Contains(f.values[0], "w=") {
		return r.amountInList(f, l)
	}
	var first Amount
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		n, _, why := parseNumber(v)
		switch {
		case first.known:
			r.warn(f.key, v, whySecond)
		case v == "-1" && f.part != used: // Azure OpenAI: unknown
			return Amount{}
		case why != "":
			r.warn(f.key, v, why)
		default:
			first = n.amount()
		}
	}
	return first
}

// isNumber returns the single number of a field that has no more, as nearly all have. In a
// structured field it must be no longer than those may be, but may have decimals.
func (f *knownField) isNumber() (n number, ok bool) {
	n, _, why := parseNumber(f.values[0])
	return n, why == "" && len(f.values) == 1 && (f.family != plain || digits(f.values[0]) <= 15)
}

// amountInList is amount for a structured field.
func (r *reader) amountInList(f *knownField, l *limit) Amount {
	values := r.cleaned(f)
	if len(values) == 0 {
		return Amount{}
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		r.warn(f.key, values[0], whyNoList)
		return Amount{}
	}
	var first Amount
	for _, member := range r.bounded(f, list) {
		item, _ := member.(httpsfv.Item)
		n, ok := item.Value.(int64)
		switch {
		case ok && n >= 0:
		case ok && n == -1 && !first.known && f.part != used: // unknown
			return Amount{}
		default:
			r.warn(f.key, written(member), whyNoItem)
			continue
		}
		if !first.known {
			first = amountOf(n)
		}
		// The window of the current maximum, or any.
		if w, has, ok := natural(item.Params, "w", 1); has && ok && (l.Window == 0 || !l.exact && n == first.whole) {
			l.Window, l.exact = number{whole: w}.of(time.Second), n == first.whole
		}
	}
	return first
}

// readReset reads a field that says when there will be more. The first valid field
// counts.
func (r *reader) readReset(l *limit, f *knownField) {
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		if !l.ResetAt.IsZero() {
			if f.part == l.resetBy {
				r.warn(f.key, v, whySecond)
			}
			return
		}
		wait, rounding, why := r.wait(f, v, false)
		if why != "" {
			r.warn(f.key, v, why)
			continue
		}
		l.ResetAt, l.Rounding, l.resetBy, l.Source = r.now.Add(wait), rounding, f.part, f.key
		l.refills = f.family == perUnit && f.refills(l.Name)
	}
}

// readInterval reads the length of a window. The first valid field counts.
func (r *reader) readInterval(l *limit, f *knownField) {
	read := false
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		w, why := parseTime(v, f.inMillis())
		switch {
		case why != "":
			r.warn(f.key, v, why)
		case w.instant || w.delta == 0:
			r.warn(f.key, v, "not the length of a window")
		case read:
			r.warn(f.key, v, whySecond)
		default:
			read = true
			l.Window = cmp.Or(l.Window, w.delta)
		}
	}
}

// text reads a word.
func (r *reader) text(f *knownField) (first string) {
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		switch {
		case first != "":
			r.warn(f.key, v, whySecond)
		case len(v) > longestText:
			r.warn(f.key, v, whyLong)
		default:
			first = v
		}
	}
	return first
}

// readText reads a word into s, unless s has one.
func (r *reader) readText(s *string, f *knownField) {
	if t := r.text(f); *s == "" {
		*s = t
	}
}

// readGlobal reads whether a limit is for all calls.
func (r *reader) readGlobal(f *knownField) {
	switch t := r.text(f); {
	case strings.EqualFold(t, "true"):
		r.Global = true
	case t != "" && !strings.EqualFold(t, "false"):
		r.warn(f.key, t, whyNoBool)
	}
}
