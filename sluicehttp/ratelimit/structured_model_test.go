package ratelimit

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A second reader of RateLimit and RateLimit-Policy: the grammar of RFC 9651 as
// regular expressions, and the drafts as the simplest code that does them.

const (
	sfvKey    = `[a-z*][a-z0-9_.*-]*`
	sfvNumber = `-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})`
	sfvString = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	sfvToken  = "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
	sfvBytes  = `:[A-Za-z0-9+/=]*:`
	sfvBool   = `\?[01]`
	sfvDate   = `@-?[0-9]{1,15}`
	sfvBare   = `(?:` + sfvNumber + `|` + sfvString + `|` + sfvToken + `|` + sfvBytes + `|` + sfvBool + `|` + sfvDate + `)`
	sfvParams = `(?:; *` + sfvKey + `(?:=` + sfvBare + `)?)*`
	sfvItem   = sfvBare + sfvParams
	sfvInner  = `\( *(?:` + sfvItem + `(?: +` + sfvItem + `)* *)?\)` + sfvParams
	sfvMember = `(?:` + sfvItem + `|` + sfvInner + `)`
	sfvEntry  = sfvKey + `(?:=` + sfvMember + `|` + sfvParams + `)`
	sfvComma  = `[ \t]*,[ \t]*`
)

var (
	oneMember = regexp.MustCompile(`^` + sfvMember)
	oneEntry  = regexp.MustCompile(`^` + sfvEntry)
	oneComma  = regexp.MustCompile(`^` + sfvComma)
	oneBare   = regexp.MustCompile(`^` + sfvBare)
	oneParam  = regexp.MustCompile(`^; *(` + sfvKey + `)(?:=(` + sfvBare + `))?`)
	aList     = regexp.MustCompile(`^` + sfvMember + `(?:` + sfvComma + sfvMember + `)*$`)
	aDict     = regexp.MustCompile(`^` + sfvEntry + `(?:` + sfvComma + sfvEntry + `)*$`)
	aBytes    = regexp.MustCompile(sfvBytes)
)

// split returns the members of a list or the entries of a dictionary.
func split(s string, all, one *regexp.Regexp) ([]string, bool) {
	if !all.MatchString(s) {
		return nil, false
	}
	var members []string
	for s != "" {
		m := one.FindString(s)
		members = append(members, m)
		s = s[len(m):]
		s = s[len(oneComma.FindString(s)):]
	}
	return members, true
}

// modelItem takes an item apart. Values stay as they are written.
func modelItem(s string) (bare string, params map[string]string) {
	bare = oneBare.FindString(s)
	params = map[string]string{}
	for s = s[len(bare):]; s != ""; {
		p := oneParam.FindStringSubmatch(s)
		if p == nil {
			return "", nil // an inner list
		}
		params[p[1]] = cmp.Or(p[2], "?1")
		s = s[len(p[0]):]
	}
	return bare, params
}

// modelInt is -1 if s is no integer that is at least least, and -2 if s is empty.
func modelInt(s string, least int64) int64 {
	if s == "" {
		return -2
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least {
		return -1
	}
	return n
}

type modelLimit struct {
	name, pk            string
	most, left, wait, w int64 // -2 if unknown
	policed             bool  // has met its policy
}

func (l modelLimit) String() string {
	return fmt.Sprintf("%q/%q q=%d r=%d t=%d w=%d", l.name, l.pk, l.most, l.left, l.wait, l.w)
}

// modelMember reads an item of RateLimit or RateLimit-Policy.
func modelMember(s string, policy bool) (l modelLimit, ok bool) {
	bare, p := modelItem(s)
	switch {
	case strings.HasPrefix(bare, `"`):
		l.name = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(bare[1 : len(bare)-1])
	case bare != "" && (bare[0] == '*' || bare[0] >= 'A' && bare[0] != '\\'):
		l.name = bare
	default:
		return l, false
	}
	l.most, l.left, l.wait, l.w = -2, -2, -2, -2
	if policy {
		l.most, l.w = modelInt(p["q"], 0), modelInt(p["w"], 1)
		if qu := p["qu"]; qu != "" && qu[0] != '"' {
			return l, false
		}
	} else {
		l.left, l.wait = modelInt(p["r"], 0), modelInt(p["t"], 0)
	}
	if pk := p["pk"]; pk != "" {
		if pk[0] != ':' {
			return l, false
		}
		b, err := base64.StdEncoding.DecodeString(strings.Trim(pk, ":"))
		if err != nil {
			return l, false
		}
		l.pk = string(b)
	}
	bad := l.most == -1 || l.left == -1 || l.wait == -1 || l.w == -1
	nothing := l.most == -2 && l.left == -2 && l.wait == -2 && l.w == -2
	return l, !bad && !nothing
}

// modelRead reads a RateLimit and a RateLimit-Policy field. If they have a name
// twice, or a policy has none, it does not say: how those are joined is in
// TestParse.
func modelRead(items, policies string) (limits []modelLimit, says bool) {
	var all []modelLimit
	members, isList := split(items, aList, oneMember)
	if token := strings.SplitN(items, ";", 2)[0]; isList && len(members) == 1 && slices.Contains([]string{"limit", "remaining", "reset"}, token) {
		isList = false
	}
	if isList {
		for _, m := range members {
			if l, ok := modelMember(m, false); ok {
				all = append(all, l)
			}
		}
	} else if entries, ok := split(items, aDict, oneEntry); ok {
		values := map[string]string{}
		for _, e := range entries {
			key, value, _ := strings.Cut(e, "=")
			if bare, _ := modelItem(value); bare != "" {
				value = bare
			}
			values[key] = value
			if strings.Contains(key, ";") {
				values[key[:strings.Index(key, ";")]] = "?1"
			}
		}
		n := func(key string) int64 {
			if v, ok := values[key]; ok {
				if v := modelInt(cmp.Or(v, "?1"), 0); v >= 0 {
					return v
				}
			}
			return -2
		}
		l := modelLimit{most: n("limit"), left: n("remaining"), wait: n("reset"), w: -2}
		switch {
		case l.wait >= 1e14:
			l.wait = -2
		case l.wait >= 1e11:
			l.wait = max(0, l.wait/1000-arrival.Unix())
		case l.wait >= 5e8:
			l.wait = max(0, l.wait-arrival.Unix())
		}
		if l.most >= 0 || l.left >= 0 || l.wait >= 0 {
			all = append(all, l)
		}
	}
	members, _ = split(policies, aList, oneMember)
	joined := len(all)
	for _, m := range members {
		p, ok := modelMember(m, true)
		if bare, _ := modelItem(m); modelInt(bare, 0) >= 0 {
			return nil, false // it has no name
		}
		if !ok {
			continue
		}
		i := slices.IndexFunc(all[:joined], func(l modelLimit) bool { return l.name == p.name && l.pk == p.pk })
		if i < 0 {
			all = append(all, p)
			continue
		}
		if all[i].policed {
			return nil, false
		}
		all[i].most, all[i].w, all[i].policed = p.most, p.w, true
	}
	for i, l := range all {
		if slices.ContainsFunc(all[:i], func(m modelLimit) bool { return m.name == l.name }) {
			return nil, false
		}
	}
	slices.SortFunc(all, func(a, b modelLimit) int { return strings.Compare(a.name, b.name) })
	return all, true
}

// compareModels reports how Parse differs from the model.
func compareModels(t *testing.T, items, policies string) {
	t.Helper()
	items, policies = trim(items), trim(policies)
	for _, s := range []string{items, policies} {
		if len(s) > longestValue || strings.Contains(s, `%"`) || strings.Count(s, ",") >= mostItems {
			return // a display string, or too long: not what the model is for
		}
		for _, b := range aBytes.FindAllString(s, -1) {
			if _, err := base64.StdEncoding.DecodeString(strings.Trim(b, ":")); err != nil {
				return // the model reads it, the parser does not
			}
		}
	}
	want, says := modelRead(items, policies)
	if !says {
		return
	}
	s, warnings := Parse(200, http.Header{"Ratelimit": {items}, "Ratelimit-Policy": {policies}}, arrival)
	var got []modelLimit
	for _, l := range s.Limits {
		m := modelLimit{l.Name, l.Partition, -2, -2, -2, -2, false}
		if l.Max.known {
			m.most = l.Max.whole
		}
		if l.Remaining.known {
			m.left = l.Remaining.whole
		}
		if !l.ResetAt.IsZero() {
			m.wait = int64(l.ResetAt.Sub(arrival) / time.Second)
		}
		if l.Window > 0 {
			m.w = int64(l.Window / time.Second)
		}
		got = append(got, m)
	}
	const most = int64(1<<63-1) / 1e9 // seconds of the longest duration
	for i := range want {
		want[i].policed = false
		want[i].wait, want[i].w = min(want[i].wait, most), min(want[i].w, most)
	}
	if !slices.Equal(got, want) {
		t.Errorf("RateLimit: %s\nRateLimit-Policy: %s\ngot   %v\nmodel %v\nwarnings %v", items, policies, got, want, warnings)
	}
}

func FuzzStructured(f *testing.F) {
	f.Add(`"default";r=50;t=30`, `"default";q=100;w=60`)
	f.Add(`limit=100, remaining=50, reset=30`, `100;w=60`)
	f.Add(`most;t=1`, `"burst";q=100;w=60,"daily";q=1000;w=86400`)
	f.Add(`"a\"b\\";r=5;pk=:dHJpYWwxMjEzMjM=:`, `("a" b 1.5);q=5, "c";q=5;qu="x"`)
	f.Add(`"a";r=5,`, `"a";q=-1, b;q=1;w=0`)
	f.Fuzz(compareModels)
}

// Lists put together of what may stand in them, and sometimes broken.
func TestParse_RandomStructuredFields(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	bare := func() string {
		return pick(`"a"`, `"b"`, `"c d"`, `"\""`, "tok", "*", "limit", "reset", "5", "0", "-1", "1.5", "123456789012345", "1234567890123456", ":eA==:", "?1", "@5", `"é"`, "")
	}
	member := func(params ...string) string {
		s := bare()
		if rng.IntN(12) == 0 {
			s = "(" + s + " " + bare() + ")"
		}
		for range rng.IntN(4) {
			s += ";" + pick("", " ") + pick(params...)
			if rng.IntN(6) > 0 {
				s += "=" + pick("0", "1", "5", "60", "60", "100", bare())
			}
		}
		return s
	}
	list := func(params ...string) string {
		var s strings.Builder
		for i := range 1 + rng.IntN(3) {
			if i > 0 {
				s.WriteString(pick(",", ", ", " ,\t"))
			}
			s.WriteString(member(params...))
		}
		return s.String()
	}
	compared := 0
	for range 3000 {
		items, policies := list("r", "t", "pk", "x", "r", "t"), list("q", "w", "qu", "pk", "q", "w")
		if rng.IntN(3) == 0 {
			items = ""
			for i := range 1 + rng.IntN(4) {
				if i > 0 {
					items += pick(", ", ",")
				}
				items += pick("limit", "remaining", "reset", "x") + pick("=", "=", "=", ";") + pick("5", "30", "600000000", "1795262460", "100000000000", "999999999999999", bare())
			}
		}
		if rng.IntN(10) == 0 && items != "" {
			i := rng.IntN(len(items))
			items = items[:i] + pick("", ",", ";", "=", `"`, " ", "\x7f") + items[i:]
		}
		compareModels(t, items, policies)
		if want, says := modelRead(items, policies); says && len(want) > 0 {
			compared++
		}
		if t.Failed() {
			return
		}
	}
	if compared < 500 {
		t.Errorf("only %d headers of 3000 said something", compared)
	}
}
