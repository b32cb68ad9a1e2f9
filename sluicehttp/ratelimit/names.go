package ratelimit

import (
	"bytes"
	"strings"
)

// A family is a set of fields that are read together. The families, and the
// parts of each, are in the order in which they are read: of what two of them
// say about the same limit the earlier counts.
type family uint8

const (
	retryAfter  family = iota // when to come back; the first that is valid
	shouldRetry               // whether to
	structured                // RateLimit and RateLimit-Policy
	plain                     // RateLimit-Limit and so on
	xPlain                    // X-RateLimit-Limit, X-Rate-Limit-Limit
	perUnit                   // X-RateLimit-Limit-Requests, Anthropic-RateLimit-Requests-Limit
	vendor                    // all others
)

// A part is what a field of a family says.
type part uint8

// Parts of retryAfter.
const (
	retryAfterMs part = iota
	msRetryAfterMs
	amzRetryAfter
	retryAfterItself
	xRetryAfter
	xRateLimitRetryAfter
	grpcPushback // before shouldRetry, whose answer counts more
)

// Parts of shouldRetry.
const (
	xShouldRetry part = iota
	stripeShouldRetry
)

// Parts of structured.
const (
	items part = iota
	policy
)

// Parts of plain, xPlain and perUnit.
const (
	quota part = iota
	remaining
	used
	resetAfter // better than reset, as it needs no common clock
	reset
	resetTime
	next
	resource
	bucket
	scope
	global
	reason
)

// Parts of vendor.
const (
	shopify part = iota
	azure
	amazon
)

// A knownField is a field of a header that this package reads. key[from:to]
// is the unit in its name.
type knownField struct {
	key      string
	values   []string
	family   family
	part     part
	from, to uint8
}

const (
	shortestName  = len("ratelimit")
	shortestInfix = len("x-ratelimit-a-limit")
	longestName   = 128 // no field of a known server comes near
)

// mayMatter reports whether the field called key may be one that is read. Every
// field of every response comes by here: a letter or two must do.
func mayMatter(key string) bool {
	if len(key) < shortestName || len(key) > longestName {
		return false
	}
	const lower = 'a' - 'A'
	last := key[len(key)-1] | lower
	if len(key) >= shortestInfix && (last == 't' || last == 'g') {
		return true // …-RateLimit-…-Limit, -Remaining, -Reset
	}
	third := key[2] | lower
	switch key[0] | lower {
	case 'r':
		return third == 't' // RateLimit, Retry-After
	case 's':
		return len(key) == len("Stripe-Should-Retry")
	case 'g':
		return len(key) == len("Grpc-Retry-Pushback-Ms")
	case 'x':
		switch third {
		case 'r':
			return key[4]|lower == 't' // X-RateLimit, X-Rate-Limit, X-Retry-After
		case 'a':
			return last == 'r' // X-Amz-Retry-After
		case 'm', 's', 'h':
			return true // X-Ms-…, X-Should-Retry, X-Shopify-…, X-HubSpot-…
		}
	}
	return false
}

// classify finds out what the field called key is, and reports whether it is
// one that is read. mayMatter must say so.
func (f *knownField) classify(key string) bool {
	var buf [longestName]byte
	name := buf[:len(key)]
	for i := range len(key) {
		c := key[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		name[i] = c
	}
	f.key = key
	switch string(name) {
	case "retry-after-ms":
		return f.is(retryAfter, retryAfterMs, 0, 0)
	case "x-ms-retry-after-ms":
		return f.is(retryAfter, msRetryAfterMs, 0, 0)
	case "x-amz-retry-after":
		return f.is(retryAfter, amzRetryAfter, 0, 0)
	case "retry-after":
		return f.is(retryAfter, retryAfterItself, 0, 0)
	case "x-retry-after":
		return f.is(retryAfter, xRetryAfter, 0, 0)
	case "grpc-retry-pushback-ms":
		return f.is(retryAfter, grpcPushback, 0, 0)
	case "x-should-retry":
		return f.is(shouldRetry, xShouldRetry, 0, 0)
	case "stripe-should-retry":
		return f.is(shouldRetry, stripeShouldRetry, 0, 0)
	case "ratelimit":
		return f.is(structured, items, 0, 0)
	case "ratelimit-policy":
		return f.is(structured, policy, 0, 0)
	case "ratelimit-limit":
		return f.is(plain, quota, 0, 0)
	case "ratelimit-remaining":
		return f.is(plain, remaining, 0, 0)
	case "ratelimit-reset":
		return f.is(plain, reset, 0, 0)
	case "ratelimit-reset-after":
		return f.is(plain, resetAfter, 0, 0)
	case "ratelimit-observed":
		return f.is(plain, used, 0, 0)
	case "ratelimit-resettime":
		return f.is(plain, resetTime, 0, 0)
	case "ratelimit-reason":
		return f.is(plain, reason, 0, 0)
	case "x-shopify-shop-api-call-limit":
		return f.is(vendor, shopify, 0, 0)
	case "x-amzn-ratelimit-limit":
		return f.is(vendor, amazon, 0, 0)
	case "x-hubspot-ratelimit-daily", "x-hubspot-ratelimit-secondly":
		return f.is(perUnit, quota, len("x-hubspot-ratelimit-"), len(key))
	}
	if from := after(name, "x-ratelimit-"); from > 0 {
		return f.classifyX(name, from)
	}
	if from := after(name, "x-rate-limit-"); from > 0 {
		return f.classifyX(name, from)
	}
	if from := after(name, "x-ms-ratelimit-remaining-"); from > 0 {
		return from < len(key) && f.is(vendor, azure, from, len(key))
	}
	if from := bytes.Index(name, []byte("-ratelimit-")); from > 0 {
		return f.classifyInfix(name, from+len("-ratelimit-"))
	}
	return false
}

// is says what f is.
func (f *knownField) is(family family, part part, from, to int) bool {
	f.family, f.part, f.from, f.to = family, part, uint8(from), uint8(to)
	return true
}

// classifyX is classify for X-RateLimit- and what follows from from.
func (f *knownField) classifyX(name []byte, from int) bool {
	switch string(name[from:]) {
	case "limit":
		return f.is(xPlain, quota, 0, 0)
	case "remaining":
		return f.is(xPlain, remaining, 0, 0)
	case "reset":
		return f.is(xPlain, reset, 0, 0)
	case "reset-after":
		return f.is(xPlain, resetAfter, 0, 0)
	case "used":
		return f.is(xPlain, used, 0, 0)
	case "next":
		return f.is(xPlain, next, 0, 0)
	case "resource":
		return f.is(xPlain, resource, 0, 0)
	case "bucket":
		return f.is(xPlain, bucket, 0, 0)
	case "scope":
		return f.is(xPlain, scope, 0, 0)
	case "global":
		return f.is(xPlain, global, 0, 0)
	case "retry-after":
		return f.is(retryAfter, xRateLimitRetryAfter, 0, 0)
	}
	for _, prefix := range partNames {
		if to := from + after(name[from:], prefix.name); to > from && to+1 < len(name) && name[to] == '-' {
			return f.is(perUnit, prefix.part, to+1, len(name))
		}
	}
	return f.classifyInfix(name, from)
}

// classifyInfix is classify for a name with a unit from from, and then a part.
func (f *knownField) classifyInfix(name []byte, from int) bool {
	for _, suffix := range partNames {
		to := len(name) - len(suffix.name) - 1
		if to > from && name[to] == '-' && string(name[to+1:]) == suffix.name {
			return f.is(perUnit, suffix.part, from, to)
		}
	}
	return false
}

// partNames are the parts of which a name can have a unit.
var partNames = [...]struct {
	name string
	part part
}{{"limit", quota}, {"remaining", remaining}, {"reset", reset}}

// after returns the length of prefix if name begins with it, or 0.
func after(name []byte, prefix string) int {
	if len(name) >= len(prefix) && string(name[:len(prefix)]) == prefix {
		return len(prefix)
	}
	return 0
}

// unit returns the unit in the name of the field, in lower case.
func (f *knownField) unit() string {
	switch unit := f.key[f.from:f.to]; unit {
	case "Requests": // as net/http spells it; without an allocation
		return "requests"
	case "Tokens":
		return "tokens"
	default:
		return strings.ToLower(unit)
	}
}

// compare orders fields as they are read. No two fields of a header are equal.
func (f *knownField) compare(g *knownField) int {
	if f.family != g.family {
		return int(f.family) - int(g.family)
	}
	if c := compareFold(f.key[f.from:f.to], g.key[g.from:g.to]); c != 0 {
		return c
	}
	if f.part != g.part {
		return int(f.part) - int(g.part)
	}
	// X-RateLimit before X-Rate-Limit, and what is in upper case first.
	if c := len(f.key) - len(g.key); c != 0 {
		return c
	}
	return strings.Compare(f.key, g.key)
}

// compareFold compares two names of header fields without regard to case.
func compareFold(a, b string) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x += 'a' - 'A'
		}
		if 'A' <= y && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}
