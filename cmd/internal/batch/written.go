package batch

import (
	"bufio"
	"encoding/json"
	"hash/maphash"
	"io"
	"sync"

	"github.com/sluice-go/sluice/cmd/internal/queue"
)

// # Which lines of -jsonl need not be remembered?
//
// Those of items that the queue will not deliver again. It delivers an item until it has confirmed what
// it was told. That can take long, but a worker has at most -jobs such items, and it holds them itself.
// What was confirmed comes again only if the queue was killed, or lost power: it writes immediately and
// syncs every 2 minutes, so at worst it forgets those. A job that did 2,000 items per second had 240,000
// lines in that time. They are counted, because while the queue is away no time counts.
//
// Of a file from before, all items up to a number may have been confirmed: the queue knows which. The
// others are kept, because a killed job may have written their lines last, and their leases may end at any
// time.

// rememberedLines is the number of the last lines of this job that are remembered, at least. Twice as many take
// 20 MB.
const rememberedLines = 1 << 18

// written has the fingerprints of items with a line of -jsonl, by their number.
type written struct {
	mu     sync.Mutex
	file   map[int64]uint64 // from before
	recent map[int64]uint64
	before map[int64]uint64 // the ones before recent was begun
}

// read reads the lines of a queue that was made then, except those of items up to a number.
func (w *written) read(lines io.Reader, made string, confirmed int64) {
	w.file = make(map[int64]uint64)
	for r := bufio.NewReader(lines); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var rec record
		if json.Unmarshal(line, &rec) == nil && rec.Queue == made && rec.Seq > confirmed {
			w.file[rec.Seq] = fingerprint(rec.ID, rec.OK)
		}
	}
}

// add adds an item whose line was written.
func (w *written) add(it *queue.Item, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recent == nil || len(w.recent) == rememberedLines {
		w.before, w.recent = w.recent, make(map[int64]uint64)
	}
	w.recent[it.Seq] = fingerprint(it.ID, ok)
}

// has reports whether an item has a line, which says that it is ok, or that it failed.
func (w *written) has(it *queue.Item) (known, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, some := range []map[int64]uint64{w.recent, w.before, w.file} {
		if print, is := some[it.Seq]; is {
			ok = print == fingerprint(it.ID, true)
			return ok || print == fingerprint(it.ID, false), ok
		}
	}
	return false, false
}

// The fingerprint of an item that is done or has failed.
func fingerprint(id string, ok bool) uint64 {
	h := maphash.String(fingerprints, id)
	if ok {
		return h | 1
	}
	return h &^ 1
}

var fingerprints = maphash.MakeSeed()
