package ratelimit

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// next returns an empty limit, to be filled and added. It is the first one if there is none
// yet: most headers have one, and limits are large.
func (r *reader) next() *limit {
	if r.some {
		return new(limit)
	}
	r.first = limit{}
	return &r.first
}

// add adds the fields of a family about one limit. The first one is kept separately, which
// saves an allocation for most headers.
func (r *reader) add(l *limit) {
	switch {
	case l == &r.first:
		r.some = true
		return
	case !r.some:
		r.first, r.some = *l, true
		return
	case r.limits == nil:
		r.limits = append(make([]limit, 0, 4), r.first)
	}
	r.limits = append(r.limits, *l)
}

// join sets Limits: one for each name and partition, from all families. Earlier values take
// precedence.
func (r *reader) join() {
	if r.limits == nil && len(r.policies) == 0 {
		if r.some {
			r.Limits = []Limit{r.finished(&r.first)}
		}
		return
	}
	if r.limits == nil && r.some { // and policies
		r.limits = append(r.limits, r.first)
	}
	slices.SortStableFunc(r.limits, func(a, b limit) int { return strings.Compare(a.Name, b.Name) })
	kept := r.limits[:0]
	for i := 0; i < len(r.limits); {
		group := kept[len(kept):]
		for name := r.limits[i].Name; i < len(r.limits) && r.limits[i].Name == name; i++ {
			if l := r.limits[i]; !r.joins(group, &l) {
				group = append(group, l) // overwrites only values that have been read
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
		r.Limits[i] = r.finished(&kept[i])
	}
}

// finished returns l when all of it has been read.
func (r *reader) finished(l *limit) Limit {
	l.finish(r.now)
	if l.Remaining.isZero() && l.ResetAt.IsZero() && r.Status < 300 && !l.neverResets() {
		r.warn(l.Source, "", "nothing remains, but there is no reset")
	}
	return l.Limit
}

// neverResets reports whether l is from fields without one about a reset: Azure, Shopify,
// HubSpot. Their zeros are as documented, so a warning about each would only be noise.
func (l *limit) neverResets() bool {
	const hubSpot = "X-Hubspot-"
	return l.family == vendor || len(l.Source) > len(hubSpot) && strings.EqualFold(l.Source[:len(hubSpot)], hubSpot)
}

// joins adds l to the limits of the same name that it is about, and reports whether there
// are any. A policy without a partition is about all of them, and any policy is about an
// item without a partition.
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
		if g.part == items && !g.Max.known && (g.Partition == "" || l.Partition == "") {
			r.fill(g, l)
			joined = true
		}
	}
	return joined
}

// fill adds to l the values that only m has. If m contradicts l, it is ignored.
func (r *reader) fill(l, m *limit) {
	if differ(l.Max, m.Max) || differ(l.Remaining, m.Remaining) {
		r.warn(m.Source, "", "ignored: it contradicts "+l.Source)
		return
	}
	for _, a := range []struct{ to, from *Amount }{
		{&l.Max, &m.Max}, {&l.Used, &m.Used}, {&l.Remaining, &m.Remaining},
	} {
		if !a.to.known {
			*a.to = *a.from
		}
	}
	l.Unit, l.Window = cmp.Or(l.Unit, m.Unit), cmp.Or(l.Window, m.Window)
	if l.ResetAt.IsZero() && !m.ResetAt.IsZero() {
		l.ResetAt, l.Rounding, l.Source, l.refills = m.ResetAt, m.Rounding, m.Source, m.refills
	}
}

// differ reports whether a and b are known and different.
func differ(a, b Amount) bool { return a.known && b.known && a != b }

// addUnnamed adds a policy without a name to limits, which begin with those without a name:
// to the first of these if it fits, or as another limit.
func addUnnamed(limits []limit, p *limit) []limit {
	if len(limits) > 0 {
		if l := &limits[0]; l.Name == "" && l.Window == 0 && !differ(l.Max, p.Max) {
			l.Max, l.Window, l.Unit = p.Max, p.Window, cmp.Or(l.Unit, p.Unit)
			return limits
		}
	}
	return append(limits, *p)
}

// judge draws conclusions from the response as a whole.
func (r *reader) judge() {
	stated := r.RetrySource != ""
	empty, left := false, false
	for i := range r.Limits {
		l := &r.Limits[i]
		empty = empty || l.Remaining.isZero() && (l.NextAt.IsZero() || l.countsCalls())
		left = left || l.Remaining.known && !l.Remaining.isZero()
		if l.Max.known && l.Max.number().less(l.Remaining.number()) {
			r.warn(l.Source, l.Remaining.String(), "more remains than the limit")
		}
	}
	refused := false // possibly
	switch r.Status {
	case http.StatusTooManyRequests:
		r.Throttled, refused = true, true
	case statusOverloaded:
		r.Throttled = true
	case http.StatusServiceUnavailable, 420, 430, 508, 509, 999: // which some servers use, see sluicehttp
		r.Throttled = stated
	case http.StatusForbidden:
		r.Throttled, refused = stated || empty, true
	}
	if r.Throttled && !stated {
		r.RetryAt, r.RetrySource = latestReset(r.Limits)
		if r.RetryAt.IsZero() {
			r.Floor = refilled(r.Limits, r.now)
		}
	}
	if refused && r.RetryAt.IsZero() && left && !empty && r.hidesLimits() {
		r.Floor = hiddenLimit
	}
	if r.ShouldRetry == nil && r.pushedBack {
		r.ShouldRetry = new(false)
	}
}

// statusOverloaded is an unregistered status of Anthropic and others for a server that is
// too busy.
const statusOverloaded = 529

// hiddenLimit is the wait that GitHub documents for secondary limits, and at least the
// window of GitLab.
const hiddenLimit = time.Minute

// hidesLimits reports whether the server has limits that it does not show.
func (r *reader) hidesLimits() bool {
	return r.hides || len(field(r.header, "X-Github-Request-Id")) > 0
}
