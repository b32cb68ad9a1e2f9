package live

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"
)

// writeWithin is the time that a viewer may take to read a message. Then it is dropped, and its
// page connects again if it is still there.
const writeWithin = 10 * time.Second

// A viewer is a page that watches.
type viewer struct {
	query query
	next  chan []byte   // the newest message that was not sent yet
	gone  chan struct{} // closed when it must leave
}

// A message is sent to viewers with each sample.
type message struct {
	Start    string `json:"start"` // names the Handler
	At       int64  `json:"at"`    // in Unix milliseconds
	Every    int64  `json:"every"` // milliseconds
	Total    string `json:"total"`
	Matching int    `json:"matching"`
	// and "gates", an array of view
}

// serveEvents streams messages until the viewer leaves or the handler is closed.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		return
	}
	v := &viewer{query: parseQuery(r.URL.Query()), next: make(chan []byte, 1), gone: make(chan struct{})}
	if !h.enter(v) {
		http.Error(w, "live: too many viewers, or the program is about to end", http.StatusServiceUnavailable)
		return
	}
	defer h.remove(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for nginx
	to := http.NewResponseController(w)
	for {
		select {
		case text := <-v.next:
			// A server's WriteTimeout, or its absence, is for ordinary responses.
			_ = to.SetWriteDeadline(time.Now().Add(writeWithin))
			if _, err := w.Write(text); err != nil {
				return
			}
			if err := to.Flush(); err != nil {
				return
			}
		case <-v.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// enter adds a viewer, and begins to sample if it is the first.
func (h *Handler) enter(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= cmp.Or(h.MaxViewers, mostViewers) {
		return false
	}
	h.viewers[v] = struct{}{}
	if h.ticking == nil {
		h.ticking = make(chan struct{})
		go h.tick(h.ticking)
	}
	h.fresh(time.Now())
	v.next <- h.encode(v.query)
	return true
}

// remove takes a viewer away. The ticker stops when there are no viewers left.
func (h *Handler) remove(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	if len(h.viewers) == 0 && h.ticking != nil {
		close(h.ticking)
		h.ticking = nil
		h.sampler.forget()
	}
}

// tick samples the gates until stop is closed.
func (h *Handler) tick(stop <-chan struct{}) {
	ticker := time.NewTicker(h.every())
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			h.publish(now, stop)
		case <-stop:
			return
		}
	}
}

// publish samples the gates and gives each viewer its message. Viewers with the same query
// share one. A viewer that has not sent the message before misses it.
func (h *Handler) publish(now time.Time, stop <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-stop: // the last viewer left before the lock was free
		return
	default:
	}
	h.sampler.take(now)
	texts := make(map[query][]byte)
	for v := range h.viewers {
		text, ok := texts[v.query]
		if !ok {
			text = h.encode(v.query)
			texts[v.query] = text
		}
		select {
		case <-v.next:
		default:
		}
		v.next <- text // there is room: only this goroutine and enter fill it, with the lock
	}
}

// fresh samples the gates unless that was just done. h.mu is held.
func (h *Handler) fresh(now time.Time) {
	if now.Sub(h.sampler.at) >= h.every()/2 {
		h.sampler.take(now)
	}
}

// encode returns the event for a query, from the last sample. h.mu is held.
func (h *Handler) encode(q query) []byte {
	chosen, matching := q.choose(&h.sampler)
	head := marshal(message{
		Start:    h.start,
		At:       h.sampler.at.UnixMilli(),
		Every:    h.every().Milliseconds(),
		Total:    h.sampler.total,
		Matching: matching,
	})
	size := len("data: ") + len(head) + len(`,"gates":[`) + len("]}\n\n")
	for _, row := range chosen {
		size += len(h.encoded(row)) + 1
	}
	text := append(make([]byte, 0, size), "data: "...)
	text = append(text, head[:len(head)-1]...)
	text = append(text, `,"gates":[`...)
	for i, row := range chosen {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, h.encoded(row)...)
	}
	return append(text, "]}\n\n"...)
}

// encoded returns the view of a row, which is encoded once for each sample. h.mu is held.
func (h *Handler) encoded(row *history) []byte {
	if row.text == nil {
		row.text = marshal(viewOf(row, h.sampler.at, h.changes()))
	}
	return row.text
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // impossible: finite numbers and strings
		panic(err)
	}
	return text
}

// views returns the views that match a query. h.mu is held.
func (h *Handler) views(q query) (views []view, matching int) {
	chosen, matching := q.choose(&h.sampler)
	views = make([]view, 0, len(chosen))
	for _, row := range chosen {
		views = append(views, viewOf(row, h.sampler.at, h.changes()))
	}
	return views, matching
}

// Close ends the streams of all viewers and serves no more of them, so that
// http.Server.Shutdown need not wait for them:
//
//	server.RegisterOnShutdown(page.Close)
//
// The page itself is still served. Closing twice is harmless.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for v := range h.viewers {
		close(v.gone)
	}
}
