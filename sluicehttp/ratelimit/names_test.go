package ratelimit

import (
	"net/http"
	"strings"
	"testing"
)

// instance returns a field with the name n, and its unit.
func (n name) instance() (field, unit string) {
	field = strings.NewReplacer("{*}", "{some-units}", "*", "vendor").Replace(n.text)
	before, rest, _ := strings.Cut(field, "{")
	unit, after, _ := strings.Cut(rest, "}")
	return before + unit + after, unit
}

// Each name of the table is found in each case, whatever the first look at its letters says.
func TestNames_AreAllRead(t *testing.T) {
	for _, n := range names {
		for _, n := range n.spellings() {
			field, unit := n.instance()
			for _, spelled := range []string{field, strings.ToUpper(field), http.CanonicalHeaderKey(field)} {
				k, read := classify(spelled)
				f := knownField{key: spelled, kind: k}
				if !read || k.family != n.family || k.part != n.part || f.unit() != unit {
					t.Errorf("%s: got %+v, %v, unit %q, want %+v, %q", spelled, k, read, f.unit(), n, unit)
				}
			}
		}
	}
}

// The first look rejects fields that are not about limits, or it would be of no use.
func TestNames_OrdinaryFieldsAreRejectedByTheirLetters(t *testing.T) {
	for key := range ordinary() {
		if known.mayBe(key) != 0 {
			t.Errorf("%s passes", key)
		}
	}
}

// A table with more names than bits has no name that is not found.
func TestNameIndex_MoreNamesThanBits(t *testing.T) {
	var many []name
	for i := range 200 {
		many = append(many, name{"a" + strings.Repeat(string(rune('a'+i%26)), 3+i/26) + "-x", vendor, part(i)})
	}
	x := newNameIndex(many)
	for i, n := range many {
		if k, read := x.find(n.text, x.mayBe(n.text)); x.mayBe(n.text) == 0 || !read || k.part != part(i) {
			t.Errorf("%s: %+v, %v", n.text, k, read)
		}
	}
}
