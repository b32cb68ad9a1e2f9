package sluicehttp

import (
	"net/http"
	"strings"
)

// A key names a gate: a scheme and a host with its port, or with an empty scheme
// whatever Config.Key returned. To join the two into one string would cost every
// request an allocation.
type key struct{ scheme, host string }

func (k key) String() string {
	if k.scheme == "" {
		return k.host
	}
	return k.scheme + "://" + k.host
}

// destination returns the key of where req goes. The port that goes without
// saying is left out, so that https://example.com:443 and https://Example.com
// are one.
func destination(req *http.Request) key {
	k := key{strings.ToLower(req.URL.Scheme), strings.ToLower(req.URL.Host)} // allocate only to change something
	switch k.scheme {
	case "http":
		k.host = strings.TrimSuffix(k.host, ":80")
	case "https":
		k.host = strings.TrimSuffix(k.host, ":443")
	}
	return k
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
		return st.key // mostly it is the same, and need not be spelled out
	}
	return destination(req)
}

// strayed reports that req comes from a redirect that left the host of the
// request it began with. An http.Client hands the context of that on, and with
// it a key which was never meant for a stranger.
func strayed(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first != req && destination(first) != destination(req)
}
