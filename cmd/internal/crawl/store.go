package crawl

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store is what the crawl knows, on disk: the addresses that were seen, those that are
// still to be visited, the hosts, and digests of contents. It is an index of the file of
// pages, and may be behind that file: see replay. So its writes need not be synced.
//
//	s host address  an address was seen: its place in the queue, nothing if it was visited
//	q host place    a link to be visited
//	h host          a hostRecord
//	r host          robots.txt, as it was answered
//	f site          the crawl began at this site
//	c host digest   the address of the first page of this host with this content
//	m               the totals
//	o host address  a page of the crawl before, see refresh.go
//	l host address  when a sitemap says that a page was changed
//	b               the pages of the crawl before are known
//
// Keys of addresses begin with their host, because the links of a page mostly go to its
// own host: they are near each other, and the cache has them.
type store struct {
	db   *pebble.DB
	lock *pebble.Lock
}

// A hostID stands for scheme, host and port. Of a million hosts two have the same with a
// probability of 3e-8.
type hostID [8]byte

func idOf(key string) (id hostID) {
	sum := sha256.Sum256([]byte(key))
	copy(id[:], sum[:])
	return id
}

// addressID stands for an address: 8 bytes for its host, and 8 for itself. Of ten million
// addresses of one host two have the same with a probability of 3e-6; then one of them
// is not visited.
type addressID [16]byte

func addressIDOf(address string) (id addressID) {
	host := idOf(keyOf(address))
	sum := sha256.Sum256([]byte(address))
	copy(id[:], host[:])
	copy(id[8:], sum[:])
	return id
}

func seenKey(id addressID) []byte           { return append([]byte{'s'}, id[:]...) }
func hostKeyOf(kind byte, id hostID) []byte { return append([]byte{kind}, id[:]...) }
func contentKey(id hostID, digest string) []byte {
	return append(hostKeyOf('c', id), digest...)
}

func queueKey(id hostID, place uint64) []byte {
	return binary.BigEndian.AppendUint64(hostKeyOf('q', id), place)
}

var totalsKey = []byte{'m'}

// The memory that the store uses, together with that of compactions about 150 MB.
const (
	memTable   = 8 << 20  // what was written last; there are two or three
	blockCache = 64 << 20 // blocks of files, the memTables included
	openFiles  = 256
)

// storeFS is where the store is. Tests have it in memory.
var storeFS vfs.FS = vfs.Default

// openStore opens a store, or makes one. It returns an error if another process has it.
func openStore(dir string) (*store, error) {
	if err := storeFS.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, storeFS)
	switch {
	case errors.As(err, new(*fs.PathError)): // it is not the lock
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: another crawler is at work here; wait until it has ended, or give another -dir (%w)", dir, err)
	}
	db, err := openDB(dir, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &store{db, lock}, nil
}

// rebuildHint is what to do about a store that cannot be read.
const rebuildHint = "to repair it, delete the folder " + storeFolder + " and continue with -resume and the same addresses: it is made again from " + pagesFile

func openDB(dir string, lock *pebble.Lock) (*pebble.DB, error) {
	o := &pebble.Options{
		FS: storeFS, Lock: lock,
		MemTableSize: memTable, CacheSize: blockCache, MaxOpenFiles: openFiles,
		Logger: silent{}, FormatMajorVersion: pebble.FormatNewest,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most addresses are looked up once, and not there
	}
	db, err := pebble.Open(dir, o)
	if err != nil && (!errors.As(err, new(*fs.PathError)) || errors.Is(err, fs.ErrNotExist)) { // and not a full disk
		return nil, fmt.Errorf("%s is damaged: %w; %s", dir, err, rebuildHint)
	}
	return db, err
}

// silent keeps pebble from printing what it does in the background. Its errors come back
// from calls.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { fatal(fmt.Sprintf("the store: "+format, args...)) }

// fatal ends the program when the store cannot go on, such as when the disk is full. It must not
// return. What has a line in the file of pages is kept.
var fatal = func(why string) { panic(why) }

// sync waits until what was stored is on the disk.
func (s *store) sync() error { return s.db.LogData(nil, pebble.Sync) }

func (s *store) close() error { return errors.Join(s.db.Close(), s.lock.Close()) }

// get returns a copy of a value, or false.
func get(r pebble.Reader, key []byte) ([]byte, bool, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = bytes.Clone(value)
	return value, true, closer.Close()
}

// getJSON decodes a value. It reports whether there is one.
func getJSON(r pebble.Reader, key []byte, to any) (bool, error) {
	value, ok, err := get(r, key)
	if err != nil || !ok {
		return false, err
	}
	return true, json.Unmarshal(value, to)
}

func setJSON(b *pebble.Batch, key []byte, from any) error {
	value, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return b.Set(key, value, nil)
}

// each calls f for the keys from lower up to upper, excluded, until f returns false.
func (s *store) each(lower, upper []byte, f func(key, value []byte) (bool, error)) (err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok; ok = iter.Next() {
		if more, err := f(iter.Key(), iter.Value()); err != nil || !more {
			return err
		}
	}
	return nil
}

// queue returns up to n links of a host, from a place on.
func (s *store) queue(id hostID, from uint64, n int) ([]link, error) {
	var links []link
	err := s.each(queueKey(id, from), hostKeyOf('q', id.next()), func(key, value []byte) (bool, error) {
		var l link
		if err := json.Unmarshal(value, &l); err != nil {
			return false, err
		}
		l.place = binary.BigEndian.Uint64(key[len(key)-8:])
		links = append(links, l)
		return len(links) < n, nil
	})
	return links, err
}

// next returns the ID behind id, for the upper bound of a range.
func (id hostID) next() hostID {
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(id[:])+1)
	return id
}
