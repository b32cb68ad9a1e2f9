package crawl

import (
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// options is the command line, checked.
type options struct {
	seeds []*url.URL // normal, see normalURL; none for the built-in site

	delay      time.Duration // from the start of one request to the start of the next, at least
	maxDelay   time.Duration // the longest Crawl-delay that is respected, unless slowHosts
	slowHosts  bool
	factor     float64 // wait so many times as long as the request took
	perHost    int64
	perAddress int64 // times as much as one host, 0 for no limit
	jobs       int64
	rate       sluice.Rate // of all hosts together
	maxWait    time.Duration
	timeout    time.Duration // of silence
	maxTime    time.Duration // of a request

	depth     int
	pages     int
	hostPages int
	frontier  int64
	maxBody   int64
	span      bool
	domains   []string // and what is below them; normal
	sitemaps  bool
	accept    []string // patterns of types, nil for HTML only
	include   []*regexp.Regexp
	exclude   []*regexp.Regexp

	dir    string // "" for a temporary one
	resume bool

	refresh, retryFailed bool

	bodies bool
	agent  string
	header http.Header // nil for none, see headerFor
	quiet  bool

	live      string // an address, "" for none
	liveToken string // a file, "" for none
}

// siteDelay is the delay for the built-in site, which is ours.
const siteDelay = 250 * time.Millisecond

// siteDepth is the depth of the built-in site, which has a host without end.
const siteDepth = 4

// defaultDir is where crawls go, except of the built-in site.
const defaultDir = "crawl"

func newFlags(o *options) *cli.Flags {
	f := cli.NewFlags()
	patterns := func(to *[]*regexp.Regexp) func(string) error {
		return func(text string) error {
			r, err := regexp.Compile(text)
			*to = append(*to, r)
			return err
		}
	}
	o.delay, o.maxDelay, o.maxWait, o.maxBody = time.Second, 30*time.Second, time.Minute, 2<<20
	o.timeout, o.maxTime = 30*time.Second, 5*time.Minute
	f.Group("Pages")
	f.Int(&o.depth, "depth", 1000, "how many `links` to follow from the first pages\nThe default is 4 for the built-in site.")
	f.Int(&o.pages, "pages", 1000, "how many `pages` to fetch in total")
	f.Int(&o.hostPages, "host-pages", 200, "how many `pages` to fetch from one host")
	f.Bool(&o.span, "span", false, "follow links to all hosts\nIn the built-in site they always are.")
	f.Func("domains", "follow links to these `domains`, too, such as example.com,example.org\nHosts below them are included.", o.setDomains)
	f.Func("include", "follow only links whose address matches this regular `expression`\nOr one of several: it may be repeated.", patterns(&o.include))
	f.Func("exclude", "do not follow links whose address matches this regular `expression`\nIt may be repeated.", patterns(&o.exclude))
	f.Func("accept", "read other `types` than HTML, too, such as image/*,application/pdf; */* is all\nThen what pages show is fetched, too: images, scripts and style sheets. -bodies keeps what is read.", o.setAccept)
	f.Bool(&o.sitemaps, "sitemaps", true, "read the sitemaps that robots.txt names")
	f.Var((*cli.Bytes)(&o.maxBody), "max-body", "how many `bytes` of a page are read, such as 500K or 10M")
	f.Int64(&o.frontier, "frontier", 10_000_000, "how many `addresses` to know\nFurther links are not followed.")

	f.Group("Speed")
	f.Var(cli.Duration(&o.delay), "delay", "the least `time` from the start of a request to that of the next to the same host\n0 is none. The default is 250ms for the built-in site.")
	f.Var(cli.Duration(&o.maxDelay), "max-delay", "the longest Crawl-delay that is obeyed\nHosts that ask for more `time` are skipped.")
	f.Bool(&o.slowHosts, "slow-hosts", false, "crawl such hosts as slowly as they ask instead of skipping them")
	f.Float64(&o.factor, "factor", 0, "after a request, wait this many `times` as long as it took\nAt most -max-delay.")
	f.Int64(&o.perHost, "per-host", 1, "how many `requests` to one host may be in flight")
	f.Int64(&o.perAddress, "per-address", 10, "how many `times` what one host gets an IP address gets, at most\nIn flight and per -delay, however many hosts it has. 0 is no limit. It has no effect behind a proxy.")
	f.Int64(&o.jobs, "jobs", 16, "how many `requests` may be in flight in total")
	f.Var(cli.Rate(&o.rate), "rate", "how often requests to all hosts together may start: a `rate` such as 50/s\nThe default is auto, which is no limit.")

	f.Group("Failures")
	f.Var(cli.Duration(&o.timeout), "timeout", "the longest `time` that a server may be silent\nBefore the header of a page and within its body.")
	f.Var(cli.Duration(&o.maxTime), "max-time", "the longest `time` that a request may take, to the end of the body")
	f.Var(cli.Duration(&o.maxWait), "max-wait", "the longest `wait` that a server may ask for\nHosts that ask for more are left for -resume.")

	f.Group("Output")
	f.String(&o.dir, "dir", "", "the `folder` for the pages and the state of the crawl\nThe default is "+defaultDir+", and a temporary one for the built-in site.")
	f.Bool(&o.bodies, "bodies", false, "keep the bodies of pages as files in the folder, named by their digest")
	f.Bool(&o.quiet, "quiet", false, "show no progress")

	f.Group("Again")
	f.Bool(&o.resume, "resume", false, "continue the crawl in the folder, if there is one")

	f.Bool(&o.refresh, "refresh", false, "crawl again what the folder has, and transfer only what has changed\nA folder without a crawl gets one. With -resume, a crawl that was so begun goes on.")
	f.Bool(&o.retryFailed, "retry-failed", false, "as -resume, and pages that failed are asked for again")

	f.Group("Identity")
	f.String(&o.agent, "agent", "sluice-crawler/1 (+https://github.com/sluice-go/sluice)", "the User-Agent\nrobots.txt is read for its `name` before the slash.")
	f.Func("header", "a `header` field such as 'Accept-Language: de', or @ and a file with one on each line; may be repeated\nSuch as a Cookie. Only the sites of the addresses that are given get it, without those that they redirect or link to, and over http only if an address is one of http.", o.addHeader)

	cli.LiveFlags(f, &o.live, &o.liveToken, "the hosts while they are crawled", "pause the crawl and change its rate and jobs")
	return f
}

// parseOptions returns flag.ErrHelp for -h and -help, and otherwise errors that match
// cli.ErrUsage.
func parseOptions(args []string) (o options, err error) {
	f := newFlags(&o)
	if err := f.Parse(args, otherNames); err != nil {
		return options{}, err
	}
	for _, arg := range f.Args() {
		u, err := parseURL(withScheme(arg))
		if err != nil {
			return options{}, fmt.Errorf("%w: %q: %w", cli.ErrUsage, arg, err)
		}
		o.seeds = append(o.seeds, u)
	}
	given := f.Given()
	o.resume = o.resume || o.retryFailed
	switch {
	case o.span && len(o.domains) > 0:
		return options{}, fmt.Errorf("%w: -span follows links to all hosts, and -domains to some: leave one of them out", cli.ErrUsage)
	case len(o.seeds) == 0 && !o.resume && !o.refresh:
		o.span = true
		if !given["delay"] {
			o.delay = siteDelay
		}
		if !given["depth"] {
			o.depth = siteDepth
		}
	case o.dir == "":
		o.dir = defaultDir
	}
	if o.header != nil && len(o.seeds) == 0 {
		return options{}, fmt.Errorf("%w: -header is for the sites of addresses: give them, with -resume, too", cli.ErrUsage)
	}
	if err := o.check(); err != nil {
		return options{}, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return o, nil
}

// withScheme makes an address of what people type for one: example.com/a is http://example.com/a, as
// in browsers. What has neither a dot nor a port in its host, such as a flag without its dash, is left
// as it is.
func withScheme(arg string) string {
	end := strings.IndexAny(arg, "/:?#")
	if end < 0 {
		end = len(arg)
	}
	host, rest := arg[:end], arg[end:]
	port := len(rest) > 1 && rest[0] == ':' && '0' <= rest[1] && rest[1] <= '9'
	if host == "" || strings.HasPrefix(rest, "://") || !strings.Contains(host, ".") && !port && host != "localhost" {
		return arg
	}
	return "http://" + arg
}

// otherNames are those that flags have in wget, curl and scrapy.
var otherNames = map[string]string{
	"l": "depth", "level": "depth", "w": "delay", "wait": "delay", "H": "span", "U": "agent", "user-agent": "agent", "A": "agent",
	"accept-regex": "include", "reject-regex": "exclude", "P": "dir", "o": "dir", "out": "dir", "c": "resume", "continue": "resume", "T": "timeout", "q": "quiet",
	"state": "dir", "log": "dir", "concurrency": "jobs",
	"N": "refresh", "timestamping": "refresh", "p": "accept", "page-requisites": "accept", "D": "domains", "allowed-domains": "domains", "allowed_domains": "domains",
}

// check reports what makes no sense.
func (o options) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"max-delay", o.maxDelay}, {"max-wait", o.maxWait}, {"timeout", o.timeout}, {"max-time", o.maxTime}} {
		if d.value <= 0 {
			return fmt.Errorf("-%s %v: must be above 0", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"per-host", o.perHost}, {"jobs", o.jobs}, {"pages", int64(o.pages)}, {"host-pages", int64(o.hostPages)},
		{"frontier", o.frontier}, {"max-body", o.maxBody},
	} {
		if n.value <= 0 {
			return fmt.Errorf("-%s %d: must be above 0", n.name, n.value)
		}
	}
	switch {
	case o.perAddress < 0 || o.perAddress > 1_000_000:
		return fmt.Errorf("-per-address %d: must be 0 to 1000000", o.perAddress)
	case o.delay < 0:
		return fmt.Errorf("-delay %v: must not be negative", o.delay)
	case o.depth < 0:
		return fmt.Errorf("-depth %d: must not be negative", o.depth)
	case !(o.factor >= 0) || math.IsInf(o.factor, 0):
		return fmt.Errorf("-factor %v: must be 0 or more", o.factor)
	case o.delay > o.maxDelay:
		return fmt.Errorf("-delay %v is longer than -max-delay %v", o.delay, o.maxDelay)
	case o.token() == "":
		return fmt.Errorf("-agent %q: must begin with a name of letters, - and _", o.agent)
	case strings.ContainsAny(o.agent, "\r\n"):
		return errors.New("-agent: must be one line")
	case strings.Contains(o.dir, "://"):
		return fmt.Errorf("-dir %s: want a folder, not an address", o.dir)
	case o.liveToken != "" && o.live == "":
		return errors.New("-live-token is for the page of -live: give that, too")
	}
	return nil
}

// setDomains reads a list of domains.
func (o *options) setDomains(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(name), "*"), ".")
		u, err := parseURL("http://" + name)
		if err != nil || u.Host != u.Hostname() || u.Path != "/" || u.RawQuery != "" {
			return fmt.Errorf("%q is not a domain: want names such as example.com,example.org", name)
		}
		o.domains = append(o.domains, u.Host)
	}
	return nil
}

// setAccept reads a list of types.
func (o *options) setAccept(list string) error {
	for pattern := range strings.SplitSeq(strings.ToLower(list), ",") {
		pattern = strings.TrimSpace(pattern)
		if _, err := path.Match(pattern, "text/html"); err != nil || strings.Count(pattern, "/") != 1 {
			return fmt.Errorf("%q: want types such as image/*,application/pdf", pattern)
		}
		o.accept = append(o.accept, pattern)
	}
	return nil
}

// accepts reports whether an answer has one of the types of -accept.
func (o options) accepts(header http.Header) bool {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return slices.ContainsFunc(o.accept, func(pattern string) bool {
		is, _ := path.Match(pattern, kind)
		return is
	})
}

// inDomains reports whether a host is in -domains, or below one of them.
func (o options) inDomains(name string) bool {
	return slices.ContainsFunc(o.domains, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
}

// token is the name that robots.txt knows the crawler by.
func (o options) token() string {
	end := strings.IndexFunc(o.agent, func(c rune) bool {
		return (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '-' && c != '_'
	})
	if end < 0 {
		return o.agent
	}
	return o.agent[:end]
}

// wanted reports whether a link to an address is followed.
func (o options) wanted(address string) bool {
	for _, r := range o.exclude {
		if r.MatchString(address) {
			return false
		}
	}
	for _, r := range o.include {
		if r.MatchString(address) {
			return true
		}
	}
	return len(o.include) == 0
}
