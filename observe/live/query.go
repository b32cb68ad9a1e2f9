package live

import (
	"cmp"
	"math/bits"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// perPage is the number of gates that a page shows.
const perPage = 100

// A query is the selection of a viewer.
type query struct {
	search string // in names, in lower case
	sort   string // a key of orders
}

// orders are the ways to sort, each the most interesting first.
var orders = []struct{ key, name string }{
	{"busy", "busiest"},
	{"waiting", "most waiting"},
	{"refused", "most refused"},
	{"slow", "longest wait"},
	{"name", "name"},
}

// parseQuery reads the fields that the form of the page sends. It ignores unknown fields.
func parseQuery(v url.Values) query {
	q := query{search: strings.ToLower(shorten(v.Get("q"))), sort: "busy"}
	for _, o := range orders {
		if o.key == v.Get("sort") {
			q.sort = o.key
		}
	}
	return q
}

// choose returns the rows of a page, and the total number of matches.
func (q query) choose(s *sampler) (chosen []*history, matching int) {
	chosen = make([]*history, 0, min(perPage, len(s.rows)))
	for _, h := range s.sorted(q.sort) {
		if q.search != "" && !strings.Contains(h.lower, q.search) {
			continue
		}
		if matching++; matching <= perPage {
			chosen = append(chosen, h)
		}
	}
	return chosen, matching
}

// sorted returns the rows of the last sample in an order, which all viewers share. The rows must
// not be changed.
func (s *sampler) sorted(by string) []*history {
	if rows, ok := s.orders[by]; ok {
		return rows
	}
	type ranked struct {
		h     *history
		score int
	}
	all := make([]ranked, len(s.rows))
	for i, h := range s.rows {
		all[i] = ranked{h, score(by, h)}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.h.name, b.h.name), cmp.Compare(a.h.id, b.h.id))
	})
	rows := make([]*history, len(all))
	for i, r := range all {
		rows[i] = r.h
	}
	if s.orders == nil {
		s.orders = make(map[string][]*history)
	}
	s.orders[by] = rows
	return rows
}

// score is in powers of two, so that rows do not change places all the time.
func score(by string, h *history) int {
	s := &h.gate.Stats
	queue := float64(s.Pacing + s.Waiting)
	switch by {
	case "name":
		return 0
	case "waiting":
		return power(queue)
	case "slow":
		return power(1000 * h.flow().p99.Seconds())
	case "refused":
		return power(60 * h.refused)
	}
	return power(10*(h.left+h.refused) + queue + float64(s.InFlight))
}

func power(x float64) int { return bits.Len64(uint64(max(0, min(x, 1<<62)))) }

// shorten cuts a search text between two runes.
func shorten(search string) string {
	const most = 300
	if len(search) <= most {
		return search
	}
	end := most
	for !utf8.RuneStart(search[end]) {
		end--
	}
	return search[:end] + "…"
}
