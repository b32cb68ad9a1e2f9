package sluiceredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// longImage and shortImage are what escape may return for long and for short
// strings. No text is both: %h is not one of the four escapes.
var (
	longImage  = regexp.MustCompile(`^%h[0-9a-f]{32}$`)
	shortImage = regexp.MustCompile(`^(?s:[^%{|}]|%25|%7b|%7c|%7d)*$`)
)

// unescape returns the short string of an image.
func unescape(image string) string {
	return strings.NewReplacer("%25", "%", "%7b", "{", "%7c", "|", "%7d", "}").Replace(image)
}

func checkImage(t *testing.T, text string) {
	t.Helper()
	image := escape(text)
	long, short := longImage.MatchString(image), shortImage.MatchString(image)
	if isLong := len(text) > longestText; long != isLong || short == isLong {
		t.Errorf("the image of %.40q (%d bytes) is %q: long %v, short %v", text, len(text), image, long, short)
	}
	if len(text) <= longestText && unescape(image) != text {
		t.Errorf("%q escapes to %q, which is %q", text, image, unescape(image))
	}
}

// No short key has the image of a long one, and no two short keys have the same
// image: random strings, strings made of what escapes are made of, and strings that
// are, or contain, the image of a long one.
func TestImagesOfLongAndShortKeysAreDisjoint(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"%", "%h", "%25", "%7b", "%7c", "%7d", "{", "|", "}", "h", "25", "0", "f", "\x00", "é", "/", ":"}
	for range 20_000 {
		var b strings.Builder
		for range r.IntN(60) {
			if r.IntN(2) == 0 {
				b.WriteString(parts[r.IntN(len(parts))])
			} else {
				b.WriteByte(byte(r.IntN(256)))
			}
		}
		checkImage(t, b.String())
	}
	for i := range 2_000 {
		victim := fmt.Sprintf("https://tenant.example/%0120d", i)
		checkImage(t, victim)
		sum := sha256.Sum256([]byte(victim))
		digits := hex.EncodeToString(sum[:16])
		for _, text := range []string{
			escape(victim), unescape(escape(victim)), digits, "%" + digits, "%h" + digits, "h" + digits,
			"%" + digits[2:], "{" + digits[2:], "|" + digits[2:], "}" + digits[2:],
		} {
			checkImage(t, text)
			if escape(text) == escape(victim) {
				t.Fatalf("%q has the image of a key of %d bytes", text, len(victim))
			}
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("%h0123456789abcdef0123456789abcdef")
	f.Add(strings.Repeat("x", longestText+1))
	f.Fuzz(func(t *testing.T, text string) { checkImage(t, text) })
}

// A caller that chooses short keys cannot take from the bucket of a long one.
func TestShortKeyDoesNotReachALongOne(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		l := newLeaky(t, b.store(t), "api", limits.Rate{Burst: 5, Count: 1, Per: time.Hour})
		for i := 0; ; i++ {
			victim := fmt.Sprintf("https://tenant.example/%0120d", i)
			sum := sha256.Sum256([]byte(victim))
			digits := hex.EncodeToString(sum[:16])
			short, ok := map[string]string{"25": "%", "7b": "{", "7c": "|", "7d": "}"}[digits[:2]]
			if !ok {
				continue
			}
			if res, err := l.Take(bg, short+digits[2:], 5); err != nil || !res.Allowed() {
				t.Fatal(res, err)
			}
			if res, err := l.Take(bg, victim, 5); err != nil || !res.Allowed() {
				t.Errorf("a short key has emptied the bucket of a long one: %+v, %v", res, err)
			}
			return
		}
	})
}
