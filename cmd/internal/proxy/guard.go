package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// The header fields of the proxy. They are not passed on.
const (
	ours           = "Sluice-" // their prefix
	headerToken    = "Sluice-Token"
	headerPatience = "Sluice-Patience"
)

// A guard refuses requests that do not come from a program that the user means to serve.
type guard struct {
	hosts map[string]bool
	token [sha256.Size]byte
	open  bool // no token is wanted
}

// newGuard makes a guard that accepts requests to hosts, besides localhost and IP literals, with a
// token, unless that is empty.
func newGuard(hosts []string, token string) *guard {
	g := &guard{hosts: map[string]bool{"localhost": true}, token: sha256.Sum256([]byte(token)), open: token == ""}
	for _, h := range hosts {
		g.hosts[strings.ToLower(strings.TrimSuffix(h, "."))] = true
	}
	return g
}

// check returns why r is refused, or nil.
func (g *guard) check(r *http.Request) *problem {
	switch {
	case r.Method == http.MethodConnect:
		return &problem{status: http.StatusMethodNotAllowed, title: "CONNECT is not supported", detail: "This is a reverse proxy: set it as the base URL of a client, not as HTTPS_PROXY.", proxy: "http_request_denied"}
	case r.URL.Host != "":
		return &problem{status: http.StatusBadRequest, title: "Not a forward proxy", detail: "This is a reverse proxy: set it as the base URL of a client, not as HTTP_PROXY.", proxy: "http_request_denied"}
	case !g.knows(r.Host):
		return &problem{status: http.StatusForbidden, title: "Unknown host", detail: "The request is to a name that this proxy does not have. -allow-host adds one.", proxy: "http_request_denied"}
	case foreign(r):
		return &problem{status: http.StatusForbidden, title: "Request of a web page", detail: "The request comes from a web page of another origin.", proxy: "http_request_denied"}
	case !g.admits(r):
		return &problem{status: http.StatusProxyAuthRequired, title: "No token", detail: "Send the token of the proxy as the header field " + headerToken + ".", proxy: "http_request_denied"}
	}
	return nil
}

// knows reports whether a request may be to host. A name that an attacker makes resolve to this
// machine is not one of them; an IP literal needs no resolving.
func (g *guard) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if g.hosts[host] {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// foreign reports whether r was sent by a page of another origin in a browser.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return true
		}
	}
	return false
}

// admits reports whether r has the token. Browsers and Prometheus send it as the password of
// Basic, for the pages of the proxy itself; there the field belongs to no upstream.
func (g *guard) admits(r *http.Request) bool {
	if g.open {
		return true
	}
	token := r.Header.Get(headerToken)
	if token == "" && isOwn(r) {
		_, token, _ = r.BasicAuth()
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], g.token[:]) == 1
}
