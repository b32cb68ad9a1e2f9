package ratelimit

import (
	"bytes"
	"strings"
)

// A family is a set of fields that are read together. Families and parts are in the order
// of reading: if two of them are about the same limit, the earlier takes precedence.
type family uint8

const (
	retryAfter  family = iota // when to retry; the first valid field
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
	grpcPushback // before shouldRetry, which takes precedence
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
	most part = iota
	remaining
	used
	resetAfter // before reset, because it needs no common clock
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

// A knownField is a header field that this package reads. key[from:to] is the unit in its
// name.
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
	longestName   = 128 // far more than any known server uses
)

// lower maps bytes to lower case, without branches that would be mispredicted.
var lower = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			table[i] += 'a' - 'A'
		}
	}
	return table
}()

// mayMatter reports whether the field called key may be one that is read. It is called for
// every field of every response, so it looks at a few letters only.
func mayMatter(key string) bool {
	if len(key) < shortestName || len(key) > longestName {
		return false
	}
	last := lower[key[len(key)-1]]
	if len(key) >= shortestInfix && (last == 't' || last == 'g') {
		return true // …-RateLimit-…-Limit, -Remaining, -Reset
	}
	third := lower[key[2]]
	switch lower[key[0]] {
	case 'r':
		return third == 't' // RateLimit, Retry-After
	case 's':
		return len(key) == len("Stripe-Should-Retry")
	case 'g':
		return len(key) == len("Grpc-Retry-Pushback-Ms")
	case 'x':
		switch third {
		case 'r':
			return lower[key[4]] == 't' // X-RateLimit, X-Rate-Limit, X-Retry-After
		case 'a':
			return last == 'r' // X-Amz-Retry-After
		case 'm', 's', 'h':
			return true // X-Ms-…, X-Should-Retry, X-Shopify-…, X-HubSpot-…
		}
	}
	return false
}

// classify sets f to the field called key, and reports whether it is one that is read.
// mayMatter(key) must be true.
func (f *knownField) classify(key string) bool {
	f.key = key
	switch key { // the most frequent ones, as net/http spells them: saves an eighth of Parse
	case "X-Ratelimit-Limit":
		return f.is(xPlain, most)
	case "X-Ratelimit-Remaining":
		return f.is(xPlain, remaining)
	case "X-Ratelimit-Used":
		return f.is(xPlain, used)
	case "X-Ratelimit-Reset":
		return f.is(xPlain, reset)
	case "X-Ratelimit-Resource":
		return f.is(xPlain, resource)
	}
	return f.classifyLower(key)
}

// classifyLower is classify for names in any case.
func (f *knownField) classifyLower(key string) bool {
	var buf [longestName]byte
	name := buf[:len(key)]
	for i := range name {
		name[i] = lower[key[i]]
	}
	if from := after(name, "x-ratelimit-"); from > 0 {
		return f.classifyX(name, from)
	}
	if from := after(name, "x-rate-limit-"); from > 0 {
		return f.classifyX(name, from)
	}
	switch string(name) {
	case "retry-after-ms":
		return f.is(retryAfter, retryAfterMs)
	case "x-ms-retry-after-ms":
		return f.is(retryAfter, msRetryAfterMs)
	case "x-amz-retry-after":
		return f.is(retryAfter, amzRetryAfter)
	case "retry-after":
		return f.is(retryAfter, retryAfterItself)
	case "x-retry-after":
		return f.is(retryAfter, xRetryAfter)
	case "grpc-retry-pushback-ms":
		return f.is(retryAfter, grpcPushback)
	case "x-should-retry":
		return f.is(shouldRetry, xShouldRetry)
	case "stripe-should-retry":
		return f.is(shouldRetry, stripeShouldRetry)
	case "ratelimit":
		return f.is(structured, items)
	case "ratelimit-policy":
		return f.is(structured, policy)
	case "x-shopify-shop-api-call-limit":
		return f.is(vendor, shopify)
	case "x-amzn-ratelimit-limit":
		return f.is(vendor, amazon)
	case "x-hubspot-ratelimit-daily", "x-hubspot-ratelimit-secondly":
		return f.isOf(perUnit, most, len("x-hubspot-ratelimit-"), len(key))
	}
	if from := after(name, "ratelimit-"); from > 0 {
		return f.classifyPlain(name, from)
	}
	if from := after(name, "x-ms-ratelimit-remaining-"); from > 0 {
		return from < len(key) && f.isOf(vendor, azure, from, len(key))
	}
	if from := bytes.Index(name, []byte("-ratelimit-")); from > 0 {
		return f.classifyInfix(name, from+len("-ratelimit-"))
	}
	return false
}

// is sets the family and part of f.
func (f *knownField) is(family family, part part) bool {
	f.family, f.part = family, part
	return true
}

// isOf sets the family, part and unit of f.
func (f *knownField) isOf(family family, part part, from, to int) bool {
	f.from, f.to = uint8(from), uint8(to)
	return f.is(family, part)
}

// classifyPlain is classify for RateLimit- and the rest of the name at from.
func (f *knownField) classifyPlain(name []byte, from int) bool {
	switch string(name[from:]) {
	case "limit":
		return f.is(plain, most)
	case "remaining":
		return f.is(plain, remaining)
	case "reset":
		return f.is(plain, reset)
	case "reset-after":
		return f.is(plain, resetAfter)
	case "observed":
		return f.is(plain, used)
	case "resettime":
		return f.is(plain, resetTime)
	case "reason":
		return f.is(plain, reason)
	}
	return false
}

// classifyX is classify for X-RateLimit- and the rest of the name at from.
func (f *knownField) classifyX(name []byte, from int) bool {
	switch string(name[from:]) {
	case "limit":
		return f.is(xPlain, most)
	case "remaining":
		return f.is(xPlain, remaining)
	case "reset":
		return f.is(xPlain, reset)
	case "reset-after":
		return f.is(xPlain, resetAfter)
	case "used":
		return f.is(xPlain, used)
	case "next":
		return f.is(xPlain, next)
	case "resource":
		return f.is(xPlain, resource)
	case "bucket":
		return f.is(xPlain, bucket)
	case "scope":
		return f.is(xPlain, scope)
	case "global":
		return f.is(xPlain, global)
	case "retry-after":
		return f.is(retryAfter, xRateLimitRetryAfter)
	}
	for _, prefix := range partNames {
		if to := from + after(name[from:], prefix.name); to > from && to+1 < len(name) && name[to] == '-' {
			return f.isOf(perUnit, prefix.part, to+1, len(name))
		}
	}
	return f.classifyInfix(name, from)
}

// classifyInfix is classify for a name with a unit at from, followed by a part.
func (f *knownField) classifyInfix(name []byte, from int) bool {
	for _, suffix := range partNames {
		to := len(name) - len(suffix.name) - 1
		if to > from && name[to] == '-' && string(name[to+1:]) == suffix.name {
			return f.isOf(perUnit, suffix.part, from, to)
		}
	}
	return false
}

// partNames are the parts that can have a unit, longer names before their prefixes.
var partNames = [...]struct {
	name string
	part part
}{{"limit", most}, {"remaining", remaining}, {"reset-after", resetAfter}, {"reset", reset}}

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

// compare orders fields for reading. No two fields of a header are equal.
func (f *knownField) compare(g *knownField) int {
	if f.family != g.family {
		return int(f.family) - int(g.family)
	}
	if f.family >= perUnit { // others have no unit
		if c := compareFold(f.key[f.from:f.to], g.key[g.from:g.to]); c != 0 {
			return c
		}
	}
	if f.part != g.part {
		return int(f.part) - int(g.part)
	}
	// X-RateLimit before X-Rate-Limit, upper case first.
	if c := len(f.key) - len(g.key); c != 0 {
		return c
	}
	return strings.Compare(f.key, g.key)
}

// compareFold compares two names of header fields, ignoring case.
func compareFold(a, b string) int {
	for i := range min(len(a), len(b)) {
		if x, y := lower[a[i]], lower[b[i]]; x != y {
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}
