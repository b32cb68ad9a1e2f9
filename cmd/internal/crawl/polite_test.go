package crawl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// However a host is spelled, and whatever the scheme and port, it gets one request per delay.
func TestPolite_OneHost(t *testing.T) {
	links := []string{
		"http://bücher.test/1", "http://xn--bcher-kva.test/2", "http://BÜCHER.test./3", "http://b%C3%BCcher.test/4",
		"https://bücher.test/5", "https://xn--bcher-kva.test/6", "http://bücher.test:8080/7",
	}
	home := sluicetest.When(func(_ int, r *http.Request) bool { return r.Host == "a.test" }, htmlPage("/", links...))
	r := crawl(t, site(noRobots, home, htmlPage("/")), "-span", "-per-host", "4", "http://a.test/")
	if len(r.pages) != 1+len(links) || r.Hosts != 4 {
		t.Errorf("%d pages of %d hosts: %s", len(r.pages), r.Hosts, r.addresses())
	}
	books := r.record.Filter(func(q sluicetest.Request) bool { return strings.HasPrefix(q.Host, "xn--bcher-kva.test") })
	if len(books.Requests) != 3+len(links) { // each authority has a robots.txt
		t.Errorf("%d requests", len(books.Requests))
	}
	if err := books.CheckSpacing(time.Second); err != nil {
		t.Error(err)
	}
}

// A Crawl-delay counts for http and https, whichever robots.txt has it, and also after the
// crawl is continued.
func TestPolite_CrawlDelayOfBoth(t *testing.T) {
	secure := func(_ int, r *http.Request) bool { return r.TLS != nil }
	srv := site(
		sluicetest.When(secure, robotsTxt("Crawl-delay: 5")), noRobots,
		htmlPage("/1", "/3"), htmlPage("/2", "/4"), htmlPage("/3"), htmlPage("/4"), htmlPage("/", "/1", "https://a.test/2"),
	)
	r := crawlWith(t, crawling{stop: 12 * time.Second}, srv, "http://a.test/")
	evenly := func(r result, from int) {
		t.Helper()
		at := r.record.Arrivals()[from:]
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < 5*time.Second {
				t.Errorf("%v after request %d: %v", gap, i, r.record.Requests)
			}
		}
	}
	secured := 2 + slices.IndexFunc(r.record.Requests[2:], func(q sluicetest.Request) bool { return q.Path == "/robots.txt" })
	if secured < 2 {
		t.Fatal("https was not asked")
	}
	evenly(r, secured)
	if len(r.pages) > 4 {
		t.Errorf("%s before it was stopped", r.addresses())
	}
	r = crawlWith(t, crawling{dir: r.dir}, srv, "-resume")
	if len(r.pages) < 5 {
		t.Error(r.addresses())
	}
	evenly(r, 0)
}

// What is owed to a host by https is owed by http, too, and the other way round. But not the
// time until it is tried again because it does not work.
func TestPolite_Owe(t *testing.T) {
	until := time.Now().Add(time.Hour)
	for _, test := range []struct {
		from, to string
		is       hostRecord
		why      string // "" for no pause
	}{
		{"https://a.test", "http://a.test", hostRecord{}, "the delay between requests"},
		{"http://a.test", "https://a.test", hostRecord{}, "the delay between requests"},
		{"https://a.test", "http://a.test", hostRecord{Far: true, Last: "429 Too Many Requests"}, "429 Too Many Requests"},
		{"https://a.test", "http://a.test", hostRecord{Aside: 1}, ""},
		{"https://a.test", "http://a.test", hostRecord{RobotsTries: 1}, ""},
	} {
		o := mustParse(t, "http://a.test/")
		o.dir = t.TempDir()
		c, err := newCrawler(o, new(http.Transport))
		must(t, err)
		ch := c.change()
		h := ch.host(test.from)
		test.is.Key, test.is.CrawlDelay, test.is.NotBefore = test.from, 5*time.Second, until
		h.hostRecord = test.is
		must(t, ch.commit())
		must(t, c.gates.Use("a.test", func(gate *sluice.Gate) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.owe(gate, &host{hostRecord: hostRecord{Key: test.to}})
			s := gate.Stats()
			paused := !s.PausedUntil.IsZero() && s.PausedUntil.Sub(until).Abs() < time.Minute
			if s.Rate != rateOf(5*time.Second) || s.PausedWhy != test.why || paused != (test.why != "") {
				t.Errorf("%+v: rate %v, paused until %v, want %v (%s)", test, s.Rate, s.PausedUntil, until, s.PausedWhy)
			}
			return nil
		}))
		must(t, c.close())
	}
}

// So it counts for all ports.
func TestPolite_CrawlDelayOfPorts(t *testing.T) {
	other := sluicetest.When(func(_ int, r *http.Request) bool { return r.Host == "a.test:8080" }, noRobots)
	home := htmlPage("/", "/1", "/2", "/3", "http://a.test:8080/1")
	r := crawl(t, site(other, robotsTxt("Crawl-delay: 5"), home, htmlPage("/1"), htmlPage("/2"), htmlPage("/3")), "-span", "http://a.test/")
	if err := r.record.CheckSpacing(5 * time.Second); err != nil || r.Hosts != 2 || r.Pages < 7 {
		t.Errorf("%v, %d pages of %d hosts", err, r.Pages, r.Hosts)
	}
}

// One that asks by https for more time than -max-wait is left by http, too, and nothing
// waits for it: neither a request that is due already, nor a crawl that is continued.
func TestPolite_TooLongForBoth(t *testing.T) {
	secure := func(_ int, r *http.Request) bool { return r.TLS != nil && r.URL.Path != "/robots.txt" }
	srv := site(noRobots, sluicetest.When(secure, sluicetest.Status(429, "Retry-After: 7200")),
		htmlPage("/", "https://a.test/s", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"))
	r := crawl(t, srv, "-per-host", "2", "http://a.test/")
	if r.took > time.Minute || r.Far != 2 || r.Queued == 0 || r.status(nil) != cli.ExitStopped {
		t.Errorf("took %v, %d wait, %d links left, status %d", r.took, r.Far, r.Queued, r.status(nil))
	}
	const says = "left for -resume: http://a.test: it wants to be left alone until 2000-01-01 02:00:0"
	if hints := strings.Join(r.hints(nil, cli.ExitStopped), "\n"); !strings.Contains(hints, says) || strings.Count(hints, "longer than -max-wait 1m0s: 429 Too Many Requests") != 2 {
		t.Error(hints)
	}
	if r = crawlWith(t, crawling{dir: r.dir}, srv, "-resume", "http://a.test/new"); r.took != 0 || len(r.record.Requests) != 0 {
		t.Errorf("took %v: %v", r.took, r.record.Requests)
	}
}

// Hosts of one IP address together get ten times what one of them gets, or as -per-address
// says; hosts whose address is not known are not held up.
func TestPolite_OneAddress(t *testing.T) {
	const hosts = 30
	var links []string
	for i := range hosts {
		links = append(links, fmt.Sprintf("http://h%d.test/", i))
	}
	lookup := func(_ context.Context, name string) ([]netip.Addr, error) {
		switch {
		case name == "a.test":
			return []netip.Addr{netip.MustParseAddr("192.0.2.9")}, nil
		case name == "h0.test":
			return nil, errors.New("no such host")
		case name == "h1.test": // the least one counts
			return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("192.0.2.1")}, nil
		case name == "h2.test":
			return []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	home := sluicetest.When(func(_ int, r *http.Request) bool { return r.Host == "a.test" }, htmlPage("/", links...))
	for args, want := range map[string]struct {
		gap  time.Duration
		most int
	}{
		"":                              {100 * time.Millisecond, 10},
		"-per-address 1":                {time.Second, 1},
		"-per-address 4 -per-host 2":    {250 * time.Millisecond, 8},
		"-per-address 20":               {50 * time.Millisecond, 20},
		"-per-address 3 -delay 0":       {0, 3},
		"-per-address 3 -delay 2ns":     {0, 3},
		"-per-address 20 -jobs 5":       {50 * time.Millisecond, 5},
		"-per-address 0 -jobs 1000":     {0, hosts - 1},
		"-per-address 1000 -delay 60ms": {60 * time.Microsecond, hosts - 1},
	} {
		r := crawlWith(t, crawling{lookup: lookup}, site(noRobots, sluicetest.Delay(3*time.Second), home, htmlPage("/")), append(strings.Fields("-span -jobs 100 "+args), "http://a.test/")...)
		if len(r.pages) != 1+hosts {
			t.Errorf("%s: %d pages", args, len(r.pages))
		}
		together := r.record.Filter(func(q sluicetest.Request) bool { return q.Host != "a.test" && q.Host != "h0.test" })
		if err := together.CheckSpacing(want.gap); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if got := together.MostInFlight(); got != want.most {
			t.Errorf("%s: %d in flight, want %d", args, got, want.most)
		}
	}
}

// One host alone is never held up by its address.
func TestPolite_OneAddressOneHost(t *testing.T) {
	var links []string
	for i := range 50 {
		links = append(links, fmt.Sprintf("/%d", i))
	}
	home := sluicetest.When(func(_ int, r *http.Request) bool { return r.URL.Path == "/" }, htmlPage("/", links...))
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	for _, args := range []string{"-delay 20ms", "-delay 20ms -per-host 4", "-delay 0 -per-host 4", "-delay 20ms -per-address 1 -per-host 4"} {
		srv := site(noRobots, sluicetest.Delay(50*time.Millisecond), home, htmlPage("/"))
		with := crawlWith(t, crawling{lookup: lookup}, srv, append(strings.Fields(args), "http://a.test/")...)
		without := crawl(t, srv, append(strings.Fields(args), "http://a.test/")...)
		if with.took != without.took || len(with.pages) != 51 {
			t.Errorf("%s: %v with a gate for the address, %v without", args, with.took, without.took)
		}
	}
}
