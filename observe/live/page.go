package live

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"time"
)

var (
	//go:embed assets/live.html
	pageText string
	//go:embed assets/live.css
	styleText string
	//go:embed assets/live.js
	scriptText string
	//go:embed assets/icon.svg
	iconText string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// assets are the files that the page loads, by ?asset=.
var assets = map[string]struct{ kind, text string }{
	"css":  {"text/css; charset=utf-8", styleText},
	"js":   {"text/javascript; charset=utf-8", scriptText},
	"icon": {"image/svg+xml", iconText},
}

func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	serve(w, r, a.kind, []byte(a.text))
}

func serve(w http.ResponseWriter, r *http.Request, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// servePage writes the page as it is now. Its script keeps it so.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request) {
	type order struct {
		Key, Name string
		Selected  bool
	}
	var page struct {
		Title, Search, Total, At string
		Orders                   []order
		Gates                    []view
		Empty                    view
		Matching                 int
		Control                  bool
	}
	q := parseQuery(r.URL.Query())
	for _, o := range orders {
		page.Orders = append(page.Orders, order{o.key, o.name, o.key == q.sort})
	}
	h.mu.Lock()
	h.fresh(time.Now())
	page.Gates, page.Matching = h.views(q)
	page.Total = h.sampler.total
	page.At = h.sampler.at.Format("15:04:05")
	h.mu.Unlock()
	page.Title, page.Search, page.Control = h.title(), shorten(r.URL.Query().Get("q")), h.changes()

	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, page); err != nil { // impossible: it is our own
		http.Error(w, "live: "+err.Error(), http.StatusInternalServerError)
		return
	}
	serve(w, r, "text/html; charset=utf-8", text.Bytes())
}
