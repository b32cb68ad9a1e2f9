// Package peers has the messages that gates of several processes exchange about a limit that they
// have learned, [Store], and [Groups], which divides the limit among the gates of one process. The
// package is for authors of stores, see package ext.
//
// The limit is divided by the amount that each gate could use (max-min fairness): a gate that wants
// less than an equal share gets its wish, and the others divide the rest. If all want less than
// there is, each gets an equal part of the rest on top. Until a rate is learned, shares are equal.
package peers

import (
	"cmp"
	"slices"
	"time"
)

const (
	// lasts is the time for which a gate is in the group without a report.
	lasts = 3 * time.Second

	// keeps is the time for which a group is kept after its last report.
	keeps = 10 * time.Minute
)

// # How is a limit divided?
//
// By the amount that each gate could use: a gate that wants less than an equal share gets its wish,
// and the others divide the rest. If all want less than there is, each has an equal part of the rest
// on top, so that it can become busier immediately.
//
//	limit 60/s   wants 10/s   all   all       wants 10/s   20/s
//	parts          10/s      25/s  25/s         25/s       35/s
//
// A gate knows its share from its last report, and the others may have joined since. If each simply
// took its due, their shares were more than the limit until all have reported. So the group also
// keeps the share that each gate took, and no gate takes an amount that another one still has:
//
//	gate   a reports   c joins    a reports   b reports   c reports
//	a        1/2         1/2        1/3         1/3         1/3
//	b        1/2         1/2        1/2         1/3         1/3
//	c                     0          0           0          1/3
//
// Until a rate is learned, nothing is divided: shares are equal, and no call waits for them.

// A group is the gates that share one limit. The zero group is empty. Times are microseconds
// on one clock.
type group struct {
	members map[string]member
	news    []int64
	stamp   int64
	ends    int64 // when it is discarded
	granted int64
}

type member struct {
	seen, want, part, granted, use int64
}

// exchange records a report at now.
func (g *group) exchange(now int64, r Report) Reply {
	if g.over(now) {
		*g = group{members: map[string]member{}}
	}
	lasts := lasts.Microseconds()
	free, since := Whole, int64(0)
	if m, known := g.members[r.ID]; known {
		g.granted += r.Admitted - m.granted
	}
	for id, m := range g.members {
		if id == r.ID || m.seen <= now-lasts || m.seen > now+lasts { // its clock stepped back
			delete(g.members, id)
			continue
		}
		free -= m.part
		since += int64(float64(m.use) * float64(max(0, now-m.seen)) / 1e12)
	}
	if r.News != nil && r.Seen == g.stamp {
		g.news, g.stamp = r.News, max(now, g.stamp+1)
	}
	rate := int64(0)
	g.ends = now + keeps.Microseconds()
	if g.news != nil {
		rate = g.news[0]
	}
	reply := Reply{Peers: int64(len(g.members)), Admitted: g.granted + since, News: g.news, Stamp: g.stamp}
	if g.news != nil {
		reply.Age = time.Duration(max(0, now-g.stamp)) * time.Microsecond
	}
	if r.Want == Leaves {
		if reply.Peers == 0 && g.news == nil {
			*g = group{}
		}
		return reply
	}
	g.members[r.ID] = member{want: r.Want}
	reply.Peers++
	reply.Due = g.due(r.ID, rate)
	reply.Share = reply.Due
	if rate > 0 {
		reply.Share = max(0, min(reply.Due, free))
	}
	g.members[r.ID] = member{now, r.Want, reply.Share, r.Admitted, r.Use}
	return reply
}

// over reports whether the group can be discarded.
func (g *group) over(now int64) bool { return now >= g.ends }

// due returns the share of a limit that id should have.
func (g *group) due(id string, rate int64) int64 {
	left := float64(len(g.members))
	if rate <= 0 {
		return int64(float64(Whole) / left)
	}
	var wants []int64
	for _, m := range g.members {
		if m.want >= 0 {
			wants = append(wants, m.want)
		}
	}
	slices.SortFunc(wants, cmp.Compare[int64])
	rest, all := float64(rate), left
	for _, want := range wants {
		if float64(want)*left > rest {
			break
		}
		rest -= float64(want)
		left--
	}
	// If all want less than there is, all have a share of the rest on top. Otherwise the
	// gates that want more than others divide it.
	share, mine := rest/max(1, left), g.members[id].want
	switch {
	case left == 0:
		share = float64(mine) + rest/all
	case mine >= 0 && float64(mine) < share:
		share = float64(mine)
	}
	return int64(share / float64(rate) * float64(Whole))
}
