package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live"
)

// isOwn reports whether r is for a page of the proxy itself.
func isOwn(r *http.Request) bool {
	name, _ := cutPath(r.URL.EscapedPath())
	return slices.Contains(own, name)
}

// serveOwn serves the pages of the proxy itself.
func (p *proxy) serveOwn(w http.ResponseWriter, r *http.Request) *problem {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &problem{status: http.StatusMethodNotAllowed, title: "Want GET or HEAD", proxy: "http_request_denied"}
	case r.URL.Path == "/healthz":
		return p.health(w)
	case r.URL.Path == "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		text := bufio.NewWriter(w)
		p.writeMetrics(text)
		_ = text.Flush()
		return nil
	case r.URL.Path == "/live":
		p.page.ServeHTTP(w, r)
		return nil
	}
	return &problem{status: http.StatusNotFound, title: "No such page", proxy: "destination_not_found"}
}

// health says whether the proxy takes calls.
func (p *proxy) health(w http.ResponseWriter) *problem {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	text := "ok\n"
	if p.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = "draining\n"
	}
	_, _ = io.WriteString(w, text)
	return nil
}

// shown yields the rows of the page: all gates, and the tenants whose calls wait behind their own.
func (p *proxy) shown(yield func(live.Gate) bool) {
	for _, u := range p.set.Load().table.upstreams {
		for g := range live.FromTransport(u.transport) {
			if g.Control = nil; !yield(g) {
				return
			}
		}
	}
	var tenants []live.Gate
	p.turns.each(func(key turnKey, calls int64) {
		if calls > 1 { // one of them is in the gate
			name := fmt.Sprintf("%s, tenant %s", key.gate, strings.TrimSpace(key.who.Class+" "+key.who.Name))
			tenants = append(tenants, live.Gate{Stats: sluice.Stats{Name: name, Parent: key.gate, Waiting: calls - 1, LimitedBy: limits.ByParent}})
		}
	})
	for _, g := range tenants {
		if !yield(g) {
			return
		}
	}
}
