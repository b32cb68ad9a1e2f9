package robots

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Why is a file written again before temoto/robotstxt, v1.1.2, reads it?
//
// Because one line can spoil that: "Crawl-delay: abc", "-3", "NaN" or nothing
// at all, or any rule before the first User-agent, is an error for the file as
// a whole, and a crawler that then allows everything has lost all its rules. And because
// it reads some lines wrongly without a word:
//
//	Crawl-delay: 1e30          −2,562,047 h
//	Disallow: /a#why           forbids "/a#why", and not /a
//	Disallow : /a              forbids "/:"
//	Disallow: *                forbids nothing
//	Allow: /a*.js              allows /secret/a.js, too: not held at the start
//	Disallow: /~me             does not forbid /%7Eme, which is the same
//	User-agent: mycrawler/2.0  is not for mycrawler
//	User-agent: my             is for mycrawler, and whoever else begins so
//	Allow: /a, Disallow: /a    whichever stands first; it should be Allow
//	Allow: /*.js               outweighs the longer Disallow: /secret
//
// So only the lines that count are written, all in one group for everybody, and
// paths in an alphabet of our own, encode, in which none of this can happen.

const (
	maxWildcards = 2000 // of which each costs some kilobytes
	maxNotes     = 20
)

// A rule is a line Allow or Disallow. Its pattern is normal, see normal.
type rule struct {
	allow   bool
	pattern string
}

// A group is what is said to one crawler, wherever in the file.
type group struct {
	found    bool
	rules    []rule
	delay    time.Duration
	hasDelay bool
}

// reading is a file that is being read.
type reading struct {
	agent     string
	ours, all group    // for agent, for everybody
	into      []*group // which the rules are for that come
	header    bool     // whether no rule came after the last User-agent
	delayed   []*group // which a Crawl-delay is for that comes
	paced     bool     // whether one came after the last User-agent
	hasAgent  bool     // whether there was one at all
	notes     []string
	unsaid    int // notes beyond maxNotes
}

// newlines makes the ends of lines, which are CR, LF or both, the same.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// sanitise returns the file that temoto is given, and rules that lack nothing
// but what temoto makes of that.
func sanitise(file []byte, agent string) ([]byte, *Rules) {
	r := &reading{agent: strings.ToLower(agent)}
	if len(file) > MaxSize {
		// The last line may be half of one, which forbids more than the whole
		// or allows more.
		file = file[:bytes.LastIndexAny(file[:MaxSize], "\r\n")+1]
		r.note(0, "longer than %d KiB: the rest does not count", MaxSize>>10)
	}
	text := strings.TrimPrefix(string(file), "\uFEFF")
	number := 0
	for text := range strings.SplitSeq(newlines.Replace(text), "\n") {
		number++
		r.line(number, text)
	}
	g := &r.all
	if r.ours.found {
		g = &r.ours
	}
	wildcards := 0
	for _, rule := range g.rules {
		if strings.ContainsAny(rule.pattern, "*$") {
			wildcards++
		}
	}
	rules := &Rules{delay: g.delay, hasDelay: g.hasDelay, count: len(g.rules), overgrown: wildcards > maxWildcards}
	if rules.notes = r.notes; r.unsaid > 0 {
		rules.notes = append(rules.notes, fmt.Sprintf("and %d more", r.unsaid))
	}
	if rules.overgrown {
		rules.notes = append(rules.notes, fmt.Sprintf("%d rules with wildcards, more than %d: nothing is allowed", wildcards, maxWildcards))
	}
	return g.write(), rules
}

// line reads one line.
func (r *reading) line(number int, text string) {
	text, _, _ = strings.Cut(text, "#")
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	key, value, ok := strings.Cut(text, ":")
	if !ok {
		// "Disallow /a" means what it seems to, as at Google.
		if space := strings.IndexAny(text, " \t"); space > 0 {
			key, value = text[:space], text[space:]
		}
	}
	value = strings.TrimSpace(value)
	key = strings.ToLower(strings.TrimSpace(key))
	switch key {
	case "user-agent", "useragent", "user agent":
		r.userAgent(value)
	case "allow":
		r.rule(number, true, value)
	case "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw":
		r.rule(number, false, value)
	case "crawl-delay", "crawldelay", "crawl delay":
		r.crawlDelay(number, value)
	case "sitemap", "host", "clean-param", "request-rate", "visit-time", "noindex", "content-signal", "cache-delay":
		// Not for us, but no mistake.
	default:
		r.note(number, "%q is not a known line", clip(text))
	}
}

// userAgent begins a group, or makes it one for another crawler, too.
//
// A Crawl-delay between two User-agent lines does not end the group: it is not in RFC 9309,
// by which other records must not interfere (section 2.2.4), and Google's parser does not
// know it. So the rules that follow are for both. But the delay is only for those before it,
// as those mean it who write a line User-agent and a line Crawl-delay for each crawler.
func (r *reading) userAgent(value string) {
	if !r.header {
		r.into = r.into[:0]
	}
	if !r.header || r.paced {
		r.delayed, r.paced = r.delayed[:0], false
	}
	r.header, r.hasAgent = true, true
	var g *group
	token := strings.ToLower(value)
	if end := strings.IndexFunc(token, notInToken); end >= 0 {
		token = token[:end]
	}
	switch {
	case value == "*" || strings.HasPrefix(value, "* ") || strings.HasPrefix(value, "*\t"):
		g = &r.all
	case token != "" && token == r.agent:
		g = &r.ours
	default:
		return
	}
	g.found = true
	if !slices.Contains(r.into, g) {
		r.into = append(r.into, g)
	}
	if !slices.Contains(r.delayed, g) {
		r.delayed = append(r.delayed, g)
	}
}

// notInToken reports whether c ends a product token.
func notInToken(c rune) bool {
	return (c < 'a' || 'z' < c) && c != '-' && c != '_'
}

// placed notes a line that may not stand where it does.
func (r *reading) placed(number int, what string) {
	if !r.hasAgent {
		r.note(number, "%s before the first User-agent", what)
	}
}

// rule reads the pattern of a rule. An empty one is none: it says nothing,
// except that there is a group.
func (r *reading) rule(number int, allow bool, value string) {
	what := "Disallow"
	if allow {
		what = "Allow"
	}
	r.placed(number, what)
	r.header = false
	if len(r.into) == 0 || value == "" {
		return
	}
	if value[0] != '/' && value[0] != '*' {
		value = "/" + value
	}
	pattern := normal(value, true)
	if len(pattern) > MaxPath {
		if allow {
			r.note(number, "Allow of %d octets", len(pattern))
			return
		}
		// The shorter it is the more it forbids.
		r.note(number, "Disallow of %d octets: cut off after %d", len(pattern), MaxPath)
		pattern = pattern[:MaxPath]
	}
	for _, g := range r.into {
		g.rules = append(g.rules, rule{allow, pattern})
		for _, p := range intoQuery(value) {
			g.rules = append(g.rules, rule{allow, p})
		}
	}
}

// crawlDelay reads a number of seconds.
func (r *reading) crawlDelay(number int, value string) {
	r.placed(number, "Crawl-delay")
	r.paced = true
	if len(r.delayed) == 0 {
		return
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if errors.Is(err, strconv.ErrRange) && seconds > 0 {
		seconds, err = math.MaxFloat64, nil
	}
	if err != nil || math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 {
		r.note(number, "Crawl-delay of %q: not a number of seconds", clip(value))
		return
	}
	delay := MaxDelay
	if seconds < MaxDelay.Seconds() {
		delay = time.Duration(math.Ceil(seconds * float64(time.Second)))
	} else if seconds > MaxDelay.Seconds() {
		r.note(number, "Crawl-delay of %s s: taken for %v", clip(value), MaxDelay)
	}
	for _, g := range r.delayed {
		g.delay, g.hasDelay = max(g.delay, delay), true
	}
}

// note remembers what was wrong with a line; number 0 is the file.
func (r *reading) note(number int, format string, args ...any) {
	if len(r.notes) == maxNotes {
		r.unsaid++
		return
	}
	text := fmt.Sprintf(format, args...)
	if number > 0 {
		text = fmt.Sprintf("line %d: %s", number, text)
	}
	r.notes = append(r.notes, text)
}

// clip shortens what may be a megabyte.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// write returns the group as temoto is to read it: for everybody, with the
// Allow lines first, because of two that are as long it takes the first.
func (g *group) write() []byte {
	var allow, disallow bytes.Buffer
	for _, r := range g.rules {
		if r.allow {
			fmt.Fprintf(&allow, "Allow: %s\n", encode(r.pattern))
		} else {
			fmt.Fprintf(&disallow, "Disallow: %s\n", encode(r.pattern))
		}
	}
	// The delay is for a group without rules, which would be none.
	return slices.Concat([]byte("User-agent: *\nCrawl-delay: 0\n"), allow.Bytes(), disallow.Bytes())
}
