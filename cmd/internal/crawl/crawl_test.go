package crawl

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

func seconds(all ...float64) (at []time.Duration) {
	for _, s := range all {
		at = append(at, time.Duration(s*float64(time.Second)).Round(time.Microsecond))
	}
	return at
}

// The built-in site, at exact instants. Nine hosts are found at once, and one of
// them is tried again at random instants: they pass the gate for all hosts so
// quickly that they do not shift each other.
func TestSite(t *testing.T) {
	r := crawl(t, newSite, "-rate", "1000000000/s")
	for _, test := range []struct {
		host                                  string
		pages, failed, missing, forbidden, no int
		delay                                 time.Duration
		about                                 string
		at                                    []time.Duration // nil: not looked at
	}{
		{"start.test", 1, 0, 0, 0, 0, siteDelay, "status 404: all allowed", seconds(0, 0.25)},
		{"fast.test", 15, 0, 0, 1, 0, siteDelay, "2 rules", nil},
		{"slow.test", 7, 0, 0, 0, 0, siteDelay, "0 rules", nil},
		{"busy.test", 7, 0, 0, 0, 3, siteDelay, "status 404: all allowed", nil},
		{"broken.test", 4, 0, 0, 1, 0, siteDelay, "1 rule", seconds(0.25, 0.5, 0.75, 1, 1.25)},
		{"strict.test", 4, 0, 0, 0, 0, time.Second, "0 rules, Crawl-delay 1s", seconds(0.25, 1.25, 2.25, 3.25, 4.25)},
		{"sleepy.test", 0, 0, 0, 1, 0, siteDelay, "0 rules, Crawl-delay 1h0m0s is over -max-delay 30s: skipped", seconds(0.25)},
		{"closed.test", 0, 0, 0, 1, 0, siteDelay, "1 rule", seconds(0.25)},
		{"down.test", 0, 0, 0, 0, 0, siteDelay, "status 500: left", nil},
		{"endless.test", 4, 0, 0, 0, 0, siteDelay, "status 404: all allowed", nil},
	} {
		h, seen := r.host(test.host), r.record.Host(test.host)
		if h.Pages != test.pages || h.Failed != test.failed || h.Missing != test.missing || h.Forbidden != test.forbidden || h.Refused != test.no {
			t.Errorf("%s: %d pages, %d failed, %d missing, %d forbidden, %d times 429", test.host, h.Pages, h.Failed, h.Missing, h.Forbidden, h.Refused)
		}
		if delay := max(siteDelay, h.CrawlDelay); delay != test.delay || h.About != test.about {
			t.Errorf("%s: delay %v, %q", test.host, delay, h.About)
		}
		if err := seen.CheckSpacing(siteDelay); err != nil {
			t.Error(err)
		}
		if h.Requests != len(seen.Requests) {
			t.Errorf("%s: the crawler says %d requests, the server %d", test.host, h.Requests, len(seen.Requests))
		}
		var at []time.Duration
		for i := range test.at {
			at = append(at, seen.Arrivals()[0]+test.at[i]-test.at[0])
		}
		if test.at != nil && !slices.Equal(seen.Arrivals(), at) {
			t.Errorf("%s: requests at %v, want %v", test.host, seen.Arrivals(), at)
		}
	}
	if err := r.record.CheckRetryAfter(); err != nil {
		t.Error(err)
	}
	if len(r.pages) != 46 || r.TooDeep != 1 {
		t.Errorf("%d pages, %d links too deep", len(r.pages), r.TooDeep)
	}
	first := r.pages["http://start.test/"]
	if len(first.Links) != 9 || first.Links[0] != "http://fast.test/" || first.Status != 200 || first.Title != "start.test/" || first.WaitMS != 250 {
		t.Errorf("first page %+v", first)
	}
	if p := r.pages["http://fast.test/moved"]; p.Status != 301 || p.Location != "http://fast.test/1" || p.From != "http://fast.test/" {
		t.Errorf("redirect %+v", p)
	}
	if p := r.pages["http://broken.test/secret"]; p.Skipped != "robots.txt: forbidden" || p.Attempts != 0 {
		t.Errorf("forbidden page %+v", p)
	}
	if p := r.pages["http://busy.test/2"]; p.Depth != 2 {
		t.Errorf("page %+v", p)
	}
}

// Spacing: from start to start, from end to start, by the latency, and several
// in flight. The host takes 300 ms for each page, and none for robots.txt.
func TestSpacing(t *testing.T) {
	for _, test := range []struct {
		args   string
		want   []time.Duration
		atOnce int
	}{
		{"-delay 250ms", seconds(0, 0.25, 0.55, 0.85, 1.15), 1},
		{"-delay 400ms", seconds(0, 0.4, 0.8, 1.2, 1.6), 1},
		{"-delay 250ms -per-host 2", seconds(0, 0.25, 0.55, 0.8, 1.05), 2},
		{"-delay 100ms -per-host 2", seconds(0, 0.1, 0.4, 0.5, 0.7), 2},
		{"-delay 250ms -factor 2", seconds(0, 0.25, 1.15, 2.05, 2.95), 1},
		{"-delay 250ms -factor 100 -max-delay 2s", seconds(0, 0.25, 2.55, 4.85, 7.15), 1},
		{"-delay 250ms -jobs 1 -rate 2/s", seconds(0, 0.5, 1, 1.5, 2), 1},
	} {
		r := crawl(t, site(
			noRobots, sluicetest.Delay(300*millisecond), htmlPage("/1"), htmlPage("/2"), htmlPage("/3"), htmlPage("/", "/1", "/2", "/3"),
		), append(strings.Fields(test.args), "http://a.test/")...)
		if got := r.record.Arrivals(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.args, got, test.want)
		}
		if got := r.record.MostInFlight(); got != test.atOnce {
			t.Errorf("%s: %d in flight, want %d", test.args, got, test.atOnce)
		}
		if h := r.host("a.test"); h.Pages != 4 {
			t.Errorf("%s: %d pages", test.args, h.Pages)
		}
	}
}

// A host that fails quickly is not asked more quickly: the latency of its good
// answers stays in force, and so does the delay.
func TestNeverFasterOnErrors(t *testing.T) {
	for _, fault := range []sluicetest.Layer{
		sluicetest.Status(404), sluicetest.Status(500), sluicetest.Cut(), sluicetest.Garbage("what?"),
	} {
		r := crawl(t, site(
			noRobots, sluicetest.Path("/x", fault), sluicetest.Delay(300*millisecond), htmlPage("/", "/x1", "/x2", "/x3"),
		), "-delay", "250ms", "-factor", "2", "http://a.test/")
		at := r.record.Arrivals()
		if len(at) < 5 {
			t.Fatalf("%d requests", len(at))
		}
		for i := 2; i < len(at); i++ {
			// 600 ms from the end of the request before.
			if gap := at[i] - r.record.Requests[i-1].Ended; gap < 600*millisecond {
				t.Errorf("%v after the end of %v", gap, r.record.Requests[i-1])
			}
		}
	}
}

// Links that were there before robots.txt was read have more than one worker,
// too, once it is.
func TestSeedsOfOneHost(t *testing.T) {
	r := crawl(t, site(noRobots, sluicetest.Delay(3*time.Second), htmlPage("/")), "-per-host", "2", "http://a.test/1", "http://a.test/2", "http://a.test/3")
	if got, want := r.record.Arrivals(), seconds(0, 1, 2, 4); !slices.Equal(got, want) {
		t.Errorf("requests at %v, want %v", got, want)
	}
}

// A redirect leads to a page as far away as itself, and is followed once.
func TestRedirects(t *testing.T) {
	r := crawl(t, site(
		noRobots, sluicetest.Path("/a", sluicetest.Status(302, "Location: b")), sluicetest.Path("/b", sluicetest.Status(307, "Location: /a")),
		sluicetest.Path("/c", sluicetest.Status(301, "Location: http://b.test/")), sluicetest.Path("/d", sluicetest.Status(304)), htmlPage("/"),
	), "-depth", "0", "http://a.test/a", "http://a.test/c", "http://a.test/d")
	if len(r.pages) != 5 || r.Elsewhere != 0 || r.pages["http://a.test/b"].Depth != 0 || r.pages["http://a.test/b"].Location != "http://a.test/a" {
		t.Errorf("pages %+v, %d elsewhere", r.pages, r.Elsewhere)
	}
}

// A server that says nothing remains is not asked before its reset.
func TestNothingRemains(t *testing.T) {
	r := crawl(t, site(
		noRobots, sluicetest.On(1, sluicetest.Header("X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 20")), htmlPage("/a"), htmlPage("/", "/a"),
	), "http://a.test/")
	if got, want := r.record.Arrivals(), seconds(0, 1, 21); !slices.Equal(got, want) {
		t.Errorf("requests at %v, want %v", got, want)
	}
}

// What a host fails with is tried again, at its delay; what it answers is not.
func TestAttempts(t *testing.T) {
	for _, test := range []struct {
		fault    sluicetest.Layer
		attempts int
		status   int
		failed   bool
	}{
		{sluicetest.Status(404), 1, 404, false},
		{sluicetest.Status(403), 1, 403, false},
		{sluicetest.Status(501), 1, 501, false},
		{sluicetest.Status(500), 3, 500, true},
		{sluicetest.Status(503), 3, 503, true},
		{sluicetest.Status(429), 4, 429, true},
		{sluicetest.Garbage("what?"), 3, 0, true},
		{sluicetest.Delay(limits.Never), 3, 0, true},
	} {
		r := crawl(t, site(noRobots, sluicetest.Path("/x", test.fault), htmlPage("/", "/x")), "-timeout", "5s", "http://a.test/")
		p, h := r.pages["http://a.test/x"], r.host("a.test")
		if p.Attempts != test.attempts || p.Status != test.status || (p.Error != "") != test.failed {
			t.Errorf("page %+v", p)
		}
		if (h.Failed == 1) != test.failed || (h.Missing == 1) == test.failed || h.Pages != 1 {
			t.Errorf("%+v: %d failed, %d missing", p, h.Failed, h.Missing)
		}
		if err := r.record.CheckSpacing(time.Second); err != nil {
			t.Error(err)
		}
	}
}

// A host without a name is not looked up three times, nor one whose certificate
// is wrong.
func TestHopeless(t *testing.T) {
	for name, failure := range map[string]error{
		"no such host": &net.DNSError{Err: "no such host", IsNotFound: true}, "connection refused": syscall.ECONNREFUSED,
	} {
		dials := 0
		r := crawlWith(t, crawling{dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			dials++
			return nil, &net.OpError{Op: "dial", Net: network, Err: failure}
		}}, site(noRobots), "http://a.test/")
		if want := map[string]int{"no such host": 1, "connection refused": 3}[name]; dials != want {
			t.Errorf("%s: %d dials", name, dials)
		}
		about := map[string]string{"no such host": "skipped", "connection refused": "left"}[name]
		if h := r.host("a.test"); h.About != "unreachable: "+about+" ("+name+")" {
			t.Errorf("%q", h.About)
		}
		if p := r.pages["http://a.test/"]; (p.Skipped != "") != (name == "no such host") {
			t.Errorf("page %+v", p)
		}
	}
}

func TestLimits(t *testing.T) {
	// A tree: each page has two links to further ones.
	tree := func() *sluicetest.Server {
		var layers []sluicetest.Layer
		for _, p := range []string{"/aa", "/ab", "/ba", "/bb", "/a", "/b"} {
			layers = append(layers, htmlPage(p, p+"a", p+"b"))
		}
		return sluicetest.NewServer(append([]sluicetest.Layer{noRobots}, append(layers, htmlPage("/", "/a", "/b", "http://b.test/"))...)...)
	}
	for _, test := range []struct {
		args                     string
		pages                    int
		left, deep, off, tooMany int64
	}{
		{"-depth 0", 1, 0, 2, 1, 0},
		{"-depth 1", 3, 0, 4, 1, 0},
		{"-depth 2", 7, 0, 8, 1, 0},
		{"-depth 2 -pages 4", 4, 3, 2, 1, 0},
		{"-depth 2 -pages 4 -per-host 3", 4, 3, 2, 1, 0},
		{"-depth 2 -host-pages 5", 5, 2, 4, 1, 0},
		{"-depth 2 -frontier 3", 3, 0, 0, 1, 4},
		{"-depth 1 -span", 4, 0, 4 + 2, 0, 0},
		{"-depth 1 -span -host-pages 2", 3, 1, 2 + 2, 0, 0},
	} {
		r := crawl(t, tree, append(strings.Fields(test.args), "http://a.test/")...)
		if len(r.pages) != test.pages || r.Queued != test.left || r.TooDeep != test.deep || r.Elsewhere != test.off || r.TooMany != test.tooMany {
			t.Errorf("%s: %d pages, %d left, %d too deep, %d elsewhere, %d too many", test.args, len(r.pages), r.Queued, r.TooDeep, r.Elsewhere, r.TooMany)
		}
	}
}

func TestBodies(t *testing.T) {
	big := "<a href=/b>" + strings.Repeat("x", 1000) + "<a href=/c>"
	r := crawl(t, site(
		noRobots,
		sluicetest.Path("/big", sluicetest.Reply(200, big, "Content-Type: text/html")),
		sluicetest.Path("/file", sluicetest.Reply(200, big, "Content-Type: application/zip")),
		sluicetest.Path("/exact", sluicetest.Reply(200, big[:500], "Content-Type: application/xhtml+xml")),
		sluicetest.Path("/error", sluicetest.Reply(404, big, "Content-Type: text/html")),
		htmlPage("/b"), htmlPage("/", "/big", "/file", "/exact", "/error"),
	), "-max-body", "500", "http://a.test/")
	for path, want := range map[string]page{
		"/big":   {Bytes: 500, Cut: true, Links: []string{"http://a.test/b"}},
		"/exact": {Bytes: 500, Links: []string{"http://a.test/b"}},
		"/file":  {},
		"/error": {},
	} {
		got := r.pages["http://a.test"+path]
		if got.Bytes != want.Bytes || got.Cut != want.Cut || !slices.Equal(got.Links, want.Links) {
			t.Errorf("page %+v", got)
		}
	}
	if len(r.pages) != 6 {
		t.Errorf("%d pages", len(r.pages))
	}
}

// Many hosts: none is asked more often than it may be, nor all together.
func TestManyHosts(t *testing.T) {
	const hosts = 300
	r := crawl(t, func() *sluicetest.Server {
		var links []string
		for i := range hosts {
			links = append(links, fmt.Sprintf("http://h%d.test/x", i))
		}
		return sluicetest.NewServer(noRobots, sluicetest.Delay(50*millisecond), htmlPage("/x", "/x1", "/x2"), htmlPage("/", links...))
	}, "-span", "-delay", "2s", "-rate", "100/s", "-jobs", "4", "http://a.test/")
	if len(r.pages) != 1+3*hosts {
		t.Errorf("%d pages", len(r.pages))
	}
	for i := range hosts {
		if err := r.record.Host(fmt.Sprintf("h%d.test", i)).CheckSpacing(2 * time.Second); err != nil {
			t.Error(err)
		}
	}
	if err := r.record.CheckSpacing(10 * millisecond); err != nil {
		t.Error(err)
	}
	if most := r.record.MostInFlight(); most != 4 {
		t.Errorf("%d in flight", most)
	}
}
