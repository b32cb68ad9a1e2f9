package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxURL is the most bytes of an address that is followed. Longer ones are
// mostly made by a mistake that makes them longer and longer.
const maxURL = 2048

// normalURL returns an absolute address in the one way in which the frontier
// knows it: scheme and host in lower case, no default port, no fragment, no
// password, "/" for an empty path. It returns an error if that is not a page: not
// http or https, without a host, or longer than maxURL. It does not change u.
func normalURL(u *url.URL) (*url.URL, error) {
	n := *u
	n.Scheme, n.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	n.User, n.Fragment, n.RawFragment = nil, "", ""
	n.ForceQuery = false
	switch {
	case n.Scheme != "http" && n.Scheme != "https" || n.Opaque != "":
		return nil, errors.New("want http://host/… or https://host/…")
	case n.Hostname() == "":
		return nil, errors.New("there is not a host")
	case strings.Contains(n.Hostname(), ":") && n.Host[0] != '[': // only the last one begins a port
		return nil, fmt.Errorf("%q is not a host", n.Host)
	}
	if port := n.Port(); port == "" || n.Scheme == "http" && port == "80" || n.Scheme == "https" && port == "443" {
		n.Host = strings.TrimSuffix(n.Host, ":"+port)
	}
	if n.Path == "" {
		n.Path = "/"
	} else {
		n = *n.ResolveReference(&url.URL{Path: n.Path, RawPath: n.RawPath, RawQuery: n.RawQuery}) // no "..", no "."
	}
	if len(n.String()) > maxURL {
		return nil, errors.New("the address is too long")
	}
	return &n, nil
}

// parseURL parses an address and makes it normal.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return normalURL(u)
}

// target is what robots.txt is asked about: the path of a normal address with its query.
func target(address string) string { return address[len(keyOf(address)):] }
