package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// A summary is what there is to say when a crawl is over.
type summary struct {
	hosts    []host // copies
	notes    map[string][]string
	frontier frontier           // only its counts
	left     int                // addresses not gone to
	server   *sluicetest.Server // the built-in one, or nil
}

// summary returns what has happened. The crawl must be over.
func (c *crawler) summary() summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := summary{frontier: *c.frontier, left: c.frontier.left(), notes: make(map[string][]string)}
	for _, h := range c.frontier.order {
		s.hosts = append(s.hosts, *h)
		if h.rules != nil {
			s.notes[h.key] = h.rules.Notes()
		}
	}
	return s
}

// failed returns how many pages should have been there and were not.
func (s summary) failed() (n int) {
	for _, h := range s.hosts {
		n += h.failed
	}
	return n
}

// pages returns how many pages were fetched.
func (s summary) pages() (n int) {
	for _, h := range s.hosts {
		n += h.pages
	}
	return n
}

// closest returns the shortest time between two arrivals.
func closest(r sluicetest.Record) time.Duration {
	at := r.Arrivals()
	shortest := time.Duration(math.MaxInt64)
	for i := 1; i < len(at); i++ {
		shortest = min(shortest, at[i]-at[i-1])
	}
	return shortest
}

// write prints a line for each host, and what there is to say about robots.txt.
func (s summary) write(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	atServer := ""
	if s.server != nil {
		atServer = "\tat the server"
	}
	fmt.Fprintf(t, "host\tpages\tfailed\tmissing\tforbidden\t429\trate\tdelay\tclosest two%s\t  robots.txt\n", atServer)
	for _, h := range s.hosts {
		gap, rate := "-", "-"
		if h.requests > 1 {
			gap, rate = ms(h.closest), fmt.Sprintf("%.2f/s", h.rate())
		}
		if s.server != nil {
			atServer = "\t-"
			if seen := s.server.Record().Host(strings.TrimPrefix(h.key, "http://")); len(seen.Requests) > 1 {
				atServer = "\t" + ms(closest(seen))
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%v\t%s%s\t  %s\n",
			strings.TrimPrefix(h.key, "http://"), h.pages, h.failed, h.missing, h.forbidden, h.throttled, rate, h.interval, gap, atServer, h.about)
	}
	t.Flush()
	for _, h := range s.hosts {
		for _, note := range s.notes[h.key] {
			fmt.Fprintf(w, "%s/robots.txt: %s\n", h.key, note)
		}
	}
	for _, n := range []struct {
		count int
		why   string
	}{
		{s.left, "not gone to: enough pages, or interrupted"},
		{s.frontier.tooDeep, "not followed: deeper than -depth"},
		{s.frontier.elsewhere, "not followed: to other hosts (see -span)"},
		{s.frontier.tooMany, "not followed: more than -frontier"},
	} {
		if n.count > 0 {
			fmt.Fprintf(w, "%s %s\n", plural(n.count, "link"), n.why)
		}
	}
}

// ms is a time in milliseconds, rounded down, so that none looks longer than it
// was.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Truncate(100*time.Microsecond))/float64(time.Millisecond))
}
