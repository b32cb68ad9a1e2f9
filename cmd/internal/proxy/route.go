package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
)

// A preset configures the API of a host.
type preset struct {
	name string
	host string // "" if each account has another
	make func() sluicehttp.Config
}

// known are the presets. Those with a host are served without a -route. Amazon is not one of them:
// its SDKs sign the name of the host that they call.
var known = []preset{
	{"openai", "api.openai.com", presets.OpenAI},
	{"anthropic", "api.anthropic.com", presets.Anthropic},
	{"gemini", "generativelanguage.googleapis.com", presets.Gemini},
	{"github", "api.github.com", presets.GitHub},
	{"slack", "slack.com", presets.Slack},
	{"discord", "discord.com", presets.Discord},
	{"x", "api.x.com", presets.X},
	{"atlassian", "", presets.Atlassian},
	{"graphql", "", presets.GraphQL},
}

// presetOf returns the preset of a host, or the zero preset.
func presetOf(host string) preset {
	for _, p := range known {
		if p.host == host {
			return p
		}
	}
	return preset{}
}

// own are the paths of the proxy itself, which cannot be names of routes.
var own = []string{"healthz", "metrics", "live"}

// A route is a prefix of paths and where it leads to.
type route struct {
	name     string   // the first segment of the path
	target   *url.URL // its path has no slash at its end
	class    string   // of its calls, "" for none
	upstream *upstream
}

// A routeSpec is a route as it was configured.
type routeSpec struct {
	name   string
	target *url.URL
	class  string
	limit  limit
}

// A limit is configured for a server.
type limit struct {
	preset      string // "" for the preset of the host, if there is one
	rate        sluice.Rate
	concurrency int64
}

// parseRoute parses /NAME=URL, and options behind it.
func parseRoute(text string) (routeSpec, error) {
	name, target, ok := strings.Cut(text, "=")
	if !ok || !strings.HasPrefix(name, "/") {
		return routeSpec{}, errors.New("want /NAME=URL, such as /api=https://api.example.com")
	}
	fields := strings.Fields(target)
	if len(fields) == 0 {
		return routeSpec{}, fmt.Errorf("%s: the URL is missing", name)
	}
	s, err := newRouteSpec(name, fields[0])
	for _, field := range fields[1:] {
		if class, is := strings.CutPrefix(field, "class="); is {
			s.class = class
			continue
		}
		if bad := s.limit.set(field); bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, bad))
		}
	}
	return s, err
}

// set applies a field such as rate=5/s.
func (l *limit) set(field string) (err error) {
	switch name, value, _ := strings.Cut(field, "="); name {
	case "preset":
		if l.preset = value; makeOf(value) == nil {
			err = fmt.Errorf("unknown preset %q, want one of %s", value, strings.Join(presetNames(), ", "))
		}
	case "rate":
		err = l.rate.UnmarshalText([]byte(value))
	case "concurrency":
		if l.concurrency, err = strconv.ParseInt(value, 10, 64); err != nil || l.concurrency < 1 {
			err = fmt.Errorf("%s: want a number above 0", field)
		}
	default:
		err = fmt.Errorf("%s: want preset=, class=, rate= or concurrency=", name)
	}
	return err
}

// makeOf returns the constructor of a preset, or nil.
func makeOf(name string) func() sluicehttp.Config {
	for _, p := range known {
		if p.name == name {
			return p.make
		}
	}
	return nil
}

func presetNames() (names []string) {
	for _, p := range known {
		names = append(names, p.name)
	}
	return names
}

func newRouteSpec(name, target string) (routeSpec, error) {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "/"), "/")
	switch {
	case name == "" || strings.Trim(name, ".") == "" || strings.ContainsFunc(name, oddInName):
		return routeSpec{}, fmt.Errorf("/%s: want one name of letters, digits, '.', '-' and '_'", name)
	case slices.Contains(own, name):
		return routeSpec{}, fmt.Errorf("/%s is a page of the proxy; choose another name", name)
	}
	u, err := url.Parse(target)
	switch { // no error has the target: it may have a password
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return routeSpec{}, fmt.Errorf("/%s: want http://host/… or https://host/…", name)
	case u.User != nil:
		return routeSpec{}, fmt.Errorf("/%s: the URL has a user or a password; callers send their own credentials", name)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return routeSpec{}, fmt.Errorf("/%s: the URL has a query or a fragment; callers send their own", name)
	case climbs(u.EscapedPath()):
		return routeSpec{}, fmt.Errorf("/%s: the URL has . or .. in its path", name)
	}
	u.Host = strings.ToLower(u.Host)
	trimmed := strings.TrimSuffix(u.EscapedPath(), "/")
	u.Path, _ = url.PathUnescape(trimmed)
	u.RawPath = trimmed
	return routeSpec{name: name, target: u}, nil
}

func oddInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(".-_", r))
}

// climbs reports whether a path has a segment that is . or .. however it is written: behind a
// route, it could lead out of the path of the target.
func climbs(escaped string) bool {
	for segment := range strings.SplitSeq(strings.ReplaceAll(escaped, `\`, "/"), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return true
		}
		for part := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part == "." || part == ".." {
				return true
			}
		}
	}
	return false
}

// cutPath cuts the escaped path of a request into the name of its route and the rest, which is
// empty or begins with a slash.
func cutPath(escaped string) (name, rest string) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(escaped, "/"), "/")
	if ok {
		rest = "/" + rest
	}
	return name, rest
}

// A table has all routes, by name.
type table struct {
	routes    map[string]*route
	upstreams map[origin]*upstream
}

// An origin is a server, as far as limits are concerned.
type origin struct{ scheme, host string }

// newTable makes the table of specs and of the presets, whose hosts a spec may replace. It
// takes over upstreams of old, which may be nil, that are still as wanted.
func newTable(specs []routeSpec, o *options, m *memory, old *table) (*table, error) {
	t := &table{routes: make(map[string]*route), upstreams: make(map[origin]*upstream)}
	routed := make(map[origin]limit)
	for _, s := range specs {
		if t.routes[s.name] != nil {
			return nil, fmt.Errorf("there are two routes /%s", s.name)
		}
		t.routes[s.name] = &route{name: s.name, target: s.target, class: s.class}
		at := originOf(s.target)
		if other, is := routed[at]; is && other != s.limit {
			return nil, fmt.Errorf("/%s: another route to this server has another preset, rate or concurrency", s.name)
		}
		routed[at] = s.limit
	}
	for _, p := range known {
		if p.host != "" && t.routes[p.host] == nil {
			t.routes[p.host] = &route{name: p.host, target: &url.URL{Scheme: "https", Host: p.host}}
		}
	}
	for _, r := range t.routes {
		at := originOf(r.target)
		if t.upstreams[at] == nil {
			var err error
			_, open := routed[at]
			want := wanted{target: r.target, open: open, timeout: o.timeout, limit: routed[at]}
			if want.limit.preset == "" {
				want.limit.preset = presetOf(at.host).name
			}
			if t.upstreams[at], err = old.reuse(at, want, o, m); err != nil {
				return nil, fmt.Errorf("/%s: %w", r.name, err)
			}
		}
		r.upstream = t.upstreams[at]
	}
	return t, nil
}

// reuse returns the upstream of old for an origin if it is as wanted, and otherwise a new one.
func (old *table) reuse(at origin, want wanted, o *options, m *memory) (*upstream, error) {
	if old == nil || old.upstreams[at] == nil {
		return newUpstream(want, o, m)
	}
	is := old.upstreams[at]
	if want.target = is.wanted.target; is.wanted == want {
		return is, nil
	}
	m.noteAll() // the new gate begins with a snapshot of the old one
	return newUpstream(want, o, m)
}

func originOf(u *url.URL) origin {
	host := strings.TrimSuffix(u.Hostname(), ".")
	if p := u.Port(); p != "" && !(u.Scheme == "https" && p == "443") && !(u.Scheme == "http" && p == "80") {
		host += ":" + p
	}
	return origin{u.Scheme, host}
}

// find returns the route of a request, the rest of its path, and the job, "" for none, that the path
// names before the route: /~nightly/api.openai.com/v1.
func (t *table) find(r *http.Request) (of *route, rest, job string) {
	name, rest := cutPath(r.URL.EscapedPath())
	if is, ok := strings.CutPrefix(name, "~"); ok {
		if is == "" || len(is) > longestJob || strings.ContainsFunc(is, oddInName) {
			return nil, "", ""
		}
		job = is
		name, rest = cutPath(rest)
	}
	return t.routes[name], rest, job
}

// longestJob is the length of the longest name of a job.
const longestJob = 64

// rewrite points out, the request to the upstream, to where rest leads behind r.
func (r *route) rewrite(out *url.URL, rest string) error {
	escaped := r.target.EscapedPath() + rest
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return err
	}
	if escaped == "" {
		path, escaped = "/", "/"
	}
	out.Scheme, out.Host, out.User = r.target.Scheme, r.target.Host, nil
	out.Path, out.RawPath = path, escaped
	return nil
}
