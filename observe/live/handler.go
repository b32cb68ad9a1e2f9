package live

import (
	"cmp"
	"crypto/rand"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A Handler serves the page, under any path. It must be made by [New], and is safe for use by
// multiple goroutines once its fields are set.
//
// A program can change a gate as well, by a POST of a JSON object to the same path, with the header
// fields Content-Type, application/json, and Sluice-Token. name is the name that the page shows:
//
//	{"name": "api", "do": "pause", "for": "1m"}
//	{"name": "api", "do": "resume"}
//	{"name": "api", "do": "rate", "rate": "5/s"}
//	{"name": "api", "do": "concurrency", "limit": 8}
//
// The answer is a JSON object: "said" is a text, and "undo", if there is one, the change that takes
// this one back, without its name.
type Handler struct {
	// Title is the heading of the page. Empty means the name of the program.
	Title string

	// Every is the time between two samples while there are viewers, at least 100 ms. 0 means a
	// second.
	Every time.Duration

	// MaxViewers is the maximum number of simultaneous viewers; further ones get the status 503. 0
	// means 100.
	MaxViewers int

	// Token, if set, lets those who enter it on the page pause and resume gates, and change rates
	// and calls in flight; pages of other origins cannot. One of fewer than 16 bytes changes nothing.
	Token string

	start  string // names this Handler: after a restart of the program it is another
	origin *http.CrossOriginProtection

	mu      sync.Mutex
	sampler sampler
	viewers map[*viewer]struct{}
	closed  bool
	ticking chan struct{} // closed to end the ticker; nil if there is none
}

// New returns a Handler that shows gates and, without a Token, changes nothing. It panics if a
// sequence is nil.
func New(gates ...iter.Seq[Gate]) *Handler {
	if slices.ContainsFunc(gates, func(source iter.Seq[Gate]) bool { return source == nil }) {
		panic("live: a sequence of gates is nil")
	}
	return &Handler{
		start:   rand.Text()[:8],
		origin:  http.NewCrossOriginProtection(),
		sampler: sampler{sources: gates},
		viewers: make(map[*viewer]struct{}),
	}
}

func (h *Handler) title() string { return cmp.Or(h.Title, "Gates of "+filepath.Base(os.Args[0])) }

func (h *Handler) every() time.Duration {
	return max(100*time.Millisecond, cmp.Or(h.Every, time.Second))
}

// changes reports whether a token can change gates. A short one could be guessed.
func (h *Handler) changes() bool { return len(h.Token) >= leastToken }

const (
	leastToken  = 16 // bytes
	mostViewers = 100
)

// policy lets the page load only files that this handler serves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page, its script and style, its events, and changes.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		h.serveChange(w, r)
		return
	default:
		header.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "live: method not allowed", http.StatusMethodNotAllowed)
		return
	}
	q := r.URL.Query()
	switch {
	case q.Has("events"):
		h.serveEvents(w, r)
	case q.Has("asset"):
		serveAsset(w, r, q.Get("asset"))
	default:
		h.servePage(w, r)
	}
}
