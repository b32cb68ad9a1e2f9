package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/examples/internal/robots"
)

const (
	robotsAge       = 24 * time.Hour // after which the file is read again (RFC 9309, section 2.4)
	robotsRedirects = 5              // which are followed (section 2.3.1.2)
)

// A host is what is known of one scheme, host and port. It is guarded by the
// lock of the crawler.
type host struct {
	key     string
	queue   []link
	workers int
	taken   int // pages asked for

	interval time.Duration // from one request to the next
	latency  time.Duration // of the last request that was answered well

	ready  bool          // robots.txt was read, or tried to
	rules  *robots.Rules // nil if they are not known
	readAt time.Time     // when robots.txt is to be read, again
	why    string        // no page is asked for, and why; or ""
	about  string        // robots.txt in words

	// What has happened.
	pages       int // that were answered well
	missing     int // and with a status from 400 to 499
	failed      int // and not, or with a status that says to try again
	forbidden   int // not asked for
	requests    int // robots.txt and further attempts included
	throttled   int // of those
	first, last time.Time
	closest     time.Duration // of two requests
}

func newHost(key string, interval time.Duration) *host {
	return &host{key: key, interval: interval}
}

// departs counts a request.
func (h *host) departs(now time.Time) {
	if h.requests++; h.requests == 1 {
		h.first = now
	} else if gap := now.Sub(h.last); h.requests == 2 || gap < h.closest {
		h.closest = gap
	}
	h.last = now
}

// rate is how many requests per second there were, 0 if there were not two.
func (h *host) rate() float64 {
	if h.requests < 2 {
		return 0
	}
	return float64(h.requests-1) / h.last.Sub(h.first).Seconds()
}

// prepare reads robots.txt of h if that is due, and decides what follows.
func (c *crawler) prepare(ctx context.Context, gate *sluice.Gate, h *host) {
	c.mu.Lock()
	now := time.Now()
	due := !now.Before(h.readAt)
	if due {
		// Only this call reads them; the others of this host go on by the old rules.
		h.readAt = now.Add(robotsAge)
	}
	c.mu.Unlock()
	if !due {
		return
	}
	rules, about := c.robots(ctx, gate, h)
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ready, h.rules, h.about, h.why = true, rules, about, ""
	if rules == nil {
		h.why = "robots.txt: " + about
	} else if delay, ok := rules.Delay(); ok {
		asked := fmt.Sprintf("Crawl-delay %v", delay)
		switch {
		case delay > c.o.maxDelay && !c.o.slowHosts:
			asked += fmt.Sprintf(" is over -max-delay %v: skipped", c.o.maxDelay)
			h.why = "robots.txt: " + asked
		case delay > h.interval:
			c.setInterval(gate, h, delay)
		}
		h.about += ", " + asked
	}
	c.hire(ctx, h) // until now there was only one of them
}

// robots asks for robots.txt of h, and says in words what there was. It returns
// nil if the host is to be skipped: there may be a file, and what it says is
// not known.
func (c *crawler) robots(ctx context.Context, gate *sluice.Gate, h *host) (*robots.Rules, string) {
	u, err := url.Parse(h.key + "/robots.txt")
	if err != nil {
		return nil, err.Error()
	}
	file := func(resp *http.Response) int64 {
		if resp.StatusCode/100 == 2 {
			return robots.MaxSize + 1 // for Parse to see that there is more
		}
		return 0
	}
	for range 1 + robotsRedirects {
		var a answer
		if key := hostKey(u); key == h.key {
			a, err = c.fetch(ctx, gate, h, u, file)
		} else {
			a, err = c.fetchElsewhere(ctx, key, u, file)
		}
		switch {
		case a.status == http.StatusTooManyRequests || a.status >= 500:
			return nil, fmt.Sprintf("status %d: skipped", a.status)
		case err != nil && ctx.Err() != nil:
			return nil, "not read: the crawl ended"
		case err != nil:
			return nil, "unreachable: skipped"
		case a.status/100 == 2:
			rules := robots.Parse(a.body, c.o.token())
			return rules, plural(rules.Len(), "rule")
		case a.status >= 400:
			return robots.Everything(), fmt.Sprintf("status %d: all allowed", a.status)
		}
		if u, err = location(u, a.header); err != nil {
			return nil, fmt.Sprintf("status %d, and %v: skipped", a.status, err)
		}
	}
	return nil, fmt.Sprintf("more than %d redirects: skipped", robotsRedirects)
}

// fetchElsewhere is fetch for another host, which has a gate, too.
func (c *crawler) fetchElsewhere(ctx context.Context, key string, u *url.URL, want func(*http.Response) int64) (a answer, err error) {
	c.mu.Lock()
	other := c.frontier.host(key)
	c.mu.Unlock()
	err = c.gates.Use(key, func(gate *sluice.Gate) error {
		var err error
		a, err = c.fetch(ctx, gate, other, u, want)
		return err
	})
	return a, err
}

// location returns where an answer sends us.
func location(u *url.URL, header http.Header) (*url.URL, error) {
	to := header.Get("Location")
	if to == "" {
		return nil, errors.New("no Location")
	}
	v, err := u.Parse(to)
	if err != nil {
		return nil, err
	}
	return normalURL(v)
}

// plural is "1 rule", "2 rules".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
