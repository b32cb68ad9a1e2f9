package crawl

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/robots"
)

// robotsAge is after which time the file is read again (RFC 9309, section 2.4).
var robotsAge = 24 * time.Hour

// robotsRedirects are followed (section 2.3.1.2).
const robotsRedirects = 5

// A robotsAnswer is what came of asking for robots.txt.
type robotsAnswer struct {
	file  []byte
	rules *robots.Rules // nil if the host is to be skipped: there may be a file, and what it says is not known
	about string        // in words
	again bool          // it may be different later: the host is asked again, and then left for -resume
}

// robots asks for robots.txt of h.
func (c *crawler) robots(gate *sluice.Gate, h *host) robotsAnswer {
	u, err := parseURL(h.Key + "/robots.txt")
	if err != nil {
		return robotsAnswer{about: err.Error()}
	}
	for range 1 + robotsRedirects {
		a, what := c.askRobots(gate, h, u)
		switch {
		case what == notAsked:
			return robotsAnswer{again: true}
		case a.err != nil && a.hopeless():
			return robotsAnswer{about: "unreachable: skipped (" + a.cause() + ")"}
		case a.err != nil:
			return robotsAnswer{about: "unreachable: left (" + a.cause() + ")", again: true}
		case a.status == http.StatusNotImplemented:
			return robotsAnswer{about: fmt.Sprintf("status %d: skipped", a.status)}
		case what != answered, a.status >= 500:
			return robotsAnswer{about: fmt.Sprintf("status %d: left", a.status), again: true}
		case a.status/100 == 2:
			rules := robots.Parse(a.body, c.o.token())
			return robotsAnswer{file: a.body, rules: rules, about: plural(rules.Len(), "rule")}
		case a.status >= 400:
			return robotsAnswer{rules: robots.Everything(), about: fmt.Sprintf("status %d: all allowed", a.status)}
		}
		if u, err = location(u, a.header); err != nil {
			return robotsAnswer{about: fmt.Sprintf("status %d, and %v: skipped", a.status, err)}
		}
	}
	return robotsAnswer{about: fmt.Sprintf("more than %d redirects: skipped", robotsRedirects)}
}

// askRobots asks h for a file, or another host, which has a gate, too.
func (c *crawler) askRobots(gate *sluice.Gate, h *host, u *url.URL) (a answer, what outcome) {
	want := func(resp *http.Response) int64 {
		if resp.StatusCode/100 == 2 {
			return robots.MaxSize + 1 // for Parse to see that there is more
		}
		return 0
	}
	var l link
	key := keyOf(u.String())
	if key == h.Key {
		return c.ask(h.begin, gate, h, &l, u.String(), want)
	}
	err := c.gates.Use(nameOf(key), func(gate *sluice.Gate) error {
		c.mu.Lock()
		ch := c.change()
		other := ch.host(key)
		c.fail(ch.commit())
		c.owe(gate, other)
		c.mu.Unlock()
		a, what = c.ask(h.begin, gate, other, &l, u.String(), want)
		return nil
	})
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
	return a, what
}

// location returns where an answer sends us.
func location(u *url.URL, header http.Header) (*url.URL, error) {
	to := header.Get("Location")
	if to == "" {
		return nil, errors.New("no Location")
	}
	return resolve(u, to)
}

// sitemapsOf returns the addresses of the lines "Sitemap: address" of robots.txt, which
// are for all crawlers.
func sitemapsOf(file []byte, key string) (addresses []string) {
	base, err := url.Parse(key + "/robots.txt")
	if err != nil {
		return nil
	}
	for line := range bytes.SplitSeq(bytes.ReplaceAll(file, []byte("\r"), []byte("\n")), []byte("\n")) {
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || !strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")), "sitemap") {
			continue
		}
		value, _, _ = strings.Cut(value, " #")
		if u, err := resolve(base, value); err == nil && len(addresses) < mostSitemaps {
			addresses = append(addresses, u.String())
		}
	}
	return addresses
}

// plural is "1 rule", "2 rules".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
