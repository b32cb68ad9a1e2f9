package ratelimit

import (
	"bytes"
	"math/bits"
	"net/http"
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
	perVendor                 // Fastly-RateLimit-Remaining: the vendor is in the place of the unit
	vendor                    // all others
	cache                     // not about limits: whether the response is from a cache
)

// A part is the meaning of a field of a family.
type part uint8

// Parts of retryAfter.
const (
	retryAfterMs part = iota
	msRetryAfterMs
	amzRetryAfter
	xRetryIn // not rounded to seconds, as the Retry-After beside it
	retryAfterItself
	xRetryAfter
	xRateLimitRetryAfter
	xRateLimitRetryAfterSeconds
	contentfulReset
	larkReset
	esiErrorReset // of a limit of errors: it matters only if that has throttled the call
	grpcPushback  // before shouldRetry, which takes precedence
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

// Parts of plain, xPlain, perUnit and perVendor.
const (
	most part = iota
	remaining
	used
	resetAfter // before reset, because it needs no common clock
	reset
	resetTime
	next
	interval // the length of the window
	resource
	bucket
	scope
	global
	reason // only of plain
)

// Parts of vendor.
const (
	shopify part = iota
	azure
	amazon
)

// Part of cache.
const age part = 0

// A kind is the meaning of a field.
type kind struct {
	family   family
	part     part
	from, to uint8 // where the unit or the vendor is in the name of the field
}

// A knownField is a header field that this package reads.
type knownField struct {
	key    string
	values []string
	kind
}

// A name is that of a field that is read, in lower case. The text in braces is a unit or a vendor,
// and a star stands for any text that is not empty.
type name struct {
	text   string
	family family
	part   part
}

// names are all fields that are read. To read another one, add it here and to the reader of
// its family. Without stars a name takes precedence, and otherwise if it comes first.
// Names that begin with X-RateLimit- are also read as X-Rate-Limit-, and so are those that begin
// with any vendor.
var names = []name{
	{"age", cache, age},

	{"retry-after-ms", retryAfter, retryAfterMs},
	{"x-ms-retry-after-ms", retryAfter, msRetryAfterMs},
	{"x-amz-retry-after", retryAfter, amzRetryAfter},
	{"x-retry-in", retryAfter, xRetryIn},
	{"retry-after", retryAfter, retryAfterItself},
	{"x-retry-after", retryAfter, xRetryAfter},
	{"x-ratelimit-retry-after", retryAfter, xRateLimitRetryAfter},
	{"x-ratelimit-retry-after-seconds", retryAfter, xRateLimitRetryAfterSeconds},
	{"grpc-retry-pushback-ms", retryAfter, grpcPushback},

	{"x-should-retry", shouldRetry, xShouldRetry},
	{"stripe-should-retry", shouldRetry, stripeShouldRetry},

	{"ratelimit", structured, items},
	{"ratelimit-policy", structured, policy},

	{"ratelimit-limit", plain, most},
	{"ratelimit-remaining", plain, remaining},
	{"ratelimit-observed", plain, used},
	{"ratelimit-reset-after", plain, resetAfter},
	{"ratelimit-reset", plain, reset},
	{"ratelimit-resettime", plain, resetTime},
	{"ratelimit-reason", plain, reason},

	{"x-ratelimit-limit", xPlain, most},
	{"x-ratelimit-remaining", xPlain, remaining},
	{"x-ratelimit-used", xPlain, used},
	{"x-ratelimit-reset-after", xPlain, resetAfter},
	{"x-ratelimit-reset", xPlain, reset},
	{"x-ratelimit-next", xPlain, next},
	{"x-ratelimit-resource", xPlain, resource},
	{"x-ratelimit-bucket", xPlain, bucket},
	{"x-ratelimit-scope", xPlain, scope},
	{"x-ratelimit-global", xPlain, global},

	{"*-ratelimit-{*}-limit", perUnit, most},
	{"*-ratelimit-{*}-remaining", perUnit, remaining},
	{"*-ratelimit-{*}-reset-after", perUnit, resetAfter},
	{"*-ratelimit-{*}-reset", perUnit, reset},
	{"{*}-ratelimit-limit", perVendor, most},
	{"{*}-ratelimit-remaining", perVendor, remaining},
	{"{*}-ratelimit-reset-after", perVendor, resetAfter},
	{"{*}-ratelimit-reset", perVendor, reset},
	{"{*}-ratelimit-retry-after", retryAfter, xRateLimitRetryAfter},
	{"{*}-ratelimit-retryafter", retryAfter, xRateLimitRetryAfter},

	{"x-shopify-shop-api-call-limit", vendor, shopify},
	{"x-amzn-ratelimit-limit", vendor, amazon},
	{"x-ms-ratelimit-remaining-{*}", vendor, azure},

	{"x-hubspot-ratelimit-{daily}", perUnit, most},
	{"x-hubspot-ratelimit-{secondly}", perUnit, most},
	{"x-ratelimit-limit-{*}", perUnit, most},
	{"x-ratelimit-remaining-{*}", perUnit, remaining},
	{"x-ratelimit-reset-after-{*}", perUnit, resetAfter},
	{"x-ratelimit-reset-{*}", perUnit, reset},
	{"x-ratelimit-{*}-limit", perUnit, most},
	{"x-ratelimit-{*}-remaining", perUnit, remaining},
	{"x-ratelimit-{*}-reset-after", perUnit, resetAfter},
	{"x-ratelimit-{*}-reset", perUnit, reset},
	{"x-ratelimit-{*}-max", perUnit, most},
	{"x-ratelimit-{*}-interval-ms", perUnit, interval},

	// These are the last, because they share the bits of others, and those had better have no stars.
	{"x-contentful-ratelimit-reset", retryAfter, contentfulReset},
	{"x-ogw-ratelimit-reset", retryAfter, larkReset},
	{"x-esi-error-limit-reset", retryAfter, esiErrorReset},
	{"x-ratelimit-requests-quota", xPlain, most},
	{"x-ratelimit-requests-left", xPlain, remaining},
	{"x-ratelimit-time-reset-ms", xPlain, resetAfter},
	{"gw-ratelimit-limit", xPlain, most},
	{"gw-ratelimit-remaining", xPlain, remaining},
	{"gw-ratelimit-reset", xPlain, resetAfter},
	{"x-ratelimit-max", xPlain, most},
	{"x-ratelimit-interval", xPlain, interval},
	{"x-ratelimit-interval-milliseconds", xPlain, interval},
	{"{x-hubspot}-ratelimit-max", perVendor, most},
	{"{x-hubspot}-ratelimit-interval-milliseconds", perVendor, interval},
}

const (
	shortestName = 3   // of which the third letter can be looked at
	longestName  = 128 // far more than any known server uses
)

// spellings returns n in its spellings.
func (n name) spellings() []name {
	all := []name{n}
	for _, word := range []string{"x", "{*}"} {
		if rest, ok := strings.CutPrefix(n.text, word+"-ratelimit-"); ok {
			n.text = word + "-rate-limit-" + rest
			all = append(all, n)
		}
	}
	return all
}

// A pattern is a name with stars.
type pattern struct {
	anyBefore     bool // it begins with a star
	before, after string
	bit           uint64
	name
}

// A nameIndex finds the kind of a field by its name. Most fields of a header are not about
// limits. So at first it looks at the length of a name and at three of its letters: each name
// of the table has a bit, which it shares with the 64th after it, and an unknown name usually
// has no bit in common with all four. This takes a single branch: a map is visited in random
// order, so the processor would mispredict each further branch.
type nameIndex struct {
	firsts, thirds, lasts [32]uint64 // by the letter, without its case
	sizes                 [longestName + 1]uint64

	spelled [64]struct { // a name without stars for each bit, as net/http spells it
		key string
		kind
	}
	exact    map[string]kind // all names without stars
	patterns []pattern       // the others
}

var known = newNameIndex(names)

func newNameIndex(names []name) (x nameIndex) {
	x.exact = make(map[string]kind)
	bit := uint64(1)
	open := make(map[byte]uint64) // bits of names that begin with any letters, by their last letter
	for _, n := range names {
		for _, n := range n.spellings() {
			// All of those that end alike share a bit, as they admit nearly the same.
			last := n.text[len(n.text)-1]
			if shared := open[last]; n.isOpen() && shared != 0 {
				x.add(n, shared)
				continue
			}
			if n.isOpen() {
				open[last] = bit
			}
			x.add(n, bit)
			bit = bits.RotateLeft64(bit, 1)
		}
	}
	return x
}

// isOpen reports whether n begins with any letters.
func (n name) isOpen() bool { return n.text[0] == '*' || strings.HasPrefix(n.text, "{*}") }

// add adds n, whose bit is given.
func (x *nameIndex) add(n name, bit uint64) {
	before, rest, _ := strings.Cut(n.text, "{")
	unit, after, _ := strings.Cut(rest, "}")
	p := pattern{before: before, after: after, bit: bit, name: n}
	p.before, p.anyBefore = strings.CutPrefix(before, "*")
	least := len(p.before) + len(unit) + len(after)
	if p.anyBefore {
		least++
	}
	most := longestName
	if !strings.Contains(n.text, "*") {
		most = least
		text, k := before+unit+after, kind{n.family, n.part, 0, 0}
		if unit != "" {
			k.from, k.to = uint8(len(before)), uint8(len(before)+len(unit))
		}
		x.exact[text] = k
		if usual := &x.spelled[bits.TrailingZeros64(bit)]; usual.key == "" {
			usual.key, usual.kind = http.CanonicalHeaderKey(text), k
		}
	} else {
		x.patterns = append(x.patterns, p)
	}
	for size := least; size <= most; size++ {
		x.sizes[size] |= bit
	}
	text := strings.NewReplacer("{", "", "}", "").Replace(n.text)
	admit(&x.lasts, text[len(text)-1], bit)
	if n.isOpen() {
		text = "***"
	}
	admit(&x.firsts, text[0], bit)
	admit(&x.thirds, text[2], bit)
}

// admit sets bit for a letter, or for all if that is a star.
func admit(letters *[32]uint64, letter byte, bit uint64) {
	if letter != '*' {
		letters[letter%32] |= bit
		return
	}
	for i := range letters {
		letters[i] |= bit
	}
}

// mayBe returns the bits of the names that key may be, by its length and three letters.
func (x *nameIndex) mayBe(key string) uint64 {
	n := len(key)
	if n < shortestName || n > longestName {
		return 0
	}
	return x.sizes[n] & x.firsts[key[0]%32] & x.lasts[key[n-1]%32] & x.thirds[key[2]%32]
}

// classify returns the kind of the field called key, and whether it is one that is read.
func classify(key string) (k kind, read bool) {
	if may := known.mayBe(key); may != 0 {
		return known.find(key, may)
	}
	return kind{}, false
}

// find is classify for a field that may have the names with those bits.
func (x *nameIndex) find(key string, may uint64) (kind, bool) {
	for left := may; left != 0; left &= left - 1 { // usually finds it, without a map
		if usual := &x.spelled[bits.TrailingZeros64(left)]; usual.key == key {
			return usual.kind, true
		}
	}
	var buf [longestName]byte
	name := buf[:len(key)]
	for i := range name {
		name[i] = lower[key[i]]
	}
	if k, read := x.exact[string(name)]; read {
		return k, true
	}
	for i := range x.patterns {
		p := &x.patterns[i]
		if p.bit&may == 0 {
			continue
		}
		if from, to, ok := p.match(name); ok {
			return kind{p.family, p.part, uint8(from), uint8(to)}, true
		}
	}
	return kind{}, false
}

// match reports whether p is the pattern of name, and returns where the unit is.
func (p *pattern) match(name []byte) (from, to int, ok bool) {
	to = len(name) - len(p.after)
	if to < 0 || string(name[to:]) != p.after {
		return 0, 0, false
	}
	begin := 0
	if p.anyBefore {
		if begin = bytes.Index(name, []byte(p.before)); begin <= 0 {
			return 0, 0, false
		}
	}
	from = begin + len(p.before)
	if from >= to || string(name[begin:from]) != p.before {
		return 0, 0, false
	}
	return from, to, true
}

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

// inMillis reports whether the numbers of a field are milliseconds: from now, or of a window.
func (f *knownField) inMillis() bool {
	n := len(f.key)
	return strings.EqualFold(f.key[n-3:], "-ms") || strings.EqualFold(f.key, "gw-ratelimit-reset") || // KuCoin
		f.part == interval && strings.EqualFold(f.key[max(0, n-len("-milliseconds")):], "-milliseconds")
}

// unit returns the unit or the vendor in the name of the field, in lower case.
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

// ranks is the number of ranks: at most 64, the bits of a word, or this does not compile. The
// last one is the last part that xPlain has.
const ranks = uint(xPlain)*parts + uint(reason)

var _ [64 - ranks]struct{}

// rank is the place of a field in the order of reading, for families before perUnit.
func (k kind) rank() uint { return uint(k.family)*parts + uint(k.part) }

const parts = uint(reason + 1)

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

// insert puts at into order, which has indices of fields in the order of reading, except for
// the last one; that is replaced.
func insert(fields []knownField, order []uint8, at uint8) {
	i := len(order) - 1
	for ; i > 0 && fields[at].compare(&fields[order[i-1]]) < 0; i-- {
		order[i] = order[i-1]
	}
	order[i] = at
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

// belongsTo reports whether f is about the same limit as g, a field of plain, xPlain, perUnit or
// perVendor.
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
