package ratelimit

import (
	"bytes"
	"math/bits"
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

// A kind is what a field says.
type kind struct {
	family   family
	part     part
	from, to uint8 // where the unit is in the name of the field
}

// A knownField is a header field that this package reads.
type knownField struct {
	key    string
	values []string
	kind
}

const (
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

// Most fields of a header are not about limits. mayMatter rejects nearly all of those by their
// length, first letter and last letter, with tables and a single branch: a map is visited in
// random order, so the processor would mispredict each further branch. mayBeKnown and classify
// reject the others.

// Groups of names, for mayMatter.
const (
	groupAge    = 1 << iota // Age
	groupR                  // RateLimit, Retry-After
	groupX                  // X-…
	groupStripe             // Stripe-Should-Retry
	groupGrpc               // Grpc-Retry-Pushback-Ms
	groupInfix              // …-RateLimit-…-Limit, -Remaining, -Reset, -Reset-After
)

var (
	groupsBegun  = groupsOf(map[byte]uint8{'a': groupAge, 'r': groupR, 'x': groupX, 's': groupStripe, 'g': groupGrpc})
	groupsEnded  = groupsOf(map[byte]uint8{'t': groupInfix, 'g': groupInfix, 'r': groupInfix})
	groupsOfSize = func() (table [longestName + 1]uint8) {
		table[len("Age")] |= groupAge
		table[len("Stripe-Should-Retry")] |= groupStripe
		table[len("Grpc-Retry-Pushback-Ms")] |= groupGrpc
		for i := range table {
			if i >= len("ratelimit") {
				table[i] |= groupR
			}
			if i >= len("x-retry-after") {
				table[i] |= groupX
			}
			if i >= shortestInfix {
				table[i] |= groupInfix
			}
		}
		return table
	}()
)

// groupsOf returns a table of the groups of letters, in both cases.
func groupsOf(letters map[byte]uint8) (table [256]uint8) {
	for c, group := range letters {
		table[c], table[c-'a'+'A'] = group, group
	}
	return table
}

// mayMatter reports whether the field called key may be Age or one that classify knows.
func mayMatter(key string) bool {
	n := len(key)
	return n > 0 && n <= longestName && (groupsBegun[key[0]]|groupsEnded[key[n-1]])&groupsOfSize[n] != 0
}

// isAge reports whether key, for which mayMatter returned true, is Age.
func isAge(key string) bool { return len(key) == len("Age") && strings.EqualFold(key, "Age") }

// mayBeKnown reports whether key, for which mayMatter returned true, may be one that
// classifyLower knows. It looks at a few letters only.
func mayBeKnown(key string) bool {
	if len(key) < len("ratelimit") {
		return false
	}
	last := lower[key[len(key)-1]]
	if len(key) >= shortestInfix && (last == 't' || last == 'g' || last == 'r') {
		return true
	}
	third := lower[key[2]]
	switch lower[key[0]] {
	case 'r':
		return third == 't' // RateLimit, Retry-After
	case 's', 'g':
		return true
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

// classify returns the kind of the field called key, for which mayMatter returned true, and
// whether it is one that is read.
func classify(key string) (k kind, read bool) {
	switch key { // the most frequent ones, as net/http spells them: saves an eighth of Parse
	case "X-Ratelimit-Limit":
		return of(xPlain, most)
	case "X-Ratelimit-Remaining":
		return of(xPlain, remaining)
	case "X-Ratelimit-Used":
		return of(xPlain, used)
	case "X-Ratelimit-Reset":
		return of(xPlain, reset)
	case "X-Ratelimit-Resource":
		return of(xPlain, resource)
	}
	if !mayBeKnown(key) {
		return kind{}, false
	}
	return classifyLower(key)
}

// classifyLower is classify for names in any case.
func classifyLower(key string) (kind, bool) {
	var buf [longestName]byte
	name := buf[:len(key)]
	for i := range name {
		name[i] = lower[key[i]]
	}
	if from := after(name, "x-ratelimit-"); from > 0 {
		return classifyX(name, from)
	}
	if from := after(name, "x-rate-limit-"); from > 0 {
		return classifyX(name, from)
	}
	switch string(name) {
	case "retry-after-ms":
		return of(retryAfter, retryAfterMs)
	case "x-ms-retry-after-ms":
		return of(retryAfter, msRetryAfterMs)
	case "x-amz-retry-after":
		return of(retryAfter, amzRetryAfter)
	case "retry-after":
		return of(retryAfter, retryAfterItself)
	case "x-retry-after":
		return of(retryAfter, xRetryAfter)
	case "grpc-retry-pushback-ms":
		return of(retryAfter, grpcPushback)
	case "x-should-retry":
		return of(shouldRetry, xShouldRetry)
	case "stripe-should-retry":
		return of(shouldRetry, stripeShouldRetry)
	case "ratelimit":
		return of(structured, items)
	case "ratelimit-policy":
		return of(structured, policy)
	case "x-shopify-shop-api-call-limit":
		return of(vendor, shopify)
	case "x-amzn-ratelimit-limit":
		return of(vendor, amazon)
	case "x-hubspot-ratelimit-daily", "x-hubspot-ratelimit-secondly":
		return ofUnit(perUnit, most, len("x-hubspot-ratelimit-"), len(key))
	}
	if from := after(name, "ratelimit-"); from > 0 {
		return classifyPlain(name, from)
	}
	if from := after(name, "x-ms-ratelimit-remaining-"); from > 0 {
		if from == len(key) {
			return kind{}, false
		}
		return ofUnit(vendor, azure, from, len(key))
	}
	if from := bytes.Index(name, []byte("-ratelimit-")); from > 0 {
		return classifyInfix(name, from+len("-ratelimit-"))
	}
	return kind{}, false
}

// of returns the kind of a name without a unit.
func of(family family, part part) (kind, bool) { return kind{family: family, part: part}, true }

// ofUnit returns the kind of a name with a unit.
func ofUnit(family family, part part, from, to int) (kind, bool) {
	return kind{family, part, uint8(from), uint8(to)}, true
}

// classifyPlain is classify for RateLimit- and the rest of the name at from.
func classifyPlain(name []byte, from int) (kind, bool) {
	switch string(name[from:]) {
	case "limit":
		return of(plain, most)
	case "remaining":
		return of(plain, remaining)
	case "reset":
		return of(plain, reset)
	case "reset-after":
		return of(plain, resetAfter)
	case "observed":
		return of(plain, used)
	case "resettime":
		return of(plain, resetTime)
	case "reason":
		return of(plain, reason)
	}
	return kind{}, false
}

// classifyX is classify for X-RateLimit- and the rest of the name at from.
func classifyX(name []byte, from int) (kind, bool) {
	switch string(name[from:]) {
	case "limit":
		return of(xPlain, most)
	case "remaining":
		return of(xPlain, remaining)
	case "reset":
		return of(xPlain, reset)
	case "reset-after":
		return of(xPlain, resetAfter)
	case "used":
		return of(xPlain, used)
	case "next":
		return of(xPlain, next)
	case "resource":
		return of(xPlain, resource)
	case "bucket":
		return of(xPlain, bucket)
	case "scope":
		return of(xPlain, scope)
	case "global":
		return of(xPlain, global)
	case "retry-after":
		return of(retryAfter, xRateLimitRetryAfter)
	}
	for _, prefix := range partNames {
		if to := from + after(name[from:], prefix.name); to > from && to+1 < len(name) && name[to] == '-' {
			return ofUnit(perUnit, prefix.part, to+1, len(name))
		}
	}
	return classifyInfix(name, from)
}

// classifyInfix is classify for a name with a unit at from, followed by a part.
func classifyInfix(name []byte, from int) (kind, bool) {
	for _, suffix := range partNames {
		to := len(name) - len(suffix.name) - 1
		if to > from && name[to] == '-' && string(name[to+1:]) == suffix.name {
			return ofUnit(perUnit, suffix.part, from, to)
		}
	}
	return kind{}, false
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

// ranks is the number of ranks: at most 64, the bits of a word, or this does not compile.
const ranks = uint(perUnit) * uint(reason+1)

var _ [64 - ranks]struct{}

// rank is the place of a field in the order of reading, for families before perUnit.
func (k kind) rank() uint { return uint(k.family)*uint(reason+1) + uint(k.part) }

// inOrder sets order to the indices of fields in the order of reading. It sorts by rank if all
// ranks differ, as in most headers, which takes no branches that can be mispredicted.
func inOrder(fields []knownField, order []uint8) {
	var at [64]uint8 // by rank
	seen := uint64(0)
	for i := range fields {
		bit := uint64(1) << (fields[i].rank() % 64)
		if fields[i].family >= perUnit || seen&bit != 0 {
			for i := range fields {
				insert(fields, order[:i+1], uint8(i))
			}
			return
		}
		seen |= bit
		at[fields[i].rank()%64] = uint8(i)
	}
	for i := range order {
		order[i] = at[bits.TrailingZeros64(seen)%64]
		seen &= seen - 1
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

// belongsTo reports whether f is about the same limit as g, a field of plain, xPlain or
// perUnit.
func (f *knownField) belongsTo(g *knownField) bool {
	return f.family == g.family && (f.family < perUnit || compareFold(f.key[f.from:f.to], g.key[g.from:g.to]) == 0)
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
