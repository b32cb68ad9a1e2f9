package crawl

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

// What follows from robots.txt, or from there being none.
func TestRobots(t *testing.T) {
	robots := func(layers ...sluicetest.Layer) sluicetest.Layer { return sluicetest.Path("/robots.txt", layers...) }
	file := "User-agent: *\nDisallow: /a\n"
	for _, test := range []struct {
		name    string
		layer   sluicetest.Layer
		about   string
		pages   int // of / and /a
		skipped string
		asked   int // for robots.txt
	}{
		{"there", robots(sluicetest.Reply(200, file)), "1 rule", 1, "robots.txt: forbidden", 1},
		{"empty", robots(sluicetest.Reply(200, "")), "0 rules", 2, "", 1},
		{"404", robots(sluicetest.Status(404)), "status 404: all allowed", 2, "", 1},
		{"403", robots(sluicetest.Status(403)), "status 403: all allowed", 2, "", 1},
		{"500", robots(sluicetest.Status(500)), "status 500: left", 0, "", 3},
		{"501", robots(sluicetest.Status(501)), "status 501: skipped", 0, "robots.txt: status 501: skipped", 1},
		{"503 once", robots(sluicetest.First(1, sluicetest.Status(503)), sluicetest.Reply(200, file)), "1 rule", 1, "robots.txt: forbidden", 2},
		{"429", robots(sluicetest.Status(429)), "status 429: left", 0, "", 3},
		{"cut off", robots(sluicetest.CutBody(10), sluicetest.Reply(200, file)), "unreachable: left (unexpected EOF)", 0, "", 3},
		{"never", robots(sluicetest.Delay(limits.Never)), "unreachable: left (no answer within -timeout)", 0, "", 3},
		{"redirected", robots(sluicetest.Status(301, "Location: /other.txt")), "1 rule", 1, "robots.txt: forbidden", 1},
		{"in a circle", robots(sluicetest.Status(302, "Location: /robots.txt")), "more than 5 redirects: skipped", 0, "robots.txt: more than 5 redirects: skipped", 6},
		{"nowhere", robots(sluicetest.Status(302)), "status 302, and no Location: skipped", 0, "robots.txt: status 302, and no Location: skipped", 1},
		{"to no page", robots(sluicetest.Status(302, "Location: ftp://x.test/")), "status 302, and want http://host/… or https://host/…: skipped", 0,
			"robots.txt: status 302, and want http://host/… or https://host/…: skipped", 1},
	} {
		r := crawl(t, site(test.layer, sluicetest.Path("/other.txt", sluicetest.Reply(200, file)), htmlPage("/a"), htmlPage("/", "/a")), "http://a.test/")
		h := r.host("a.test")
		if h.About != test.about || h.Pages != test.pages {
			t.Errorf("%s: %q, %d pages", test.name, h.About, h.Pages)
		}
		if left := strings.Contains(h.About, ": left"); left != (h.Queued == 1) || left && r.status(nil) != cli.ExitStopped {
			t.Errorf("%s: %d left, status %d", test.name, h.Queued, r.status(nil))
		}
		page := "http://a.test/a"
		if test.pages == 0 {
			page = "http://a.test/"
		}
		if got := r.pages[page].Skipped; got != test.skipped {
			t.Errorf("%s: skipped %q", test.name, got)
		}
		asked := r.record.Filter(func(q sluicetest.Request) bool { return q.Path == "/robots.txt" })
		if len(asked.Requests) != test.asked {
			t.Errorf("%s: asked %d times", test.name, len(asked.Requests))
		}
		if err := r.record.CheckSpacing(time.Second); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A file that is elsewhere is asked for there, at that host's pace, and five
// redirects are followed.
func TestRobotsElsewhere(t *testing.T) {
	for redirects, want := range map[int]string{5: "1 rule", 6: "more than 5 redirects: skipped"} {
		r := crawl(t, func() *sluicetest.Server {
			var layers []sluicetest.Layer
			for i := range redirects {
				path := "/robots.txt"
				if i > 0 {
					path = fmt.Sprintf("/%d.txt", i)
				}
				to := fmt.Sprintf("Location: http://b.test/%d.txt", i+1)
				layers = append(layers, sluicetest.Path(path, sluicetest.Status(302, to)))
			}
			last := fmt.Sprintf("/%d.txt", redirects)
			return sluicetest.NewServer(append(layers, sluicetest.Path(last, sluicetest.Reply(200, "User-agent: *\nDisallow: /a")), htmlPage("/", "/a", "http://b.test/x"))...)
		}, "http://a.test/")
		if h := r.host("a.test"); h.About != want {
			t.Errorf("%d redirects: %q", redirects, h.About)
		}
		if got := len(r.record.Host("b.test").Requests); got != 5 {
			t.Errorf("%d redirects: %d requests to b.test", redirects, got)
		}
		if err := r.record.Host("b.test").CheckSpacing(time.Second); err != nil {
			t.Error(err)
		}
		// A host that only had the file is not crawled for that.
		if _, ok := r.pages["http://b.test/x"]; ok {
			t.Error("b.test was crawled")
		}
	}
}

func TestCrawlDelay(t *testing.T) {
	for _, test := range []struct {
		args, file string
		delay      time.Duration
		pages      int
		about      string
	}{
		{"", "Crawl-delay: 3", 3 * time.Second, 2, "0 rules, Crawl-delay 3s"},
		{"", "Crawl-delay: 0.5", time.Second, 2, "0 rules, Crawl-delay 500ms"}, // ours is longer
		{"", "Crawl-delay: 0", time.Second, 2, "0 rules, Crawl-delay 0s"},
		{"", "Crawl-delay: abc", time.Second, 2, "0 rules"},
		{"", "Crawl-delay: 30", 30 * time.Second, 2, "0 rules, Crawl-delay 30s"},
		{"", "Crawl-delay: 31", time.Second, 0, "0 rules, Crawl-delay 31s is over -max-delay 30s: skipped"},
		{"-slow-hosts", "Crawl-delay: 31", 31 * time.Second, 2, "0 rules, Crawl-delay 31s"},
		{"-slow-hosts", "Crawl-delay: 600", 10 * time.Minute, 2, "0 rules, Crawl-delay 10m0s"},
		{"-slow-hosts -factor 2", "Crawl-delay: 600", 10 * time.Minute, 2, "0 rules, Crawl-delay 10m0s"},
		{"-max-delay 10m", "Crawl-delay: 600", 10 * time.Minute, 2, "0 rules, Crawl-delay 10m0s"},
	} {
		r := crawl(t, site(robotsTxt(test.file), htmlPage("/a"), htmlPage("/", "/a")), append(strings.Fields(test.args), "http://a.test/")...)
		h := r.host("a.test")
		if max(time.Second, h.CrawlDelay) != test.delay && test.pages > 0 || h.Pages != test.pages || h.About != test.about {
			t.Errorf("%q: delay %v, %d pages, %q", test.file, h.CrawlDelay, h.Pages, h.About)
		}
		want := []time.Duration{0}
		for i := range test.pages {
			want = append(want, time.Duration(i+1)*test.delay)
		}
		if got := r.record.Arrivals(); !slices.Equal(got, want) {
			t.Errorf("%q: requests at %v, want %v", test.file, got, want)
		}
	}
}

// When it is old the file is read again, and what it says by then counts.
func TestRobotsAge(t *testing.T) {
	defer func(age time.Duration) { robotsAge = age }(robotsAge)
	robotsAge = 24 * time.Minute // otherwise the store looks at its disk for a day
	r := crawl(t, site(
		sluicetest.Path("/robots.txt", sluicetest.On(1, robotsTxt("Disallow: /x\nCrawl-delay: 600"))),
		sluicetest.Path("/robots.txt", sluicetest.Status(404)),
		htmlPage("/", "/x1", "/a", "/b", "/x2", "/c"), htmlPage("/"),
	), "-max-delay", "10m", "-slow-hosts", "http://a.test/")
	var asked []time.Duration
	for _, q := range r.record.Requests {
		if q.Path == "/robots.txt" {
			asked = append(asked, q.Arrived)
		}
	}
	// Pages at 10 m and 20 m; the file is due with the next link.
	if want := []time.Duration{0, 30 * time.Minute}; !slices.Equal(asked, want) {
		t.Errorf("robots.txt at %v, want %v", asked, want)
	}
	if r.pages["http://a.test/x1"].Skipped == "" || r.pages["http://a.test/x2"].Skipped != "" {
		t.Errorf("pages %+v", r.pages)
	}
	// The delay that it asked for counted up to then.
	if got, want := r.record.Arrivals()[4:], []time.Duration{40 * time.Minute, 40*time.Minute + time.Second, 40*time.Minute + 2*time.Second}; !slices.Equal(got, want) {
		t.Errorf("then requests at %v, want %v", got, want)
	}
}

// The name in the User-Agent is the one that the file is read for.
func TestAgent(t *testing.T) {
	r := crawl(t, site(
		sluicetest.Path("/robots.txt", sluicetest.Reply(200, "User-agent: my-bot\nDisallow: /a\nUser-agent: *\nDisallow: /b")),
		htmlPage("/a"), htmlPage("/b"), htmlPage("/", "/a", "/b"),
	), "-agent", "My-Bot/2 (x)", "http://a.test/")
	if r.pages["http://a.test/a"].Skipped == "" || r.pages["http://a.test/b"].Skipped != "" {
		t.Errorf("pages %+v", r.pages)
	}
	for _, q := range r.record.Requests {
		if got := q.Header.Get("User-Agent"); got != "My-Bot/2 (x)" {
			t.Errorf("User-Agent %q", got)
		}
	}
}

// A host that has the file of another and asks for a longer wait than -max-wait is not active,
// and has no workers that could leave.
func TestRobotsElsewhere_TooLong(t *testing.T) {
	r := crawl(t, func() *sluicetest.Server {
		return sluicetest.NewServer(
			sluicetest.Path("/robots.txt", sluicetest.Status(302, "Location: http://b.test/r.txt")),
			sluicetest.Path("/r.txt", sluicetest.Status(429, "Retry-After: 7200")),
			htmlPage("/"))
	}, "http://a.test/")
	if h := r.host("a.test"); h.About != "status 429: left" {
		t.Errorf("%q", h.About)
	}
	asked := r.record.Host("b.test")
	if err := asked.CheckSpacing(2 * time.Hour); err != nil || len(asked.Requests) < 2 {
		t.Errorf("%v, %d requests to b.test", err, len(asked.Requests))
	}
}
