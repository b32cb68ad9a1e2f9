package main

import (
	"context"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// A crawler crawls once.
type crawler struct {
	o      options
	client *http.Client
	gates  *sluice.Keyed[string]
	out    *sink
	during sync.WaitGroup // workers

	mu       sync.Mutex // never held while anything waits
	frontier *frontier
}

// newCrawler returns a crawler that sends requests by transport, which is then
// its own, and writes pages to out.
func newCrawler(o options, transport *http.Transport, out io.Writer) (*crawler, error) {
	// On a connection that was used before, net/http sends a request again by
	// itself if it is cut: at once, and past the gate. With a second between
	// requests a new connection for each costs little.
	transport.DisableKeepAlives = true
	c := &crawler{
		o: o,
		client: &http.Client{
			Transport: transport,
			// A redirect is a link: to be seen once, allowed and spaced out.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		out:      newSink(out),
		frontier: newFrontier(o),
	}
	var err error
	c.gates, err = newGates(o, func(key string) time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.frontier.host(key).interval
	})
	return c, err
}

// run crawls from the seeds on, until there is nothing more to ask for or ctx
// is done. It returns an error if the pages could not be written; then it stops
// early, too.
func (c *crawler) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.out.onError = cancel
	var first []link
	for _, u := range c.o.seeds {
		first = append(first, link{url: u})
	}
	c.add(ctx, first)
	c.during.Wait()
	return c.out.err()
}

// add adds links to the frontier and wakes a worker for them.
func (c *crawler) add(ctx context.Context, links []link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range links {
		if h := c.frontier.add(l); h != nil {
			c.hire(ctx, h)
		}
	}
}

// hire starts workers for h if it has more links than workers, as many as may
// be in flight; but only one before robots.txt was read. It is called with the
// lock held.
func (c *crawler) hire(ctx context.Context, h *host) {
	most := 1
	if h.ready {
		most = int(min(c.o.perHost, int64(len(h.queue)+h.workers)))
	}
	for ; h.workers < most; h.workers++ {
		c.during.Go(func() { c.work(ctx, h) })
	}
}

// work goes to the links of h, one after the other, until there are none.
func (c *crawler) work(ctx context.Context, h *host) {
	err := c.gates.Use(h.key, func(gate *sluice.Gate) error {
		for {
			c.mu.Lock()
			l, ok := c.frontier.next(h)
			if !ok {
				h.workers--
				c.mu.Unlock()
				return nil
			}
			c.mu.Unlock()
			if !c.visit(ctx, gate, h, l) {
				c.mu.Lock()
				c.frontier.putBack(h, l)
				h.workers--
				c.mu.Unlock()
				return nil
			}
		}
	})
	if err != nil {
		panic(err) // the same config has made other gates
	}
}

// visit fetches one link, and writes the result. It returns false if there is
// no result: ctx is done, or there are enough pages.
func (c *crawler) visit(ctx context.Context, gate *sluice.Gate, h *host, l link) bool {
	c.prepare(ctx, gate, h)
	if ctx.Err() != nil {
		return false
	}
	p := page{URL: l.url.String(), Depth: l.depth, From: l.from}
	c.mu.Lock()
	p.Skipped = h.why
	if p.Skipped == "" && !h.rules.Allowed(target(l.url)) {
		p.Skipped = "robots.txt: forbidden"
	}
	if p.Skipped != "" {
		h.forbidden++
		c.mu.Unlock()
		c.out.write(p)
		return true
	}
	asks := c.frontier.take(h)
	c.mu.Unlock()
	if !asks {
		return false
	}

	a, err := c.fetch(ctx, gate, h, l.url, c.wanted)
	if err != nil && ctx.Err() != nil {
		return false
	}
	p.answer(a)
	c.mu.Lock()
	switch {
	case err != nil:
		h.failed++
	case a.status >= 400:
		h.missing++
	default:
		h.pages++
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		p.Error = err.Error()
	case a.status/100 == 3:
		if to, err := location(l.url, a.header); err == nil {
			p.Location = to.String()
			// As far away as the page that it stands for.
			c.add(ctx, []link{{url: to, depth: l.depth, from: p.URL}})
		}
	case a.status < 300 && isHTML(a.header):
		doc := read(a.body, l.url)
		p.Title = doc.title
		var links []link
		for _, u := range doc.links {
			p.Links = append(p.Links, u.String())
			links = append(links, link{url: u, depth: l.depth + 1, from: p.URL})
		}
		c.add(ctx, links)
	}
	c.out.write(p)
	return true
}

// wanted is how much to read of a page: nothing but HTML has links.
func (c *crawler) wanted(resp *http.Response) int64 {
	if resp.StatusCode/100 == 2 && isHTML(resp.Header) {
		return c.o.maxBody
	}
	return 0
}

// isHTML reports whether an answer is a page.
func isHTML(header http.Header) bool {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return kind == "text/html" || kind == "application/xhtml+xml"
}
