package ratelimit

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// concurrent is the unit of limits of calls in flight.
const concurrent = "concurrent"

// A limit is a Limit that is being put together.
type limit struct {
	Limit
	family  family
	part    part // of structured: whether it is a policy
	resetBy part // of the field that ResetAt is from
	exact   bool // Window is of just this quota
	refills bool // ResetAt is from a field of buckets, and not of windows
}

// stated reports whether l has any number.
func (l *limit) stated() bool {
	return l.Quota.known || l.Used.known || l.Remaining.known || !l.ResetAt.IsZero()
}

// add adds what a family says about one limit. The first one is kept apart,
// which saves most headers an allocation.
func (r *reader) add(l *limit) {
	switch {
	case !r.some:
		r.first, r.some = *l, true
		return
	case r.limits == nil:
		r.limits = append(make([]limit, 0, 4), r.first)
	}
	r.limits = append(r.limits, *l)
}

// join makes Limits of what the families say: one limit of all that is said
// about the same name and partition. What was read earlier counts more.
func (r *reader) join() {
	if r.limits == nil && len(r.policies) == 0 {
		if r.some {
			r.Limits = []Limit{r.first.finished(r.now)}
		}
		return
	}
	if r.limits == nil && r.some { // only policies besides
		r.limits = append(r.limits, r.first)
	}
	slices.SortStableFunc(r.limits, func(a, b limit) int { return strings.Compare(a.Name, b.Name) })
	kept := r.limits[:0]
	for i := 0; i < len(r.limits); {
		group := kept[len(kept):]
		for name := r.limits[i].Name; i < len(r.limits) && r.limits[i].Name == name; i++ {
			if l := r.limits[i]; !r.joins(group, &l) {
				group = append(group, l) // into a place that has been read
			}
		}
		kept = kept[:len(kept)+len(group)]
	}
	for i := range r.policies {
		kept = addUnnamed(kept, &r.policies[i])
	}
	slices.SortStableFunc(kept, func(a, b limit) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Partition, b.Partition))
	})
	if len(kept) > 0 {
		r.Limits = make([]Limit, len(kept))
	}
	for i := range kept {
		r.Limits[i] = kept[i].finished(r.now)
	}
}

// joins adds what l says to the limits of the same name that it is about, and
// reports whether there are any. A policy without a partition is about all of
// them, and so is a policy about an item without one.
func (r *reader) joins(group []limit, l *limit) (joined bool) {
	for i := range group {
		if group[i].Partition == l.Partition {
			r.fill(&group[i], l)
			return true
		}
	}
	if l.family != structured || l.part != policy {
		return false
	}
	for i := range group {
		g := &group[i]
		if g.part == items && !g.Quota.known && (g.Partition == "" || l.Partition == "") {
			r.fill(g, l)
			joined = true
		}
	}
	return joined
}

// fill adds to l what only m says. If m contradicts l it is about something
// else, or wrong, and nothing of it is used.
func (r *reader) fill(l, m *limit) {
	if differ(l.Quota, m.Quota) || differ(l.Remaining, m.Remaining) {
		r.warn(m.Source, "", "ignored: it contradicts "+l.Source)
		return
	}
	for _, a := range []struct{ to, from *Amount }{
		{&l.Quota, &m.Quota}, {&l.Used, &m.Used}, {&l.Remaining, &m.Remaining},
	} {
		if !a.to.known {
			*a.to = *a.from
		}
	}
	l.Unit, l.Window = cmp.Or(l.Unit, m.Unit), cmp.Or(l.Window, m.Window)
	if l.ResetAt.IsZero() && !m.ResetAt.IsZero() {
		l.ResetAt, l.Source, l.refills = m.ResetAt, m.Source, m.refills
	}
}

// differ reports whether a and b are known, and not the same.
func differ(a, b Amount) bool { return a.known && b.known && a != b }

// addUnnamed adds a policy without a name to limits, which begin with those
// without one: to the first of these if it can be about that, or as another.
func addUnnamed(limits []limit, p *limit) []limit {
	if len(limits) > 0 {
		if l := &limits[0]; l.Name == "" && l.Window == 0 && !differ(l.Quota, p.Quota) {
			l.Quota, l.Window, l.Unit = p.Quota, p.Window, cmp.Or(l.Unit, p.Unit)
			return limits
		}
	}
	return append(limits, *p)
}

// judge decides what follows from the response as a whole.
func (r *reader) judge() {
	told := r.RetrySource != ""
	empty, left := false, false
	for i := range r.Limits {
		l := &r.Limits[i]
		empty = empty || l.Remaining.Zero() && (l.NextAt.IsZero() || l.countsCalls())
		left = left || l.Remaining.known && !l.Remaining.Zero()
		switch {
		case l.Quota.known && l.Quota.less(l.Remaining.number):
			r.warn(l.Source, l.Remaining.String(), "more remains than there is")
		case l.Remaining.Zero() && l.ResetAt.IsZero() && r.Status < 300:
			r.warn(l.Source, "", "nothing remains, but until when is not said")
		}
	}
	refused := false // perhaps
	switch r.Status {
	case http.StatusTooManyRequests:
		r.Throttled, refused = true, true
	case statusOverloaded:
		r.Throttled = true
	case http.StatusServiceUnavailable:
		r.Throttled = told
	case http.StatusForbidden:
		r.Throttled, refused = told || empty, true
	}
	if r.Throttled && !told {
		r.RetryAt, r.RetrySource = latestReset(r.Limits)
		if r.RetryAt.IsZero() {
			r.Floor = refilled(r.Limits, r.now)
		}
	}
	if refused && r.RetryAt.IsZero() && left && !empty && r.hidesLimits() {
		r.Floor = hiddenLimit
	}
	if r.ShouldRetry == Unset && r.pushedBack {
		r.ShouldRetry = No
	}
}

// statusOverloaded is not registered. Anthropic and others answer with it when
// they are too busy to take a request.
const statusOverloaded = 529

// hiddenLimit is what GitHub asks for when a secondary limit refused, and no
// less than what GitLab's windows last.
const hiddenLimit = time.Minute

// hidesLimits reports whether the server has limits that it does not show.
func (r *reader) hidesLimits() bool {
	return r.hides || len(field(r.header, "X-Github-Request-Id")) > 0
}
