package crawl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/robots"
	"github.com/sluice-go/sluice/sluicetest"
)

// mostHosts is how many hosts the table has.
const mostHosts = 20

// A summary is what there is to say when a crawl is over. Its JSON is summary.json.
type summary struct {
	totals
	Status  int     `json:"status"` // exit status
	Why     string  `json:"ended_early,omitempty"`
	Seconds float64 `json:"seconds"` // of this run
	Gone    int     `json:"hosts_gone"`
	Far     int     `json:"hosts_that_wait"`  // that asked for more than -max-wait
	Limits  []limit `json:"limits,omitempty"` // that kept links from being visited

	hosts       []hostRecord // with most requests
	notes       []string     // about robots.txt
	learned     map[string]string
	left        []string // hosts that did not answer or wait, the first of them, and why
	failures    []string // the first of this run
	moves       []string // redirects of the first pages
	interrupted bool
	hostPages   limit
	server      *sluicetest.Server // the built-in one, or nil
}

// A limit is a flag that kept links from being visited.
type limit struct {
	Flag  string `json:"flag"`
	Value int64  `json:"value"`
	Links int64  `json:"links"`           // that it kept from being visited
	Hosts int    `json:"hosts,omitempty"` // that have them
	Kept  bool   `json:"kept"`            // whether -resume with a higher number visits them
}

// summary returns what has happened. The crawl must be over.
func (c *crawler) summary(took time.Duration) summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := summary{totals: c.totals, Seconds: took.Seconds(), failures: c.failures, moves: c.moves, learned: make(map[string]string)}
	c.fail(c.store.each([]byte{'h'}, []byte{'h' + 1}, func(_, value []byte) (bool, error) {
		var h hostRecord
		if err := decode(value, &h); err != nil {
			return false, err
		}
		s.count(h, c.o)
		return true, nil
	}))
	s.limits(c.o)
	for i := range s.hosts {
		s.notesOf(c, s.hosts[i])
	}
	return s
}

// limits notes which limits kept links from being visited, but for those that hosts have.
func (s *summary) limits(o options) {
	if s.Taken >= o.pages && s.Queued > 0 {
		s.Limits = append(s.Limits, limit{Flag: "-pages", Value: int64(o.pages), Links: s.Queued, Kept: true})
	}
	if s.hostPages.Links > 0 {
		s.Limits = append(s.Limits, s.hostPages)
	}
	if s.TooDeep > 0 {
		s.Limits = append(s.Limits, limit{Flag: "-depth", Value: int64(o.depth), Links: s.TooDeep})
	}
	if s.TooMany > 0 {
		s.Limits = append(s.Limits, limit{Flag: "-frontier", Value: o.frontier, Links: s.TooMany})
	}
}

// ended reports whether a limit ended the crawl. -depth does not: it says what is to be
// crawled, as -include does.
func (s *summary) ended() bool {
	return slices.ContainsFunc(s.Limits, func(l limit) bool { return l.Flag != "-depth" })
}

// count takes a host into account.
func (s *summary) count(h hostRecord, o options) {
	switch {
	case h.Queued == 0:
	case h.Gone:
		s.Gone++
		if h.Aside > asideMost {
			s.leave(h, fmt.Sprintf("%d requests in a row failed, with %d pauses of up to %v, the last: %s", h.Bad, asideMost, asideFirst<<(asideMost-1), h.Last))
		} else {
			s.leave(h, fmt.Sprintf("robots.txt, asked for %d times: %s", attempts, h.About))
		}
	case h.Far:
		s.Far++
		s.leave(h, fmt.Sprintf("it wants to be left alone until %s, longer than -max-wait %v: %s", h.NotBefore.Format(time.DateTime), o.maxWait, h.Last))
	case h.Taken >= o.hostPages:
		s.hostPages.Flag, s.hostPages.Value, s.hostPages.Kept = "-host-pages", int64(o.hostPages), true
		s.hostPages.Links += h.Queued
		s.hostPages.Hosts++
	}
	order := func(a, b hostRecord) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Key, b.Key))
	}
	at, _ := slices.BinarySearchFunc(s.hosts, h, order)
	if at < mostHosts {
		s.hosts = slices.Insert(s.hosts, at, h)
		s.hosts = s.hosts[:min(len(s.hosts), mostHosts)]
	}
}

// leave notes why a host is left.
func (s *summary) leave(h hostRecord, why string) {
	if len(s.left) < mostFailures {
		s.left = append(s.left, h.Key+": "+why)
	}
}

// notesOf collects what there is to say about one host.
func (s *summary) notesOf(c *crawler, h hostRecord) {
	file, found, err := get(c.store.db, hostKeyOf('r', idOf(h.Key)))
	c.fail(err)
	if found {
		for _, note := range robots.Parse(file, c.o.token()).Notes() {
			s.notes = append(s.notes, h.Key+"/robots.txt: "+note)
		}
	}
}

// status is the exit status of the crawl, which ended with err.
func (s *summary) status(err error) int {
	switch {
	case err != nil:
		s.Status = cli.ExitFailed
	case s.interrupted:
		s.Status = cli.ExitInterrupted
	case s.Gone+s.Far > 0 && !s.hit("-pages") && s.server == nil: // of the built-in site one never works
		s.Status = cli.ExitStopped
	case s.Failed > 0, s.Pages == s.Redirects: // each host was away, forbade it, or had none
		s.Status = cli.ExitFailed
	case s.ended():
		s.Status = cli.ExitLimit
	}
	return s.Status
}

// hit reports whether a limit kept links from being visited.
func (s *summary) hit(flag string) bool {
	return slices.ContainsFunc(s.Limits, func(l limit) bool { return l.Flag == flag })
}

// hints say what the table does not.
func (s *summary) hints(err error, status int) (lines []string) {
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") { // of several errors
			lines = append(lines, cli.Plain(line, cli.MostOfError))
		}
		if pebble.IsCorruptionError(err) {
			lines = append(lines, rebuildHint)
		}
	}
	for _, text := range s.failures {
		lines = append(lines, "failed: "+cli.Plain(text, cli.MostOfError))
	}
	if s.Failed > int64(len(s.failures)) && len(s.failures) == mostFailures {
		lines = append(lines, "other pages that failed have an error in "+pagesFile)
	}
	for _, text := range s.left {
		lines = append(lines, "left for -resume: "+cli.Plain(text, cli.MostOfError))
	}
	if n := s.Gone + s.Far - len(s.left); n > 0 {
		lines = append(lines, "left for -resume: "+plural(n, "other host"))
	}
	for _, text := range s.moves {
		lines = append(lines, cli.Plain(text, cli.MostOfError))
	}
	for _, l := range s.Limits {
		lines = append(lines, l.String())
	}
	switch {
	case status == cli.ExitInterrupted:
		lines = append(lines, "interrupted")
	case s.Pages == 0 && s.Gone+s.Far == 0 && err == nil:
		lines = append(lines, "no page could be fetched")
	case s.Pages == s.Redirects && s.Gone+s.Far == 0 && err == nil:
		lines = append(lines, "no page could be fetched, only redirects")
	}
	return lines
}

func (l limit) String() string {
	switch {
	case l.Hosts > 0:
		return fmt.Sprintf("%s %d ended the crawl of %s: %s not visited; to go on, use -resume and a higher %s", l.Flag, l.Value, plural(l.Hosts, "host"), plural(int(l.Links), "link"), l.Flag)
	case l.Kept:
		return fmt.Sprintf("%s %d ended the crawl: %s not visited; to go on, use -resume and a higher %s", l.Flag, l.Value, plural(int(l.Links), "link"), l.Flag)
	}
	return fmt.Sprintf("%s %d left out %s, also for a later -resume", l.Flag, l.Value, plural(int(l.Links), "link"))
}

// writeSummary replaces summary.json.
func (c *crawler) writeSummary(s summary, err error) error {
	s.status(err)
	if err != nil {
		s.Why = err.Error()
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.o.dir, "summary.json"), append(text, '\n'), 0o666)
}

// write prints a line for each host, and the totals. What has no column is zero for all
// hosts. On a terminal of a width no row is longer than a line: what its robots.txt says may
// be below the table.
func (s *summary) write(w io.Writer, width int) error {
	var text strings.Builder
	for _, line := range s.table(width) {
		fmt.Fprintln(&text, line)
	}
	if n := s.Hosts - int64(len(s.hosts)); n > 0 {
		fmt.Fprintf(&text, "and %s\n", plural(int(n), "more host"))
	}
	for _, note := range s.notes {
		fmt.Fprintln(&text, cli.Plain(note, cli.MostOfItem))
	}
	fmt.Fprintf(&text, "%s, %d failed, %d missing, %d forbidden, %d duplicates, in %s\n", plural(int(s.Pages), "page"),
		s.Failed, s.Missing, s.Forbidden, s.Duplicates, cli.Roughly(time.Duration(s.Seconds*float64(time.Second))))
	if s.New+s.Changed+s.Unchanged+s.Vanished > 0 {
		fmt.Fprintf(&text, "since the crawl before: %d new, %d changed, %d unchanged, %d gone\n", s.New, s.Changed, s.Unchanged, s.Vanished)
	}
	for _, n := range []struct {
		count int64
		why   string
	}{
		{s.Queued, "not visited yet"},
		{s.TooDeep, "not followed: deeper than -depth"},
		{s.Elsewhere, "not followed: to other hosts (see -domains and -span)"},
		{s.Excluded, "not followed: -include and -exclude"},
		{s.Nofollow, "not followed: nofollow"},
		{s.TooMany, "not followed: more than -frontier"},
		{s.TooManyHops, fmt.Sprintf("not followed: more than %d redirects or canonical addresses in a row", mostHops)},
		{s.Unreadable, "not followed: not an address"},
	} {
		if n.count > 0 {
			fmt.Fprintf(&text, "%s %s\n", plural(int(n.count), "link"), n.why)
		}
	}
	_, err := io.WriteString(w, text.String())
	if err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// table returns the lines of the table, and what did not fit into it.
func (s *summary) table(width int) []string {
	columns := []struct {
		name string
		of   func(h hostRecord) string
	}{
		{"host", nameIn},
		{"pages", func(h hostRecord) string { return strconv.Itoa(h.Pages) }},
		{"failed", func(h hostRecord) string { return strconv.Itoa(h.Failed) }},
		{"missing", func(h hostRecord) string { return strconv.Itoa(h.Missing) }},
		{"forbidden", func(h hostRecord) string { return strconv.Itoa(h.Forbidden) }},
		{"refused", func(h hostRecord) string { return strconv.Itoa(h.Refused) }},
		{"left", func(h hostRecord) string { return strconv.FormatInt(h.Queued, 10) }},
		{"closest two", func(h hostRecord) string {
			if s.server != nil {
				if seen := s.server.Record().Host(strings.TrimPrefix(h.Key, "http://")); len(seen.Requests) > 1 {
					return ms(closest(seen))
				}
			}
			return "-"
		}},
	}
	rows := make([][]string, 1+len(s.hosts)) // the first is the header
	for _, col := range columns {
		all := make([]string, len(s.hosts))
		for i, h := range s.hosts {
			all[i] = col.of(h)
		}
		if col.name != "host" && col.name != "pages" && !slices.ContainsFunc(all, func(text string) bool { return text != "0" && text != "-" }) {
			continue
		}
		if width > 0 && col.name == "host" { // the other columns take 50, with some of robots.txt
			for i := range all {
				all[i] = cli.Cut(all[i], max(16, width-50))
			}
		}
		rows[0] = append(rows[0], col.name)
		for i, text := range all {
			rows[i+1] = append(rows[i+1], text)
		}
	}
	about := func(i int) string {
		if i == 0 {
			return "robots.txt"
		}
		return cli.Plain(s.hosts[i-1].About, cli.MostOfItem)
	}
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, row := range rows {
		fmt.Fprintf(t, "%s\t  %s\n", strings.Join(row, "\t"), about(i))
	}
	_ = t.Flush() // into memory
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines[:len(rows)] {
		lines[i] = cli.Cut(line, width)
		if i > 0 && (lines[i] != line && !strings.HasSuffix(about(i), ": all allowed") || rows[i][0] != nameIn(s.hosts[i-1])) {
			lines = append(lines, fmt.Sprintf("%s: robots.txt: %s", nameIn(s.hosts[i-1]), about(i)))
		}
	}
	return lines
}

// nameIn is the name of a host in the table.
func nameIn(h hostRecord) string {
	return cli.Plain(strings.TrimPrefix(h.Key, "http://"), cli.MostOfItem)
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

// ms is a time in milliseconds, rounded down, so that none looks longer than it was.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Truncate(100*time.Microsecond))/float64(time.Millisecond))
}

// untilClosed returns a context that is done when a channel is closed.
func untilClosed(stop <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-stop:
		case <-ctx.Done():
		}
		cancel(errInterrupted)
	}()
	return ctx, func() { cancel(nil); <-ended }
}

var errInterrupted = errors.New("interrupted")
