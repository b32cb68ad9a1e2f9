package crawl

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-go/sluice"
)

// visit goes to the next link of a host, and notes what came of it. It returns false if
// the worker is to end: there is none, or it is the turn of another host.
func (c *crawler) visit(gate *sluice.Gate, h *host) bool {
	if !c.prepare(gate, h) {
		return false
	}
	l, ok := c.take(h)
	if !ok {
		return false
	}
	p := page{URL: l.URL, Depth: l.Depth, From: l.From, First: l.First, Hops: l.Hops, Again: l.Again}
	if p.Skipped = c.forbidden(h, l); p.Skipped != "" {
		return c.note(h, p)
	}
	if !c.await(l.NotBefore) {
		c.release(h, l)
		return false
	}
	old := c.before(&l)
	if old != nil && c.saysUnchanged(old) {
		if p, err := c.copyOf(old, l); err == nil {
			return c.note(h, p)
		}
	}
	a, outcome := c.ask(h.begin, gate, h, &l, l.URL, func(resp *http.Response) int64 { return c.wanted(resp, l) })
	switch outcome {
	case notAsked:
		c.release(h, l)
		return false
	case askAgain:
		return c.again(h, l)
	}
	if a.status == http.StatusNotModified && old != nil {
		var err error
		if p, err = c.copyOf(old, l); err != nil {
			c.mu.Lock()
			c.took(h)
			c.fail(fmt.Errorf("%s: %w", beforeFile, err))
			c.mu.Unlock()
			return false
		}
		p.Sent = a.sent.UTC().Format(time.RFC3339Nano)
		p.WaitMS, p.TookMS = milliseconds(a.waited), milliseconds(a.took)
		p.Attempts = l.Tries + l.Refused + 1
		return c.note(h, p)
	}
	p.answer(a)
	p.Attempts = l.Tries + l.Refused
	if outcome != failed {
		p.Attempts++
		c.read(&p, a, l)
	}
	if c.old != nil {
		p.Refresh = compare(old, p)
	}
	return c.note(h, p)
}

// take takes the next link of a host, and counts that it is asked for.
func (c *crawler) take(h *host) (link, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.next(h)
	if ok {
		c.asking++
		h.asking++
	}
	return l, ok
}

// took undoes that take has counted. It is called with the lock held.
func (c *crawler) took(h *host) {
	c.asking--
	h.asking--
}

// release undoes take.
func (c *crawler) release(h *host, l link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took(h)
	h.putBack(l)
}

// again puts a link behind the others.
func (c *crawler) again(h *host, l link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took(h)
	ch := c.change()
	ch.hosts[h.id] = h
	ch.again(h, l)
	c.fail(ch.commit())
	return c.err == nil
}

// note writes a page, and stores it with its links.
func (c *crawler) note(h *host, p page) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took(h)
	if c.err != nil {
		return false
	}
	ch := c.change()
	if p.Digest != "" {
		first, found, err := get(c.store.db, contentKey(h.id, p.Digest))
		ch.fail(err)
		if found && string(first) != p.URL {
			p.Duplicate = string(first)
		}
	}
	if err := c.out.write(p); err != nil {
		c.fail(err)
		return false
	}
	c.totals.Offset = c.out.size()
	ch.noteLastmod(p.modified)
	if p.Error != "" && len(c.failures) < mostFailures {
		c.failures = append(c.failures, p.URL+": "+p.Error)
	}
	if to := p.Location; to != "" && (p.From == "" || p.First) && !c.follows(keyOf(to)) && len(c.moves) < mostFailures {
		c.moves = append(c.moves, p.URL+" redirects to "+to+": that site is crawled, too")
	}
	ch.visited(p)
	c.fail(ch.commit())
	return c.err == nil
}

// forbidden says why a link is not to be asked for, or "".
func (c *crawler) forbidden(h *host, l link) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Why != "" {
		return h.Why
	}
	if !h.rules.Allowed(target(l.URL)) {
		return "robots.txt: forbidden"
	}
	return ""
}

// await waits for an instant. It returns false if nothing more is to begin.
func (c *crawler) await(t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return c.begin.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.begin.Done():
		return false
	}
}

// wanted is how much to read of an answer: nothing but HTML and sitemaps has links; others are read
// if -accept says so.
func (c *crawler) wanted(resp *http.Response, l link) int64 {
	switch {
	case resp.StatusCode/100 != 2:
		return 0
	case isHTML(resp.Header):
		return c.o.maxBody
	case isSitemap(resp.Header, l):
		return maxSitemap
	case c.o.accepts(resp.Header):
		return c.o.maxBody
	}
	return 0
}

// read reads an answer: where it sends us, and the links of a page or sitemap.
func (c *crawler) read(p *page, a answer, l link) {
	base, err := parseURL(l.URL)
	if err != nil {
		p.Error = err.Error() // it was parsed before
		return
	}
	said := robotsTag(a.header, c.o.token())
	switch {
	case a.status/100 == 3:
		if to, err := location(base, a.header); err == nil {
			p.Location, p.Sitemap = to.String(), l.Sitemap
		}
	case a.status >= 300 || len(a.body) == 0:
	case isHTML(a.header):
		doc := readHTML(a.body, a.header.Get("Content-Type"), base, c.o.token(), c.o.accept != nil)
		p.Title, p.Noindex, p.Unreadable = doc.title, doc.noindex || said.noindex, doc.unreadable
		if p.Canonical = linkHeader(a.header, base); p.Canonical == "" {
			p.Canonical = doc.canonical
		}
		if said.nofollow || doc.nofollow {
			p.Nofollow = append(doc.links, doc.rel...)
		} else {
			p.Links, p.Nofollow = doc.links, doc.rel
		}
		c.keep(p, a.body)
	case isSitemap(a.header, l):
		s, err := readSitemap(a.body, base)
		if err != nil {
			p.Error = "sitemap: " + err.Error()
		}
		p.Links, p.Sitemaps, p.Sitemap, p.Unreadable = s.pages, s.sitemaps, true, s.unreadable
		p.modified = s.modified
	case c.o.accepts(a.header):
		if isCSS(a.header) {
			doc := readCSS(a.body, base)
			p.Links, p.Unreadable = doc.links, doc.unreadable
			if said.nofollow {
				p.Links, p.Nofollow = nil, doc.links
			}
		}
		c.keep(p, a.body)
	}
}

// keep notes the digest of a body and, with -bodies, keeps it.
func (c *crawler) keep(p *page, body []byte) {
	digest := digestOf(body)
	p.Digest = hex.EncodeToString(digest[:])
	if !c.o.bodies {
		return
	}
	if err := c.save(p.Digest, body); err != nil {
		c.mu.Lock()
		c.fail(err)
		c.mu.Unlock()
	}
}

// save keeps a body in a file that is named by its digest.
func (c *crawler) save(digest string, body []byte) error {
	folder := filepath.Join(c.o.dir, bodyFolder, digest[:2])
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, digest), body, 0o666)
}

// mostFailures is how many pages that failed are named at the end.
const mostFailures = 3

// prepare reads robots.txt of h if that is due, and decides what follows. It returns
// false if no more pages of the host are to be fetched yet.
func (c *crawler) prepare(gate *sluice.Gate, h *host) bool {
	c.mu.Lock()
	now := time.Now()
	due := !now.Before(h.RobotsDue)
	if due {
		// Only this call reads them; the others of this host go on by the old rules.
		h.RobotsDue = now.Add(robotsAge)
	}
	c.mu.Unlock()
	if !due {
		return true
	}
	r := c.robots(gate, h)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.again {
		h.RobotsDue = time.Time{}
		if r.about == "" { // not asked
			h.leaving = true
			return false
		}
		if h.RobotsTries++; h.RobotsTries < attempts {
			h.NotBefore = later(h.NotBefore, time.Now().Add(backoff(h.RobotsTries)))
			h.leaving = true
			return false
		}
		// What it allows is not known, so nothing is asked for. Its links are left.
		h.RobotsTries, h.About = 0, r.about
		h.Gone, h.leaving = true, true
		return false
	}
	h.RobotsTries = 0
	if r.rules != nil {
		c.fail(c.addBefore(h)) // first: only with robots.txt it is known that this was done
	}
	ch := c.change()
	ch.hosts[h.id] = h
	h.ready, h.rules, h.About, h.Why, h.CrawlDelay = true, r.rules, r.about, "", 0
	if r.rules == nil {
		h.Why = "robots.txt: " + r.about
	} else {
		ch.fail(ch.batch.Set(hostKeyOf('r', h.id), r.file, nil))
		c.obeyRobots(gate, h)
		if c.o.sitemaps {
			for _, address := range sitemapsOf(r.file, h.Key) {
				ch.add(link{URL: address, From: h.Key + "/robots.txt", Sitemap: true})
			}
		}
	}
	c.fail(ch.commit())
	return c.err == nil
}

// obeyRobots takes over the Crawl-delay.
func (c *crawler) obeyRobots(gate *sluice.Gate, h *host) {
	delay, ok := h.rules.Delay()
	if ok {
		h.About += ", Crawl-delay " + delay.String()
	}
	if delay > c.o.maxDelay && !c.o.slowHosts {
		h.About += " is over -max-delay " + c.o.maxDelay.String() + ": skipped"
		h.Why = "robots.txt: " + h.About
		return
	}
	h.CrawlDelay = delay
	c.owe(gate, h)
}
