// Package robots reads robots.txt files as they are found, and not only as they
// should be: a line that makes no sense is left out, and the others count.
//
// The rules are those of RFC 9309 (Koster, Illyes, Zeller, Sassman: Robots
// Exclusion Protocol, 2022), with Crawl-delay, which is not in it. They are
// applied by github.com/temoto/robotstxt, which is given a file that this
// package has written again; sanitise.go says why. Where a file can be read in
// two ways it is read in the one that allows less, or as Google's parser does.
package robots

import (
	"fmt"
	"time"

	"github.com/temoto/robotstxt"
)

const (
	// MaxSize is how many bytes of a file count. RFC 9309 asks for at least
	// 500 KiB. Reading one byte more is enough.
	MaxSize = 512 << 10

	// MaxDelay is the longest Crawl-delay; a longer one counts as this. The
	// file itself is to be read again after a day.
	MaxDelay = 24 * time.Hour

	// MaxPath is the most octets of a path, with its query. Longer ones are
	// not allowed.
	MaxPath = 4096
)

// Rules are what a file says to one crawler. They do not change, and are safe
// for use by multiple goroutines. They are made by [Parse] or [Everything].
type Rules struct {
	group    *robotstxt.Group // nil: nothing is allowed
	delay    time.Duration
	hasDelay bool
	count    int
	notes    []string

	overgrown bool // too many wildcards to try them all
}

// Parse returns what a file says to the crawler whose product token is agent:
// the part of its User-Agent before a slash, of letters, hyphens and
// underscores. The groups for agent count, in upper or lower case; if there are
// none, those for "*". It cannot fail: see [Rules.Notes] for what was left out.
func Parse(file []byte, agent string) *Rules {
	clean, r := sanitise(file, agent)
	if r.overgrown {
		return r
	}
	data, err := robotstxt.FromBytes(clean)
	if err != nil {
		// A mistake of ours. The side to err on is that of the host.
		r.notes = append(r.notes, fmt.Sprintf("nothing is allowed: %v", err))
		return r
	}
	r.group = data.FindGroup("*")
	return r
}

// Everything returns rules that allow everything: those of a host that has no
// file.
func Everything() *Rules { return Parse(nil, "") }

// Allowed reports whether a path may be fetched. It is the path of an address
// with its query, as it would be sent; "/" if it is empty. The path of the file
// itself, /robots.txt, is always allowed.
func (r *Rules) Allowed(path string) bool {
	switch {
	case path == "/robots.txt":
		return true
	case r.group == nil || len(path) > MaxPath:
		return false
	case path == "":
		path = "/"
	}
	return r.group.Test(encode(normal(path, false)))
}

// Delay returns the Crawl-delay, from 0 to MaxDelay, and whether there is one.
// Of several for the same crawler it is the longest.
func (r *Rules) Delay() (d time.Duration, ok bool) {
	return r.delay, r.hasDelay
}

// Len returns how many rules there are, Allow and Disallow together.
func (r *Rules) Len() int { return r.count }

// Notes returns what was left out of the file or changed, and why, in words:
// the first 20 of them, and how many more there are. The slice must not be
// changed.
func (r *Rules) Notes() []string { return r.notes }
