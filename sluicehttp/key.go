package sluicehttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"
)

// A key names a gate: a scheme and a host with its port or, with an empty scheme, the result
// of Config.Key. Joining the two into one string would cost every request an allocation. A scope of a
// server also has a route, or another name for its calls.
type key struct{ scheme, host, route string }

func (k key) String() string {
	switch {
	case k.scheme == "":
		return k.host
	case k.route != "":
		return k.scheme + "://" + k.host + " " + k.route
	}
	return k.scheme + "://" + k.host
}

// destination returns the key of the server of req. All spellings of a server have the same
// key, so that another spelling does not get another rate.
func destination(req *http.Request) key {
	scheme := strings.ToLower(req.URL.Scheme) // allocates only to change something
	return key{scheme: scheme, host: spell(scheme, req.URL)}
}

// spell returns the canonical host and port of u: lower case, names as in DNS without a
// final dot, addresses as formatted by netip, without a default port.
func spell(scheme string, u *url.URL) string {
	if plain(u.Host) {
		return u.Host
	}
	name, port := u.Hostname(), u.Port()
	if port == "" && !strings.HasSuffix(u.Host, name) && !strings.HasSuffix(u.Host, "]") && !strings.HasSuffix(u.Host, ":") {
		return strings.ToLower(u.Host) // an invalid port; this will not be sent
	}
	if !isASCII(name) {
		name = dialed(name)
	}
	name = strings.TrimSuffix(name, ".")
	if !strings.Contains(name, ":") { // IPv4 addresses have one spelling only
		name = strings.ToLower(name)
	} else if addr, err := netip.ParseAddr(name); err == nil { // zones have a case
		if name = addr.Unmap().String(); addr.Unmap().Is6() {
			name = "[" + name + "]"
		}
	}
	port = strings.TrimLeft(port, "0")
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return name
	}
	if len(name)+1+len(port) == len(u.Host) && strings.HasPrefix(u.Host, name) {
		return u.Host // saves an allocation
	}
	return name + ":" + port
}

// plain reports whether host is canonical, as most are.
func plain(host string) bool {
	for i := range len(host) {
		if c := host[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return !strings.HasSuffix(host, ".")
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

var errDialed = errors.New("sluicehttp: dialed")

// dialed returns the name that net/http dials for one that is not ASCII: "xn--…". net/http
// does not export its tables in another way, and golang.org/x/net/idna would bring them
// twice.
func dialed(name string) string {
	address := ""
	t := http.Transport{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		address = addr
		return nil, errDialed
	}}
	req := http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: name}, Header: http.Header{}}
	if _, err := t.RoundTrip(&req); !errors.Is(err, errDialed) {
		return name
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return name
	}
	return host
}

// keyOf returns the key of the gate that req must pass.
func (t *Transport) keyOf(req *http.Request, o *Overrides) key {
	switch {
	case o.Key != "" && !strayed(req):
		return key{host: o.Key}
	case t.cfg.Key != nil:
		return key{host: t.cfg.Key(req)}
	}
	if st := t.recent.Load(); st != nil && st.key.scheme == req.URL.Scheme && st.key.host == req.URL.Host {
		return st.key // the common case, without spelling it
	}
	return destination(req)
}

// strayed reports whether req comes from a redirect to another host. An http.Client passes
// on the context, and with it a key that was not meant for that host.
func strayed(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first != req && destination(first) != destination(req)
}
