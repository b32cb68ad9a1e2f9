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

// classify finds out what the field called key is. Every field of every
// response comes by here, so most are turned away by a letter or two.
func classify(key string) (knownField, bool) {
	if len(key) < shortestName || len(key) > longestName {
		return knownField{}, false
	}
	const lower = 'a' - 'A'
	switch third, fourth, last := key[2]|lower, key[3]|lower, key[len(key)-1]|lower; {
	case len(key) >= shortestInfix && (last == 't' || last == 'g'): // …-RateLimit-…-Limit, -Remaining, -Reset
	case key[0]|lower == 'r' && third == 't': // RateLimit, Retry-After
	case key[0]|lower == 's' && len(key) == len("Stripe-Should-Retry"):
	case key[0]|lower == 'g' && len(key) == len("Grpc-Retry-Pushback-Ms"):
	case key[0]|lower != 'x':
		return knownField{}, false
	case third == 'r' && key[4]|lower == 't': // X-RateLimit, X-Rate-Limit, X-Retry-After
	case third == 'a' && last == 'r': // X-Amz-Retry-After
	case third == 'm' && fourth == 's', third == 's' && fourth == 'h', third == 'h' && fourth == 'u':
		// X-Ms-…, X-Should-Retry, X-Shopify-…, X-HubSpot-…
	default:
		return knownField{}, false
	}
	return classifyLower(key)
}

// classifyLower compares the whole of key, in lower case.
func classifyLower(key string) (knownField, bool) {
	var buf [longestName]byte
	name := buf[:len(key)]
	for i := range len(key) {
		c := key[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		name[i] = c
	}
	is := func(f family, p part) (knownField, bool) { return knownField{key: key, family: f, part: p}, true }
	switch string(name) {
	case "retry-after-ms":
		return is(retryAfter, retryAfterMs)
	case "x-ms-retry-after-ms":
		return is(retryAfter, msRetryAfterMs)
	case "x-amz-retry-after":
		return is(retryAfter, amzRetryAfter)
	case "retry-after":
		return is(retryAfter, retryAfterItself)
	case "x-retry-after":
		return is(retryAfter, xRetryAfter)
	case "grpc-retry-pushback-ms":
		return is(retryAfter, grpcPushback)
	case "x-should-retry":
		return is(shouldRetry, xShouldRetry)
	case "stripe-should-retry":
		return is(shouldRetry, stripeShouldRetry)
	case "ratelimit":
		return is(structured, items)
	case "ratelimit-policy":
		return is(structured, policy)
	case "ratelimit-observed":
		return is(plain, used)
	case "ratelimit-resettime":
		return is(plain, resetTime)
	case "ratelimit-reason":
		return is(plain, reason)
	case "x-shopify-shop-api-call-limit":
		return is(vendor, shopify)
	case "x-amzn-ratelimit-limit":
		return is(vendor, amazon)
	case "x-hubspot-ratelimit-daily", "x-hubspot-ratelimit-secondly":
		f, _ := is(perUnit, quota)
		f.from, f.to = uint8(len("x-hubspot-ratelimit-")), uint8(len(key))
		return f, true
	}
	if from := after(name, "x-ratelimit-"); from > 0 {
		return classifyX(key, name, from)
	}
	if from := after(name, "x-rate-limit-"); from > 0 {
		return classifyX(key, name, from)
	}
	if from := after(name, "ratelimit-"); from > 0 {
		p, to := partAt(name[from:])
		return knownField{key: key, family: plain, part: p}, to > 0 && from+to == len(name)
	}
	if from := after(name, "x-ms-ratelimit-remaining-"); from > 0 {
		return knownField{key: key, family: vendor, part: azure, from: uint8(from), to: uint8(len(key))}, from < len(key)
	}
	if from := bytes.Index(name, []byte("-ratelimit-")); from > 0 {
		return classifyInfix(key, name, from+len("-ratelimit-"))
	}
	return knownField{}, false
}

// classifyX is classify for X-RateLimit- and what follows from from.
func classifyX(key string, name []byte, from int) (knownField, bool) {
	f := knownField{key: key, family: xPlain}
	switch string(name[from:]) {
	case "retry-after":
		f.family, f.part = retryAfter, xRateLimitRetryAfter
		return f, true
	case "used":
		f.part = used
		return f, true
	case "next":
		f.part = next
		return f, true
	case "resource":
		f.part = resource
		return f, true
	case "bucket":
		f.part = bucket
		return f, true
	case "scope":
		f.part = scope
		return f, true
	case "global":
		f.part = global
		return f, true
	}
	p, to := partAt(name[from:])
	switch to += from; {
	case to == from:
		return classifyInfix(key, name, from)
	case to == len(name):
		f.part = p
		return f, true
	case p == resetAfter || to+1 == len(name):
		return knownField{}, false
	}
	f.family, f.part, f.from, f.to = perUnit, p, uint8(to+1), uint8(len(name))
	return f, true
}

// classifyInfix is classify for a name with a unit from from, and then a part.
func classifyInfix(key string, name []byte, from int) (knownField, bool) {
	for _, suffix := range []struct {
		name string
		part part
	}{{"-limit", quota}, {"-remaining", remaining}, {"-reset", reset}} {
		if to := len(name) - len(suffix.name); to > from && string(name[to:]) == suffix.name {
			return knownField{key: key, family: perUnit, part: suffix.part, from: uint8(from), to: uint8(to)}, true
		}
	}
	return knownField{}, false
}

// partAt returns the part that name begins with, and where that ends: at the
// end of name or before a hyphen. The end is 0 if there is none.
func partAt(name []byte) (part, int) {
	for _, p := range []struct {
		name string
		part part
	}{{"limit", quota}, {"remaining", remaining}, {"reset-after", resetAfter}, {"reset", reset}} {
		if end := after(name, p.name); end > 0 && (end == len(name) || name[end] == '-') {
			return p.part, end
		}
	}
	return 0, 0
}

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
