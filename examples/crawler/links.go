package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxURL is the most bytes of an address that is followed. Longer ones are
// mostly made by a mistake that makes them longer and longer.
const maxURL = 2048

// normalURL returns an absolute address in the one way in which the frontier
// knows it: scheme and host in lower case, no default port, no fragment, no
// password, "/" for an empty path. It returns an error if that is no page: not
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

// hostKey names the gate of an address: scheme, host and port.
func hostKey(u *url.URL) string { return u.Scheme + "://" + u.Host }

// target is what robots.txt is asked about: the path with the query.
func target(u *url.URL) string { return u.RequestURI() }

// A document is what a page says, as far as it matters here.
type document struct {
	title string
	links []*url.URL // normal, each once, in the order in which they stand there
}

// read reads a page that was found at base. What is no HTML has no links; what
// is broken is read as a browser reads it.
func read(page []byte, base *url.URL) (doc document) {
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		return document{} // nested deeper than x/net/html allows
	}
	seen := make(map[string]bool)
	var hrefs []string
	nofollow, hasBase := false, false
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.DataAtom {
		case atom.Base:
			// The first one counts.
			if href, ok := attribute(n, "href"); ok && !hasBase {
				if u, err := base.Parse(href); err == nil {
					base, hasBase = u, true
				}
			}
		case atom.Title:
			if doc.title == "" && n.FirstChild != nil {
				doc.title = strings.Join(strings.Fields(n.FirstChild.Data), " ")
			}
		case atom.Meta:
			name, _ := attribute(n, "name")
			content, _ := attribute(n, "content")
			if strings.EqualFold(name, "robots") {
				content = strings.ToLower(content)
				nofollow = nofollow || strings.Contains(content, "nofollow") || strings.Contains(content, "none")
			}
		case atom.A, atom.Area:
			if href, ok := attribute(n, "href"); ok {
				hrefs = append(hrefs, href)
			}
		case atom.Iframe, atom.Frame:
			if src, ok := attribute(n, "src"); ok {
				hrefs = append(hrefs, src)
			}
		}
	}
	if nofollow {
		return doc
	}
	for _, href := range hrefs {
		u, err := base.Parse(strings.TrimSpace(href))
		if err != nil {
			continue
		}
		if u, err = normalURL(u); err == nil && !seen[u.String()] {
			seen[u.String()] = true
			doc.links = append(doc.links, u)
		}
	}
	return doc
}

func attribute(n *html.Node, key string) (value string, ok bool) {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}
