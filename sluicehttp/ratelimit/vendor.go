package ratelimit

import (
	"strings"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// readVendor reads a field of a single vendor.
func (r *reader) readVendor(f *knownField) {
	switch f.part {
	case shopify:
		r.readShopify(f)
	case azure:
		r.readAzure(f)
	case amazon:
		r.readAmazon(f)
	}
}

// readShopify reads the level of the bucket of a shop, "32/40". The header does not say how
// fast it leaks.
func (r *reader) readShopify(f *knownField) {
	found := false
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		if found {
			r.warn(f.key, v, whySecond)
			return
		}
		level, capacity, _ := strings.Cut(v, "/")
		used, _, why1 := parseNumber(trim(level))
		most, _, why2 := parseNumber(trim(capacity))
		if why1 != "" || why2 != "" {
			r.warn(f.key, v, "not two numbers with a slash")
			continue
		}
		found = true
		r.add(&limit{family: vendor, Limit: Limit{
			Unit:      "requests",
			Max:       most.amount(),
			Used:      used.amount(),
			Remaining: most.minus(used).amount(),
			Source:    f.key,
		}})
	}
}

// readAzure reads the remaining quota of the limit that the field is named after, or of several
// named ones: "Microsoft.Compute/GetVMScaleSet3Min;197,…".
func (r *reader) readAzure(f *knownField) {
	items := 0
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		for item := range strings.SplitSeq(v, ",") {
			if items++; items > mostItems {
				r.warn(f.key, "", whyItems)
				return
			}
			name, left, named := strings.Cut(item, ";")
			if !named {
				name, left = f.unit(), item
			}
			name, left = trim(name), trim(left)
			n, _, why := parseNumber(left)
			switch {
			case left == "-1": // unknown
			case why != "":
				r.warn(f.key, item, why)
			default:
				r.add(&limit{family: vendor, Limit: Limit{
					Name:      name,
					Remaining: n.amount(),
					Source:    f.key,
				}})
			}
		}
	}
}

// readAmazon reads the rate of the Selling Partner API, in requests per second:
// "0.5", and also "0.0167".
func (r *reader) readAmazon(f *knownField) {
	for _, v := range f.values {
		if v = r.clean(f, v); v == "" {
			continue
		}
		n, _, why := parseNumber(v)
		switch {
		case why != "":
			r.warn(f.key, v, why)
		case n == number{}:
			r.warn(f.key, v, "a rate of 0")
		case r.Rate != limits.Rate{}:
			r.warn(f.key, v, whySecond)
			return
		default:
			r.Rate = perSecond(n)
		}
	}
}

// perSecond returns n per second as a reduced fraction: 0.5 is 1 per 2 s. From 10⁹ on it
// drops decimals.
func perSecond(n number) limits.Rate {
	if n.whole >= 1e9 {
		return limits.Rate{Count: n.whole, Per: time.Second}
	}
	count, seconds := n.whole*1e9+int64(n.nano), int64(1e9)
	a, b := count, seconds
	for b != 0 { // Euclid
		a, b = b, a%b
	}
	return limits.Rate{Count: count / a, Per: time.Duration(seconds/a) * time.Second}
}
