package crawl

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A change is what one page, or one attempt, changes in the store. All of it is stored,
// or nothing. It is made and committed with the lock of the crawler held.
type change struct {
	c     *crawler
	batch *pebble.Batch
	hosts map[hostID]*host
	fresh []addressID // which are not recent before the change is stored
	err   error       // the first one; the rest of the change is then void
}

func (c *crawler) change() *change {
	return &change{c: c, batch: c.store.db.NewIndexedBatch(), hosts: make(map[hostID]*host)}
}

// host returns the host of a key, which it makes if there is none. What is changed in it
// is stored with the change.
func (ch *change) host(key string) *host {
	id := idOf(key)
	h := ch.hosts[id]
	if h == nil {
		h = ch.c.active[id]
	}
	if h == nil {
		h = &host{id: id}
		found, err := getJSON(ch.c.store.db, hostKeyOf('h', id), &h.hostRecord)
		ch.fail(err)
		if !found {
			h.Key = key
			ch.c.totals.Hosts++
		}
	}
	ch.hosts[id] = h
	return h
}

func (ch *change) fail(err error) {
	if ch.err == nil {
		ch.err = err
	}
}

// add adds a link to the frontier, unless it was seen before or is not to be followed.
//
// An address counts as seen when the first link to it is, so its depth is that of this
// link. Hosts are crawled beside one another, and a way found later may be shorter; what
// is then beyond the depth stays so.
func (ch *change) add(l link) {
	c, t := ch.c, &ch.c.totals
	key := keyOf(l.URL)
	first := l.first()
	if first {
		ch.first(key)
	}
	switch {
	case !first && !l.Sitemap && !c.follows(key):
		t.Elsewhere++
		return
	case !first && !l.Sitemap && !c.o.wanted(l.URL):
		t.Excluded++
		return
	}
	id := addressIDOf(l.URL)
	if ch.seen(id) {
		return
	}
	switch {
	case l.Depth > c.o.depth:
		t.TooDeep++
		return
	case l.Hops > mostHops:
		t.TooManyHops++
		return
	case t.Known >= c.o.frontier:
		t.TooMany++
		return
	}
	t.Known++
	ch.fresh = append(ch.fresh, id)
	ch.enqueue(ch.host(key), id, l)
}

// mostHops is how many redirects, and canonical addresses, are followed in a row. wget
// follows 20 redirects, as browsers do; colly and net/http 10.
const mostHops = 10

// follows reports whether links to a host are followed.
func (c *crawler) follows(key string) bool {
	return c.o.span || c.first[idOf(siteOf(key))] || c.o.inDomains(nameOf(key))
}

// first notes that links to the site of a host are followed also without -span.
func (ch *change) first(key string) {
	if id := idOf(siteOf(key)); !ch.c.first[id] {
		ch.c.first[id] = true
		ch.fail(ch.batch.Set(hostKeyOf('f', id), nil, nil))
	}
}

// seen reports whether an address is known. Most links of a page are to addresses that
// many pages link to: those are remembered, and need not be looked up.
func (ch *change) seen(id addressID) bool {
	if ch.c.recent[binary.LittleEndian.Uint16(id[14:])] == id {
		return true
	}
	_, found, err := get(ch.batch, seenKey(id))
	ch.fail(err)
	if found {
		ch.fresh = append(ch.fresh, id)
	}
	return found
}

// enqueue puts a link at the end of the queue of its host.
func (ch *change) enqueue(h *host, id addressID, l link) {
	place := h.Tail
	h.Tail++
	h.Queued++
	ch.c.totals.Queued++
	ch.fail(ch.batch.Set(seenKey(id), binary.AppendUvarint(nil, place+1), nil))
	ch.fail(setJSON(ch.batch, queueKey(h.id, place), l))
}

// dequeue takes an address out of the queue of its host. It returns false if the address
// was visited before.
func (ch *change) dequeue(h *host, id addressID) bool {
	value, found, err := get(ch.batch, seenKey(id))
	ch.fail(err)
	if !found {
		ch.c.totals.Known++ // the store has lost it
		return true
	}
	at, n := binary.Uvarint(value)
	if n <= 0 {
		return false
	}
	place := at - 1
	ch.fail(ch.batch.Delete(queueKey(h.id, place), nil))
	h.Queued--
	ch.c.totals.Queued--
	h.busy = slices.DeleteFunc(h.busy, func(p uint64) bool { return p == place })
	h.Head = h.head()
	return true
}

// head is the first place of the queue that is not done.
func (h *host) head() uint64 {
	head := h.Head
	if h.workers > 0 {
		head = h.cursor
	}
	if len(h.window) > 0 {
		head = h.window[0].place
	}
	for _, p := range h.busy {
		head = min(head, p)
	}
	return head
}

// again puts a link behind the others of its host.
func (ch *change) again(h *host, l link) {
	id := addressIDOf(l.URL)
	if ch.dequeue(h, id) {
		ch.enqueue(h, id, l)
	}
}

// visited notes a page, with the links that it has. It may be noted before.
func (ch *change) visited(p page) {
	id := addressIDOf(p.URL)
	h, t := ch.host(keyOf(p.URL)), &ch.c.totals
	if !ch.dequeue(h, id) {
		if !p.Again {
			return
		}
		ch.uncount(h, p) // the store was made again, and has seen that it failed
	}
	first := p.From == "" || p.First
	if first { // as the store knows, unless it was lost
		ch.first(h.Key)
	}
	ch.fail(ch.batch.Set(seenKey(id), nil, nil)) // visited
	ch.count(h, p)
	if p.Digest != "" && p.Duplicate == "" {
		ch.fail(ch.batch.Set(contentKey(h.id, p.Digest), []byte(p.URL), nil))
	}
	// A redirect, and an address that the page names as its own, are as far away as the
	// page that they stand for.
	if p.Location != "" && p.Location != p.URL {
		ch.add(link{URL: p.Location, Depth: p.Depth, From: p.URL, Hops: p.Hops + 1, First: first, Sitemap: p.Sitemap})
	}
	if p.Canonical != "" && p.Canonical != p.URL {
		ch.add(link{URL: p.Canonical, Depth: p.Depth, From: p.URL, Hops: p.Hops + 1})
	}
	t.Nofollow += int64(len(p.Nofollow))
	t.Unreadable += int64(p.Unreadable)
	if p.Duplicate != "" {
		t.Duplicates++
		return // its links are the links of the other one
	}
	for _, to := range p.Links {
		ch.add(link{URL: to, Depth: p.Depth + 1, From: p.URL})
	}
	for _, to := range p.Sitemaps {
		ch.add(link{URL: to, Depth: p.Depth, From: p.URL, Sitemap: true})
	}
}

// count counts a page.
func (ch *change) count(h *host, p page) {
	t := &ch.c.totals
	if p.Skipped != "" {
		h.Forbidden++
		t.Forbidden++
		return
	}
	h.Taken++
	t.Taken++
	t.Bytes += int64(p.Bytes)
	switch p.Refresh {
	case isNew:
		t.New++
	case changed:
		t.Changed++
	case unchanged:
		t.Unchanged++
	case gone:
		t.Vanished++
	}
	switch {
	case p.Error != "":
		h.Failed++
		t.Failed++
	case p.Status >= 400:
		h.Missing++
		t.Missing++
	default:
		h.Pages++
		t.Pages++
		if p.Status/100 == 3 {
			t.Redirects++
		}
	}
}

// commit stores the change, and gets hosts with new links to work.
func (ch *change) commit() error {
	for id, h := range ch.hosts {
		ch.fail(setJSON(ch.batch, hostKeyOf('h', id), h.hostRecord))
	}
	ch.fail(setJSON(ch.batch, totalsKey, ch.c.totals))
	if ch.err != nil {
		return ch.err
	}
	if err := ch.store(); err != nil {
		return err
	}
	for _, id := range ch.fresh {
		ch.c.recent[binary.LittleEndian.Uint16(id[14:])] = id
	}
	for _, h := range ch.hosts {
		ch.c.wake(h)
	}
	return ch.batch.Close()
}

// store hands the change to pebble. When it cannot write its log, as on a full disk, pebble
// panics with the error, and keeps its locks: the store cannot even be closed then.
func (ch *change) store() error {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); ok && errors.As(err, new(*fs.PathError)) {
				fatal("the store: " + err.Error())
			}
			panic(r)
		}
	}()
	return ch.batch.Commit(pebble.NoSync)
}
