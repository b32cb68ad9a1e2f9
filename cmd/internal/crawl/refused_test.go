package crawl

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/sluicetest"
)

// One page that always answers 429 costs its host the wait that it asks for, once.
func TestRefusedPage(t *testing.T) {
	var links []string
	for i := range 25 {
		links = append(links, fmt.Sprintf("/p%d", i))
	}
	r := crawl(t, site(
		noRobots, sluicetest.Path("/bad", sluicetest.Status(429, "Retry-After: 10")), htmlPage("/p"), htmlPage("/", append([]string{"/bad"}, links...)...),
	), "-delay", "20ms", "http://a.test/")
	// /bad is asked for at 40 ms. Then the pages go, the last at 10.52 s, and /bad is asked
	// for again: it alone is left to be waited for.
	want := seconds(0, 0.02, 0.04)
	for i := range 25 {
		want = append(want, seconds(10.04+0.02*float64(i))...)
	}
	want = append(want, seconds(10.54, 20.54, 30.54)...)
	if got := r.record.Arrivals(); !slices.Equal(got, want) {
		t.Errorf("requests at\n%v, want\n%v", got, want)
	}
	h := r.host("a.test")
	if h.Refused != 4 || h.Pages != 26 || h.Failed != 1 || r.pages["http://a.test/bad"].Error != "429 Too Many Requests" {
		t.Errorf("%d refused, %d pages, %d failed", h.Refused, h.Pages, h.Failed)
	}
}

// A server that allows fewer requests than we would make gets as many as it allows, and
// no page is lost.
func TestRefusedHost(t *testing.T) {
	for _, limit := range []sluicetest.Limit{
		{Count: 2, Per: time.Second, HeaderStyle: sluicetest.RetryAfter},
		{Quota: 20, Window: 10 * time.Second, HeaderStyle: sluicetest.RetryAfter},
	} {
		var links []string
		for i := range 199 {
			links = append(links, fmt.Sprintf("/p%d", i))
		}
		r := crawl(t, site(noRobots, sluicetest.Enforce(limit), htmlPage("/p"), htmlPage("/", links...)), "-delay", "50ms", "http://a.test/")
		h := r.host("a.test")
		if h.Pages != 200 || h.Failed != 0 {
			t.Errorf("%+v: %d pages, %d failed", limit, h.Pages, h.Failed)
		}
		// 200 pages at 2/s; a fifth of the time, and a twentieth of the requests, is what it
		// may cost to find that out.
		if h.Refused > 10 || r.took > 120*time.Second {
			t.Errorf("%+v: %d refused, took %v", limit, h.Refused, r.took)
		}
		if err := r.record.CheckRetryAfter(); err != nil {
			t.Error(err)
		}
	}
}

// A host that asks for an hour is not waited for. Its pages are left, and other hosts go on.
func TestRefusedTooLong(t *testing.T) {
	late := func(n int, _ *http.Request) bool { return n > 1 }
	srv := site(
		noRobots,
		sluicetest.Host("a.test", sluicetest.When(late, sluicetest.Status(429, "Retry-After: 3600"))),
		htmlPage("/x"), htmlPage("/", "/xa", "/xb", "/xc"),
	)
	r := crawl(t, srv, "http://a.test/", "http://b.test/")
	if a, b := r.host("a.test"), r.host("b.test"); a.Pages != 1 || a.Queued != 3 || a.Failed != 0 || a.Requests != 3 || b.Pages != 4 {
		t.Errorf("a.test %+v, b.test %+v", a, b)
	}
	if r.took != 4*time.Second || r.Far != 1 || r.status(nil) != cli.ExitStopped {
		t.Errorf("took %v, %d wait, status %d", r.took, r.Far, r.status(nil))
	}
	const says = "left for -resume: http://a.test: it wants to be left alone until 2000-01-01 01:00:02, longer than -max-wait 1m0s: 429 Too Many Requests"
	if hints := r.hints(nil, cli.ExitStopped); !slices.Equal(hints, []string{says}) {
		t.Errorf("hints %q", hints)
	}
	// Continued before that time, it is left alone; afterwards it is visited.
	r = crawlWith(t, crawling{dir: r.dir}, site(), "-resume")
	if n := len(r.record.Requests); n != 0 || r.host("a.test").Queued != 3 {
		t.Errorf("%d requests, %d left", n, r.host("a.test").Queued)
	}
	r = crawlWith(t, crawling{dir: r.dir}, site(htmlPage("/x")), "-resume", "-max-wait", "2h")
	if a := r.host("a.test"); a.Pages != 4 || a.Queued != 0 || r.took < 59*time.Minute {
		t.Errorf("took %v, %+v", r.took, a)
	}
}

// A host that stops answering is set aside and given up; the others go on, nothing is lost
// and a later run tries it again.
func TestGone(t *testing.T) {
	var links []string
	for i := range 20 {
		links = append(links, fmt.Sprintf("/x%d", i))
	}
	dead := sluicetest.Host("a.test", sluicetest.Path("/x", sluicetest.Status(500)))
	r := crawl(t, site(noRobots, dead, htmlPage("/x"), htmlPage("/", links...)), "http://a.test/", "http://b.test/")
	a, b := r.host("a.test"), r.host("b.test")
	if a.Queued != 20 || a.Failed != 0 || !a.Gone || b.Pages != 21 || r.Gone != 1 || r.status(nil) != cli.ExitStopped {
		t.Errorf("a.test %+v, b.test %+v, %d gone", a, b, r.Gone)
	}
	// Ten requests in a row, and six to see whether it works again: 2 s, 4 s and so on later.
	at := r.record.Host("a.test").Arrivals()
	if want := seconds(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 17, 25, 41, 73, 137); !slices.Equal(at, want) {
		t.Errorf("requests at %v, want %v", at, want)
	}
	if last := r.record.Host("b.test").Arrivals(); last[len(last)-1] != 21*time.Second {
		t.Errorf("b.test until %v", last[len(last)-1])
	}
	r = crawlWith(t, crawling{dir: r.dir}, site(htmlPage("/x")), "-resume")
	if a := r.host("a.test"); a.Pages != 21 || a.Queued != 0 || len(r.record.Requests) != 20 {
		t.Errorf("continued: %+v, %d requests", a, len(r.record.Requests))
	}
}

// A page that is refused again while others are granted holds up none of them.
func TestRefusedPage_AmongOthers(t *testing.T) {
	layers := []sluicetest.Layer{noRobots, sluicetest.Path("/bad", sluicetest.Status(429, "Retry-After: 5"))}
	for i := 29; i > 0; i-- { // each links to the next one
		layers = append(layers, htmlPage(fmt.Sprintf("/p%d", i), fmt.Sprintf("/p%d", i+1)))
	}
	r := crawl(t, site(append(layers, htmlPage("/", "/bad", "/p1"))...), "-depth", "100", "-pages", "25", "http://a.test/")
	h := r.host("a.test")
	if h.Refused != 4 || h.Failed != 1 || h.Pages != 24 || r.took > 37*time.Second {
		t.Errorf("%d refused, %d pages, in %v", h.Refused, h.Pages, r.took)
	}
}
