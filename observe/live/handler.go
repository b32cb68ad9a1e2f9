package live

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config configures [NewWith]. The zero Config is valid.
type Config struct {
	// Title is the heading of the page. Empty means the name of the program.
	Title string

	// Every is the time between two samples while there are viewers. 0 means a second; less
	// than 100 ms is an error.
	Every time.Duration

	// MaxViewers is the maximum number of simultaneous viewers; further ones get the status 503. 0
	// means 100.
	MaxViewers int

	// Token, if set, lets those who enter it on the page pause and resume gates, and change rates
	// and calls in flight. It must have at least 16 bytes. Changes are accepted from the page
	// itself and from programs, see [Handler], not from pages of other origins.
	Token string
}

// A Handler serves the page. It must be made by [New] or [NewWith], and is safe for use by multiple
// goroutines. It may be served under any path: all that the page loads is there, with a query.
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
	cfg    Config
	start  string   // names this Handler: after a restart of the program it is another
	digest [32]byte // of the token
	origin *http.CrossOriginProtection

	mu      sync.Mutex
	sampler sampler
	viewers map[*viewer]struct{}
	closed  bool
	ticking chan struct{} // closed to end the ticker; nil if there is none
}

// New returns a Handler that shows gates and changes nothing.
func New(gates ...iter.Seq[Gate]) *Handler {
	h, err := NewWith(Config{}, gates...)
	if err != nil { // impossible
		panic(err)
	}
	return h
}

// NewWith returns a Handler with a Config.
func NewWith(cfg Config, gates ...iter.Seq[Gate]) (*Handler, error) {
	switch {
	case cfg.Every != 0 && cfg.Every < 100*time.Millisecond:
		return nil, fmt.Errorf("live: Every is %v, which is less than 100ms", cfg.Every)
	case cfg.MaxViewers < 0:
		return nil, fmt.Errorf("live: negative MaxViewers %d", cfg.MaxViewers)
	case cfg.Token != "" && len(cfg.Token) < 16:
		return nil, errors.New("live: the Token has fewer than 16 bytes")
	}
	for _, source := range gates {
		if source == nil {
			return nil, errors.New("live: a sequence of gates is nil")
		}
	}
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.MaxViewers == 0 {
		cfg.MaxViewers = 100
	}
	if cfg.Title == "" {
		cfg.Title = "Gates of " + filepath.Base(os.Args[0])
	}
	return &Handler{
		cfg:     cfg,
		start:   rand.Text()[:8],
		digest:  sha256.Sum256([]byte(cfg.Token)),
		origin:  http.NewCrossOriginProtection(),
		sampler: sampler{sources: gates},
		viewers: make(map[*viewer]struct{}),
	}, nil
}

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
