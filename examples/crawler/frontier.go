package main

import "net/url"

// A link is an address to go to.
type link struct {
	url   *url.URL // normal
	depth int      // how many links it is away from the first pages
	from  string   // the page that had it first
}

// A frontier is the addresses that were seen and those that are still to be
// asked for, by host. It is guarded by the lock of the crawler.
//
// An address counts as seen when the first link to it is, so its depth is that
// of this link. Hosts are crawled beside one another, and a way found later may
// be shorter; what is then beyond the depth stays so.
type frontier struct {
	o     options
	seen  map[string]bool
	hosts map[string]*host
	first map[string]bool // the hosts of the first pages
	order []*host         // as they were found
	taken int             // pages asked for

	// Why links were not followed.
	tooDeep, tooMany, elsewhere int
}

func newFrontier(o options) *frontier {
	return &frontier{o: o, seen: make(map[string]bool), hosts: make(map[string]*host), first: make(map[string]bool)}
}

// add adds a link unless it was seen before or is not to be followed. It
// returns the host that has got it, or nil.
func (f *frontier) add(l link) *host {
	address, key := l.url.String(), hostKey(l.url)
	switch {
	case f.seen[address]:
		return nil
	case l.depth > f.o.depth:
		f.tooDeep++
		return nil
	case l.from != "" && !f.o.span && !f.first[key]:
		f.elsewhere++
		return nil
	case len(f.seen) >= f.o.frontier:
		f.tooMany++
		return nil
	}
	if l.from == "" {
		f.first[key] = true
	}
	f.seen[address] = true
	h := f.host(key)
	h.queue = append(h.queue, l)
	return h
}

// host returns the host with a key, which it makes if there is none.
func (f *frontier) host(key string) *host {
	h := f.hosts[key]
	if h == nil {
		h = newHost(key, f.o.delay)
		f.hosts[key] = h
		f.order = append(f.order, h)
	}
	return h
}

// next takes the next link of a host from its queue, the oldest one.
func (f *frontier) next(h *host) (l link, ok bool) {
	if len(h.queue) == 0 || f.full(h) {
		return link{}, false
	}
	l, h.queue[0] = h.queue[0], link{}
	h.queue = h.queue[1:]
	return l, true
}

// putBack undoes next.
func (f *frontier) putBack(h *host, l link) { h.queue = append([]link{l}, h.queue...) }

// take counts a page that is going to be asked for. It reports false, and
// counts nothing, if there are enough already.
func (f *frontier) take(h *host) bool {
	if f.full(h) {
		return false
	}
	f.taken++
	h.taken++
	return true
}

// full reports that no more pages of a host are to be asked for.
func (f *frontier) full(h *host) bool {
	return f.taken >= f.o.pages || h.taken >= f.o.hostPages
}

// left returns how many addresses were seen and not gone to.
func (f *frontier) left() (n int) {
	for _, h := range f.order {
		n += len(h.queue)
	}
	return n
}
