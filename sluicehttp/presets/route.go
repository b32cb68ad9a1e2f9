package presets

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// # Which part of a path is the name of an endpoint?
//
// A limit of an endpoint is one for all its ids, so they must not be in the key of its gate:
//
//	/2/users/2244994945/tweets     /*/users/*/tweets
//	/rest/api/3/issue/PROJ-12      /rest/api/*/issue/*
//
// Names are words in lower or mixed case. A segment with a digit, without a lower case letter or
// of many bytes is an id; that a version is one, too, does no harm. A name that a user has chosen,
// such as "jack", looks like a word, so the words before such names must be known.

const longestName = 40 // bytes

// endpoint returns the name of a gate: the host, the method and the path of req without ids. The
// segment after one in names is an id whatever it looks like, and the one after one in kept stays.
func endpoint(req *http.Request, names, kept []string) string {
	var b strings.Builder
	b.WriteString(hostOf(req))
	b.WriteByte(' ')
	b.WriteString(cmp.Or(req.Method, http.MethodGet))
	b.WriteByte(' ')
	before := ""
	for segment := range strings.SplitSeq(strings.Trim(req.URL.Path, "/"), "/") {
		id := isID(segment) || slices.Contains(names, before)
		keep := slices.Contains(kept, before)
		if before = segment; id && !keep {
			segment = "*"
		}
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return b.String()
}

// isID reports whether a segment of a path is not a word.
func isID(segment string) bool {
	lower := false
	for _, c := range []byte(segment) {
		if '0' <= c && c <= '9' || c >= 0x80 {
			return true
		}
		lower = lower || 'a' <= c && c <= 'z'
	}
	return !lower && segment != "" || len(segment) > longestName
}

// hostOf returns the key of a transport without a Config.Key.
func hostOf(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }
