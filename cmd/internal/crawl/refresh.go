package crawl

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// With -refresh the pages of a crawl become the pages of the crawl before: beforeFile has their lines,
// and the crawl begins anew. Of each of them the store knows what its host needs to say that it has
// not changed. Pages that no page links to any more, but that are still there, are also asked for.
//
// A page that has not changed gets the line that it had, so that the file of pages is complete. If a
// crawl that refreshes is not finished, the next one that begins takes over the lines before it for
// what it has not come to.

// beforeFile has the lines of the crawl before.
const beforeFile = "pages.before.jsonl"

// What became of a page since the crawl before.
const (
	isNew     = "new"
	changed   = "changed"
	unchanged = "unchanged"
	gone      = "gone"
)

// A before is what the store knows of a page of the crawl before. There are only those that were
// answered well.
type before struct {
	link
	ETag     string    `json:"e,omitempty"`
	Modified string    `json:"m,omitempty"` // the field Last-Modified
	Sent     time.Time `json:"a,omitzero"`
	Digest   string    `json:"x,omitempty"`
	Offset   int64     `json:"o"` // of its line in beforeFile
}

func beforeKey(id addressID) []byte  { return append([]byte{'o'}, id[:]...) }
func lastmodKey(id addressID) []byte { return append([]byte{'l'}, id[:]...) }

// beforeLoaded says that the store knows the pages of beforeFile.
var beforeLoaded = []byte{'b'}

// rotate makes the pages of the crawl the pages of the crawl before. The store must be open, which keeps
// other processes away. It may be interrupted anywhere, and called again.
func (c *crawler) rotate() error {
	pages, old := filepath.Join(c.o.dir, pagesFile), filepath.Join(c.o.dir, beforeFile)
	if _, err := os.Stat(pages); errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing, or it was done
	}
	f, err := os.OpenFile(old+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	has := make(map[addressID]bool)
	for _, name := range []string{pages, old} {
		err = errors.Join(err, eachLine(name, func(p page, _ int64) error {
			if id := addressIDOf(p.URL); name == pages || !has[id] {
				has[id] = true
				return json.NewEncoder(w).Encode(p)
			}
			return nil
		}))
	}
	if err := errors.Join(err, w.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keeping the crawl before: %w", err)
	}
	if err := os.Rename(old+".new", old); err != nil {
		return err
	}
	if err := c.store.db.DeleteRange([]byte{0}, []byte{0xff}, pebble.Sync); err != nil {
		return err
	}
	return os.Remove(pages)
}

// eachLine calls f for the pages of a file, if there is one, with the offset of each.
func eachLine(name string, f func(p page, offset int64) error) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	end, err := lastLine(file, info.Size())
	if err != nil {
		return err
	}
	at := int64(0)
	return (&sink{f: file, end: end}).each(0, func(p page, next int64) error {
		defer func() { at = next }()
		return f(p, at)
	})
}

// loadBefore tells the store about the pages of the crawl before, unless it knows them.
func (c *crawler) loadBefore() (err error) {
	name := filepath.Join(c.o.dir, beforeFile)
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if c.old, err = os.Open(name); err != nil {
		return err
	}
	_, known, err := get(c.store.db, beforeLoaded)
	if err != nil {
		return err
	}
	b := c.store.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	noSeeds := len(c.o.seeds) == 0
	err = eachLine(name, func(p page, offset int64) error {
		if noSeeds && p.From == "" {
			if u, err := parseURL(p.URL); err == nil {
				c.o.seeds = append(c.o.seeds, u)
			}
		}
		if known || p.Status == 0 || p.Status >= 400 || p.Error != "" {
			return nil
		}
		old := before{
			link: link{URL: p.URL, Depth: p.Depth, From: p.From, Hops: p.Hops, First: p.First, Sitemap: p.Sitemap},
			ETag: p.ETag, Modified: p.Modified, Digest: p.Digest, Offset: offset,
		}
		old.Sent, _ = time.Parse(time.RFC3339Nano, p.Sent)
		if err := setJSON(b, beforeKey(addressIDOf(p.URL)), old); err != nil {
			return err
		}
		if b.Len() < 1<<20 {
			return nil
		}
		err := b.Commit(pebble.NoSync)
		b.Reset()
		return err
	})
	if err != nil || known {
		return err
	}
	return errors.Join(b.Set(beforeLoaded, nil, nil), b.Commit(pebble.NoSync))
}

// addBefore adds the pages of the crawl before that are those of a host: sitemaps first, which may
// say that others have not changed.
func (c *crawler) addBefore(h *host) error {
	if c.old == nil {
		return nil
	}
	due := h.RobotsDue
	h.RobotsDue = time.Time{} // as long as not all are added
	defer func() { h.RobotsDue = due }()
	for _, sitemaps := range []bool{true, false} {
		ch, n := c.change(), 0
		err := c.store.each(hostKeyOf('o', h.id), hostKeyOf('o', h.id.next()), func(_, value []byte) (bool, error) {
			var old before
			if err := decode(value, &old); err != nil {
				return false, err
			}
			if old.Sitemap != sitemaps {
				return true, nil
			}
			ch.hosts[h.id] = h
			ch.add(old.link)
			if n++; n%1000 > 0 {
				return true, nil
			}
			err := ch.commit()
			ch = c.change()
			return true, err
		})
		if err := errors.Join(err, ch.commit()); err != nil {
			return err
		}
	}
	return nil
}

// before returns what is known of a page from the crawl before, or nil. The link then asks only for
// what has changed since then, unless it is a sitemap: it is read for the times that it has.
func (c *crawler) before(l *link) *before {
	if c.old == nil {
		return nil
	}
	old := new(before)
	found, err := getJSON(c.store.db, beforeKey(addressIDOf(l.URL)), old)
	if err != nil || !found {
		return nil // as a page that is new
	}
	if !old.Sitemap && !l.Sitemap {
		l.etag, l.modified = old.ETag, old.Modified
	}
	return old
}

// saysUnchanged reports whether a sitemap has said that a page was not changed since it was read.
func (c *crawler) saysUnchanged(old *before) bool {
	value, found, err := get(c.store.db, lastmodKey(addressIDOf(old.URL)))
	if err != nil || !found || len(value) != 8 || old.Sent.IsZero() {
		return false
	}
	return time.Unix(int64(binary.BigEndian.Uint64(value)), 0).Before(old.Sent)
}

// noteLastmod stores when pages of a sitemap were changed.
func (ch *change) noteLastmod(modified map[string]time.Time) {
	if ch.c.old == nil {
		return
	}
	for address, t := range modified {
		ch.fail(ch.batch.Set(lastmodKey(addressIDOf(address)), binary.BigEndian.AppendUint64(nil, uint64(t.Unix())), nil))
	}
}

// lastmod reads a W3C date and time, as sitemaps have it. A date is its end.
func lastmod(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	t, err := time.Parse(time.DateOnly, text)
	return t.Add(36 * time.Hour), err == nil // in the zone in which it ends last
}

// copyOf returns the line that a page had, for a link to it now.
func (c *crawler) copyOf(old *before, l link) (page, error) {
	line, err := bufio.NewReaderSize(&readerAt{c.old, old.Offset}, 64<<10).ReadBytes('\n')
	if err != nil {
		return page{}, err
	}
	var p page
	if err := decode(line, &p); err != nil {
		return page{}, err
	}
	p.Depth, p.From, p.First, p.Hops = l.Depth, l.From, l.First, l.Hops
	p.Refresh, p.Bytes, p.Attempts, p.WaitMS, p.TookMS, p.Duplicate = unchanged, 0, 0, 0, 0, ""
	return p, nil
}

// readerAt reads a file from an offset on.
type readerAt struct {
	f  *os.File
	at int64
}

func (r *readerAt) Read(b []byte) (int, error) {
	n, err := r.f.ReadAt(b, r.at)
	r.at += int64(n)
	return n, err
}

// compare says what became of a page since the crawl before, or "" if that is not known.
func compare(old *before, p page) string {
	switch {
	case p.Error != "" || p.Skipped != "":
		return ""
	case old == nil && p.Status < 400:
		return isNew
	case old == nil:
		return ""
	case p.Status >= 400:
		return gone
	case p.Digest != "" && p.Digest == old.Digest:
		return unchanged
	}
	return changed
}

// retryFailed makes the pages that failed, as far as their last lines say, links to be visited.
func (c *crawler) retryFailed() error {
	failed := make(map[string]page)
	err := c.out.each(0, func(p page, _ int64) error {
		if delete(failed, p.URL); p.Error != "" {
			failed[p.URL] = p
		}
		return nil
	})
	if err != nil {
		return err
	}
	for address, p := range failed {
		ch := c.change()
		h, id := ch.host(keyOf(address)), addressIDOf(address)
		if value, found, err := get(ch.batch, seenKey(id)); err != nil || found && len(value) > 0 {
			ch.fail(err) // it is a link already
		} else {
			ch.uncount(h, p)
			ch.enqueue(h, id, link{URL: p.URL, Depth: p.Depth, From: p.From, First: p.First, Hops: p.Hops, Sitemap: p.Sitemap, Again: true})
		}
		if err := ch.commit(); err != nil {
			return err
		}
	}
	return nil
}

// uncount takes back what count has counted of a page that failed.
func (ch *change) uncount(h *host, p page) {
	t := &ch.c.totals
	h.Taken--
	t.Taken--
	h.Failed--
	t.Failed--
	t.Bytes -= int64(p.Bytes)
}
