package ratelimit

import (
	"time"

	"github.com/dunglas/httpsfv"
)

// Why a structured field, or a member of one, is ignored.
const (
	whyNoList  = "not a structured field"
	whyNoItem  = "of the wrong type"
	whyNoParam = "with a parameter of the wrong type, or out of range"
	whyNothing = "says nothing"
	whyItems   = "too many items: those after the 64th are ignored"
)

// readStructured reads RateLimit, a list in drafts from 08 and a dictionary in draft 07, or
// RateLimit-Policy, which has integers in drafts up to 07.
func (r *reader) readStructured(f *knownField) {
	values := r.cleaned(f)
	if len(values) == 0 {
		return
	}
	list, err := httpsfv.UnmarshalList(values)
	switch {
	case f.part == items && (err != nil || isDictionary(list)):
		r.readDictionary(f, values)
		return
	case err != nil:
		r.warn(f.key, values[0], whyNoList)
		return
	}
	for _, member := range r.bounded(f, list) {
		r.readMember(f, member)
	}
}

// isDictionary reports whether list is a dictionary that is also a valid list.
func isDictionary(list httpsfv.List) bool {
	if len(list) != 1 {
		return false
	}
	item, _ := list[0].(httpsfv.Item)
	switch item.Value {
	case httpsfv.Token("limit"), httpsfv.Token("remaining"), httpsfv.Token("reset"):
		return true
	}
	return false
}

// bounded returns the members of list that are read.
func (r *reader) bounded(f *knownField, list httpsfv.List) httpsfv.List {
	if len(list) > mostItems {
		r.warn(f.key, "", whyItems)
		return list[:mostItems]
	}
	return list
}

// readMember reads a member of the list in f.
func (r *reader) readMember(f *knownField, member httpsfv.Member) {
	item, _ := member.(httpsfv.Item)
	l := limit{family: structured, part: f.part, Limit: Limit{Source: f.key}}
	count, unnamed := item.Value.(int64)
	unnamed = unnamed && f.part == policy && count >= 0
	switch name := item.Value.(type) {
	case string:
		l.Name = name
	case httpsfv.Token:
		l.Name = string(name)
	default:
		if !unnamed {
			r.warn(f.key, written(member), whyNoItem)
			return
		}
	}
	ok := false
	if f.part == items {
		ok = r.readItem(&l, item.Params)
	} else {
		ok = readPolicy(&l, item.Params)
	}
	switch {
	case !ok:
		r.warn(f.key, written(member), whyNoParam)
	case unnamed:
		l.Max = amountOf(count)
		r.policies = append(r.policies, l)
	case !l.stated() && l.Window == 0: // almost any word is an item
		r.warn(f.key, written(member), whyNothing)
	default:
		r.add(&l)
	}
}

// readItem reads the parameters of an item of RateLimit into l, and reports whether they
// are valid.
func (r *reader) readItem(l *limit, params *httpsfv.Params) bool {
	left, known, ok1 := natural(params, "r", 0)
	wait, resets, ok2 := natural(params, "t", 0)
	partition, _, ok3 := param[[]byte](params, "pk")
	if !ok1 || !ok2 || !ok3 {
		return false
	}
	l.Remaining = Amount{whole: left, known: known}
	if resets {
		l.ResetAt, l.Rounding = r.now.Add(number{whole: wait}.of(time.Second)), time.Second
	}
	l.Partition = string(partition)
	return true
}

// readPolicy reads the parameters of an item of RateLimit-Policy into l, and reports whether
// they are valid.
func readPolicy(l *limit, params *httpsfv.Params) bool {
	most, known, ok1 := natural(params, "q", 0)
	window, _, ok2 := natural(params, "w", 1)
	unit, _, ok3 := param[string](params, "qu")
	partition, _, ok4 := param[[]byte](params, "pk")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return false
	}
	l.Max = Amount{whole: most, known: known}
	l.Window = number{whole: window}.of(time.Second)
	l.Partition = string(partition)
	switch unit {
	case "", "request", "requests": // the draft has both
		l.Unit = "requests"
	case "content-bytes":
		l.Unit = "bytes"
	case "concurrent-requests":
		l.Unit = concurrent
	default:
		l.Unit = unit
	}
	return true
}

// param returns the parameter called key, whether there is one, and whether it is absent or
// a T.
func param[T any](params *httpsfv.Params, key string) (v T, has, ok bool) {
	p, has := params.Get(key)
	if !has {
		return v, false, true
	}
	v, ok = p.(T)
	return v, true, ok
}

// natural is param for an integer that is at least least.
func natural(params *httpsfv.Params, key string, least int64) (n int64, has, ok bool) {
	n, has, ok = param[int64](params, key)
	return n, has, ok && (!has || n >= least)
}

// written returns a member of a list as in the header, for a warning.
func written(member httpsfv.Member) string {
	s, _ := httpsfv.Marshal(httpsfv.List{member}) // it has been parsed
	return s
}

// readDictionary reads RateLimit as in draft 07: "limit=100, remaining=50,
// reset=30".
func (r *reader) readDictionary(f *knownField, values []string) {
	dict, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		r.warn(f.key, values[0], whyNoList)
		return
	}
	l := limit{family: structured, Limit: Limit{Source: f.key}}
	some := false
	for _, key := range []string{"limit", "remaining", "reset"} {
		member, has := dict.Get(key)
		if !has {
			continue
		}
		some = true
		item, _ := member.(httpsfv.Item)
		n, ok := item.Value.(int64)
		switch {
		case ok && n == -1 && key != "reset": // unknown
		case !ok || n < 0:
			r.warn(f.key, key, whyNoItem)
		case key == "limit":
			l.Max = amountOf(n)
		case key == "remaining":
			l.Remaining = amountOf(n)
		default:
			w, why := timeOf(number{whole: n}, false)
			if why != "" {
				r.warn(f.key, key, why)
				continue
			}
			left, rounding := r.until(w)
			l.ResetAt, l.Rounding = r.now.Add(left), rounding
		}
	}
	if !some {
		r.warn(f.key, values[0], whyNoList)
	}
	if l.stated() {
		r.add(&l)
	}
}
