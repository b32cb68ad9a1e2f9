package main

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
	"strings"
	"text/tabwriter"
	"time"

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
	Far     int     `json:"hosts_that_wait"` // that asked for more than -max-wait

	hosts       []hostRecord // with most requests
	notes       []string     // about robots.txt
	learned     map[string]string
	until       time.Time // when the first of those that wait may be asked
	failures    []string  // the first of this run
	interrupted bool
	full        bool               // -pages were fetched
	server      *sluicetest.Server // the built-in one, or nil
}

// summary returns what has happened. The crawl must be over.
func (c *crawler) summary(took time.Duration) summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := summary{totals: c.totals, Seconds: took.Seconds(), failures: c.failures, full: c.fullCrawl(), learned: make(map[string]string)}
	c.fail(c.store.each([]byte{'h'}, []byte{'h' + 1}, func(_, value []byte) (bool, error) {
		var h hostRecord
		if err := decode(value, &h); err != nil {
			return false, err
		}
		s.count(h)
		return true, nil
	}))
	for i := range s.hosts {
		s.notesOf(c, s.hosts[i])
	}
	return s
}

// count takes a host into account.
func (s *summary) count(h hostRecord) {
	switch {
	case h.Queued == 0:
	case h.Gone:
		s.Gone++
	case h.Far:
		s.Far++
		if s.until.IsZero() || h.NotBefore.Before(s.until) {
			s.until = h.NotBefore
		}
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
		s.Status = exitFailed
	case s.interrupted:
		s.Status = exitInterrupted
	case s.Gone+s.Far > 0 && !s.full && s.server == nil: // of the built-in site one never works
		s.Status = exitStopped
	case s.Failed > 0, s.Pages == 0: // each host was away, forbade it or had none
		s.Status = exitFailed
	}
	return s.Status
}

// hints say what the table does not.
func (s *summary) hints(err error, status int) (lines []string) {
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") { // of several errors
			lines = append(lines, cli.Plain(line, cli.MostOfError))
		}
	}
	for _, text := range s.failures {
		lines = append(lines, "failed: "+cli.Plain(text, cli.MostOfError))
	}
	if s.Failed > int64(len(s.failures)) && len(s.failures) == mostFailures {
		lines = append(lines, "other pages that failed have an error in "+pagesFile)
	}
	if s.Gone > 0 {
		lines = append(lines, plural(s.Gone, "host")+" did not answer")
	}
	if s.Far > 0 {
		lines = append(lines, fmt.Sprintf("%s asked to be left alone, the first until %s", plural(s.Far, "host"), s.until.Format(time.DateTime)))
	}
	switch {
	case status == exitInterrupted:
		lines = append(lines, "interrupted")
	case s.Pages == 0 && s.Gone+s.Far == 0 && err == nil:
		lines = append(lines, "no page could be fetched")
	}
	return lines
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

// write prints a line for each host, and the totals.
func (s *summary) write(w io.Writer) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	atServer := ""
	if s.server != nil {
		atServer = "\tclosest two"
	}
	fmt.Fprintf(t, "host\tpages\tfailed\tmissing\tforbidden\trefused\tleft%s\t  robots.txt\n", atServer)
	for _, h := range s.hosts {
		if s.server != nil {
			atServer = "\t-"
			if seen := s.server.Record().Host(strings.TrimPrefix(h.Key, "http://")); len(seen.Requests) > 1 {
				atServer = "\t" + ms(closest(seen))
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d%s\t  %s\n", cli.Plain(strings.TrimPrefix(h.Key, "http://"), cli.MostOfItem),
			h.Pages, h.Failed, h.Missing, h.Forbidden, h.Refused, h.Queued, atServer, cli.Plain(h.About, cli.MostOfItem))
	}
	_ = t.Flush() // into memory
	if n := s.Hosts - int64(len(s.hosts)); n > 0 {
		fmt.Fprintf(&text, "and %s\n", plural(int(n), "more host"))
	}
	for _, note := range s.notes {
		fmt.Fprintln(&text, cli.Plain(note, cli.MostOfItem))
	}
	fmt.Fprintf(&text, "%s, %d failed, %d missing, %d forbidden, %d duplicates, in %s\n", plural(int(s.Pages), "page"),
		s.Failed, s.Missing, s.Forbidden, s.Duplicates, cli.Roughly(time.Duration(s.Seconds*float64(time.Second))))
	for _, n := range []struct {
		count int64
		why   string
	}{
		{s.Queued, "not visited yet"},
		{s.TooDeep, "not followed: deeper than -depth"},
		{s.Elsewhere, "not followed: to other hosts (see -span)"},
		{s.Excluded, "not followed: -include and -exclude"},
		{s.Nofollow, "not followed: nofollow"},
		{s.TooMany, "not followed: more than -frontier"},
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
