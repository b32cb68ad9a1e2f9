package crawl

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// A crawler crawls once.
type crawler struct {
	o         options
	client    *http.Client
	all       *sluice.Gate                                                 // above those of hosts
	gates     *sluice.Keyed[string]                                        // of hosts, by name
	addresses *sluice.Keyed[netip.Addr]                                    // between those
	lookup    func(ctx context.Context, name string) ([]netip.Addr, error) // nil if the addresses of hosts are not known
	during    sync.WaitGroup                                               // workers
	news      chan struct{}                                                // hosts wait that did not

	begin context.Context // requests may start; they wait for that
	calls context.Context // requests may go on

	mu     sync.Mutex // never held while anything waits, but for the store
	store  *store
	out    *sink
	old    *os.File // of pages of the crawl before, or nil
	totals totals
	err    error // why it stopped
	stop   context.CancelFunc

	active    map[hostID]*host
	waiting   waitings
	isWaiting map[hostID]bool
	near      int                // of those that wait, not counting far ones
	asking    int                // pages that are being asked for
	first     map[hostID]bool    // of sites, see siteOf
	failures  []string           // the first pages that failed in this run, and why
	moves     []string           // the first redirects of first pages to other sites
	recent    [1 << 16]addressID // addresses that were seen, as a cache
}

// newCrawler opens the crawl in a directory, which is made if it does not exist. It sends
// requests by transport, which is then its own.
func newCrawler(o options, transport *http.Transport) (*crawler, error) {
	// On a connection that was used before, net/http sends a request again by itself
	// if it is cut: at once, and past the gate. Over HTTP/1 that can be prevented, see get.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.ForceAttemptHTTP2 = false
	transport.MaxIdleConnsPerHost = int(o.perHost)
	transport.MaxIdleConns = int(2 * o.jobs)
	transport.IdleConnTimeout = 15 * time.Second
	c := &crawler{
		o: o,
		client: &http.Client{
			Transport: transport,
			// A redirect is a link: to be seen once, allowed and spaced out.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		news:      make(chan struct{}, 1),
		active:    make(map[hostID]*host),
		isWaiting: make(map[hostID]bool),
		first:     make(map[hostID]bool),
		stop:      func() {},
	}
	if err := c.newGates(); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

const (
	pagesFile   = "pages.jsonl"
	storeFolder = "frontier"
	bodyFolder  = "bodies"
)

// open opens the file of pages and the store, and brings the store up to date.
func (c *crawler) open() error {
	pages, folder := filepath.Join(c.o.dir, pagesFile), filepath.Join(c.o.dir, storeFolder)
	_, noPages := os.Stat(pages)
	_, noStore := storeFS.Stat(folder)
	exists := noPages == nil || noStore == nil
	switch {
	case exists && !c.o.resume && !c.o.refresh:
		return fmt.Errorf("%s %w", c.o.dir, errExists)
	case !exists && len(c.o.seeds) == 0 && !c.hasBefore():
		return fmt.Errorf("%s %w", c.o.dir, errNothing)
	}
	if err := os.MkdirAll(c.o.dir, 0o777); err != nil {
		return err
	}
	var err error
	if c.store, err = openStore(folder); err != nil {
		return err
	}
	if c.o.refresh && !c.o.resume {
		if err := c.rotate(); err != nil {
			return err
		}
	}
	if c.out, err = openSink(pages); err != nil {
		return err
	}
	if _, err := getJSON(c.store.db, totalsKey, &c.totals); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	if c.totals.Version != storeVersion && c.totals.Version != 0 {
		return fmt.Errorf("%s was made by another version of crawler; %s", folder, rebuildHint)
	}
	if c.totals.Offset > c.out.size() {
		// After a power loss the file may have lost more than the store. The file counts,
		// and the store can be made from it.
		if err := c.store.close(); err != nil {
			return err
		}
		if err := storeFS.RemoveAll(folder); err != nil {
			return err
		}
		c.totals = totals{}
		if c.store, err = openStore(folder); err != nil {
			return err
		}
	}
	c.totals.Version = storeVersion
	if err := c.loadBefore(); err != nil {
		return err
	}
	if err := c.replay(); err != nil {
		return err
	}
	if c.totals.Known == 0 && len(c.o.seeds) == 0 {
		return fmt.Errorf("%s %w", c.o.dir, errNothing)
	}
	if c.o.retryFailed {
		if err := c.retryFailed(); err != nil {
			return err
		}
	}
	return c.rebuild()
}

// hasBefore reports whether there is a crawl before.
func (c *crawler) hasBefore() bool {
	_, err := os.Stat(filepath.Join(c.o.dir, beforeFile))
	return err == nil
}

// replay brings the store up to date with the file of pages, which may have pages that the
// store does not know: a page is noted when its line is written.
func (c *crawler) replay() error {
	err := c.store.each([]byte{'f'}, []byte{'f' + 1}, func(key, _ []byte) (bool, error) {
		id := hostID(key[1:])
		c.first[id] = true
		// Stores of an earlier version know hosts here, by their keys, and not sites.
		var h hostRecord
		found, err := getJSON(c.store.db, hostKeyOf('h', id), &h)
		if found {
			c.first[idOf(siteOf(h.Key))] = true
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if c.totals.Offset == 0 {
		if err := c.addFirst(); err != nil {
			return err
		}
	}
	return c.out.each(c.totals.Offset, func(p page, end int64) error {
		ch := c.change()
		ch.visited(p)
		c.totals.Offset = end
		return ch.commit()
	})
}

// addFirst adds the addresses of the command line. They are on disk at once: of what the store
// has, only they cannot be made from the file of pages.
func (c *crawler) addFirst() error {
	ch := c.change()
	for _, u := range c.o.seeds {
		ch.add(link{URL: u.String()})
	}
	if err := ch.commit(); err != nil {
		return err
	}
	return c.store.sync()
}

// rebuild finds the hosts that have links. Those that were given up get another chance.
func (c *crawler) rebuild() error {
	if err := c.addFirst(); err != nil {
		return err
	}
	c.waiting, c.isWaiting, c.near = nil, make(map[hostID]bool), 0
	return c.store.each([]byte{'h'}, []byte{'h' + 1}, func(key, value []byte) (bool, error) {
		h := &host{id: hostID(key[1:])}
		if err := decode(value, &h.hostRecord); err != nil {
			return false, err
		}
		if h.Gone || h.Aside > 0 {
			h.Gone, h.Aside, h.Bad = false, 0, 0
			ch := c.change()
			ch.hosts[h.id] = h
			return true, ch.commit()
		}
		c.wake(h)
		return true, nil
	})
}

// close closes what open has opened.
func (c *crawler) close() error {
	var err error
	if c.out != nil {
		err = c.out.close()
	}
	if c.old != nil {
		c.old.Close() // it was only read
	}
	if c.store != nil {
		if storeErr := c.store.close(); err == nil {
			err = storeErr
		}
	}
	return err
}

// run crawls until there is nothing more to ask for, or nothing more may begin: begin is
// done. What has begun goes on until calls is done. It returns an error if something could
// not be written; then it stops early, too.
func (c *crawler) run(begin, calls context.Context) error {
	c.mu.Lock()
	c.begin, c.stop = context.WithCancel(begin)
	c.calls = calls
	c.mu.Unlock()
	defer c.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		next, more := c.activate()
		c.mu.Unlock()
		if !more {
			break
		}
		due := timer.C
		if next.IsZero() {
			due = nil
		} else {
			timer.Reset(time.Until(next))
		}
		done := c.begin.Done()
		if c.begin.Err() != nil {
			done = nil // the workers end, and say so
		}
		select {
		case <-c.news:
		case <-due:
		case <-done:
		}
	}
	c.during.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// stopped reports that nothing more is to begin. It is called with the lock held.
func (c *crawler) stopped() bool { return c.begin == nil || c.begin.Err() != nil }

// fail ends the crawl with an error, unless it is nil. It is called with the lock held.
func (c *crawler) fail(err error) {
	if err != nil && c.err == nil {
		c.err = err
		c.stop()
	}
}
