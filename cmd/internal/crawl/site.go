package crawl

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// start is the first page of the built-in site.
func start() *url.URL { return &url.URL{Scheme: "http", Host: "start.test", Path: "/"} }

// newSite returns a server with ten hosts, each of them difficult in another
// way.
func newSite() *sluicetest.Server {
	// A host has a page / with links to /1 to /n and those beside, and layers
	// before them.
	type host struct {
		name   string
		robots string // "" for none
		pages  int
		beside []string
		before []sluicetest.Layer
	}
	hosts := []host{
		{name: "start.test", beside: []string{
			"http://fast.test/", "http://slow.test/", "http://busy.test/", "http://broken.test/", "http://strict.test/",
			"http://sleepy.test/", "http://closed.test/", "http://down.test/", "http://endless.test/day/1",
		}},
		{name: "fast.test", robots: "User-agent: *\nDisallow: /private/\nAllow: /private/open\n", pages: 12,
			beside: []string{"/private/a", "/private/open", "/moved"},
			before: []sluicetest.Layer{sluicetest.Path("/moved", sluicetest.Status(301, "Location: /1"))}},
		{name: "slow.test", pages: 6, robots: "User-agent: *\nDisallow:\n",
			before: []sluicetest.Layer{sluicetest.Delay(400 * time.Millisecond)}},
		// Says 429 to what is faster than five in two seconds.
		{name: "busy.test", pages: 6, before: []sluicetest.Layer{sluicetest.Enforce(sluicetest.Limit{
			Count: 5, Per: 2 * time.Second, HeaderStyle: sluicetest.RetryAfter,
		})}},
		// Half of the lines make no sense. The other half counts.
		{name: "broken.test", pages: 3, beside: []string{"/secret"},
			robots: "Disallow: /early\nUser-agent: *\nCrawl-delay: soon\nDisallow : /secret # why?\nwelcome!\n"},
		{name: "strict.test", pages: 3, robots: "User-agent: *\nCrawl-delay: 1\n"},
		{name: "sleepy.test", pages: 3, robots: "User-agent: *\nCrawl-delay: 3600\n"},
		{name: "closed.test", robots: "User-agent: *\nDisallow: /\n"},
		{name: "down.test", before: []sluicetest.Layer{sluicetest.Status(500)}},
		{name: "endless.test"},
	}
	var site []sluicetest.Layer
	for _, h := range hosts {
		layers := h.before
		if h.robots == "" {
			layers = append(layers, sluicetest.Path("/robots.txt", sluicetest.Status(404)))
		} else {
			layers = append(layers, sluicetest.Path("/robots.txt", sluicetest.Reply(200, h.robots, "Content-Type: text/plain")))
		}
		if h.name == "endless.test" {
			layers = append(layers, sluicetest.Handler(http.HandlerFunc(endless)))
		}
		links := h.beside
		for i := range h.pages {
			links = append(links, fmt.Sprintf("/%d", i+1))
		}
		root := func(_ int, r *http.Request) bool { return r.URL.Path == "/" }
		layers = append(layers, sluicetest.When(root, pageOf(h.name, "/", links...)), pageOf(h.name, " one of many", "/"))
		site = append(site, sluicetest.Host(h.name, layers...))
	}
	return sluicetest.NewServer(site...)
}

// pageOf answers with a page of links.
func pageOf(host, path string, links ...string) sluicetest.Layer {
	var body strings.Builder
	fmt.Fprintf(&body, "<!doctype html><title>%s%s</title>\n", host, path)
	for _, link := range links {
		fmt.Fprintf(&body, "<p><a href=%q>%s</a>\n", link, link)
	}
	return sluicetest.Reply(200, body.String(), "Content-Type: text/html; charset=utf-8")
}

// endless is a calendar: each day has a link to the next.
func endless(w http.ResponseWriter, r *http.Request) {
	var day int
	if _, err := fmt.Sscanf(r.URL.Path, "/day/%d", &day); err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><title>Day %d</title><a href="/day/%d">tomorrow</a>`, day, day+1)
}

// A loopback is the built-in site on a socket of the loopback interface, so
// that what is measured there has passed a real network stack.
type loopback struct {
	server   *sluicetest.Server
	http     *http.Server
	listener net.Listener
	done     chan error
}

// serve begins to serve the built-in site.
func serve() (*loopback, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	site := newSite()
	l := &loopback{server: site, http: &http.Server{Handler: site}, listener: listener, done: make(chan error, 1)}
	go func() { l.done <- l.http.Serve(listener) }()
	return l, nil
}

func (l *loopback) address() string { return l.listener.Addr().String() }

// dial connects to the site, whatever the address is: so its hosts need no
// names.
func (l *loopback) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, l.address())
}

// close ends the site, and waits until it has ended.
func (l *loopback) close() {
	_ = l.http.Close()
	<-l.done
	l.server.Close()
}
