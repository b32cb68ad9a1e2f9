package robots

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// model is RFC 9309 word by word, slowly: it decides by trying every way in
// which a pattern can match, and knows nothing of temoto. It reads the file
// line by line as the sanitiser does; what lines there are the tables test.
func model(file, path string) bool {
	if path == "/robots.txt" {
		return true
	}
	type line struct {
		allow   bool
		pattern []string
	}
	groups := map[string][]line{}
	var agents []string
	header := false
	for text := range strings.SplitSeq(file, "\n") {
		key, value, _ := strings.Cut(text, ": ")
		switch key {
		case "User-agent":
			if !header {
				agents = nil
			}
			header = true
			agents = append(agents, value)
			if _, ok := groups[value]; !ok {
				groups[value] = nil
			}
		case "Allow", "Disallow":
			header = false
			for _, a := range agents {
				if value != "" {
					groups[a] = append(groups[a], line{key == "Allow", octets(value, true)})
				}
				// A * may stand for the ? of a query.
				for i, c := range value {
					if c == '*' && !strings.Contains(value, "?") && strings.Contains(value, "%") {
						groups[a] = append(groups[a], line{key == "Allow", octets(value[:i]+"*?*"+plain(value[i+1:]), true)})
					}
				}
			}
		}
	}
	rules, ok := groups[us]
	if !ok {
		rules = groups["*"]
	}
	allowed, longest := true, -1
	target := octets(path, false)
	for _, r := range rules {
		weight := len(r.pattern)
		if matches(r.pattern, target) && (weight > longest || weight == longest && r.allow) {
			allowed, longest = r.allow, weight
		}
	}
	return allowed
}

// octets splits a path into its octets, as it is written normally. An escape
// is three of them: the RFC compares what is written, as Google's parser does,
// so that *A matches /%AF.
func octets(s string, pattern bool) (all []string) {
	if before, query, ok := strings.Cut(s, "?"); ok {
		s = before + "?" + plain(query)
	}
	escaped := func(c byte) []string { return strings.Split(fmt.Sprintf("%%%02X", c), "") }
	for pattern && strings.HasSuffix(s, "*") {
		s = s[:len(s)-1]
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if value, err := strconv.ParseUint(s[min(len(s), i+1):min(len(s), i+3)], 16, 8); c == '%' && err == nil && len(s) >= i+3 {
			c = byte(value)
			i += 2
			if strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", c) >= 0 {
				all = append(all, string(rune(c)))
			} else {
				all = append(all, escaped(c)...)
			}
			continue
		}
		switch {
		case pattern && c == '*':
			if len(all) == 0 || all[len(all)-1] != "*" {
				all = append(all, "*")
			}
		case pattern && c == '$' && i+1 == len(s):
			all = append(all, "$")
		case c <= ' ' || c > '~' || c == '*' || c == '$' || c == '%':
			all = append(all, escaped(c)...)
		default:
			all = append(all, string(rune(c)))
		}
	}
	return all
}

// plain writes what may stand unescaped in a query so.
func plain(query string) string {
	return strings.NewReplacer("%3A", ":", "%3a", ":", "%2F", "/", "%2f", "/", "%3F", "?", "%3f", "?", "%40", "@").Replace(query)
}

func matches(pattern, path []string) bool {
	// states[i] says that the first i parts of the pattern may have matched.
	states := make([]bool, len(pattern)+1)
	states[0] = true
	for at := 0; ; at++ {
		for i, p := range pattern {
			switch {
			case p == "*" && states[i]:
				states[i+1] = true
			case p == "$" && states[i] && at == len(path):
				states[i+1] = true
			}
		}
		if states[len(pattern)] {
			return true
		}
		if at == len(path) {
			return false
		}
		next := make([]bool, len(states))
		for i, p := range pattern {
			if states[i] && p == "*" {
				next[i] = true
			} else if states[i] && p == path[at] {
				next[i+1] = true
			}
		}
		states = next
	}
}

// The model itself can tell right from wrong.
func TestModel(t *testing.T) {
	for _, test := range []struct {
		file, path string
		want       bool
	}{
		{"User-agent: *\nDisallow: /a", "/a", false},
		{"User-agent: *\nDisallow: /a", "/b", true},
		{"User-agent: *\nDisallow: /a*b$", "/axbxb", false},
		{"User-agent: *\nDisallow: /a*b$", "/axbx", true},
		{"User-agent: *\nDisallow: /%7e\nAllow: /~", "/~x", true},
		{"User-agent: sluice-crawler\n\nUser-agent: *\nDisallow: /", "/", false},
		{"User-agent: sluice-crawler\nDisallow: \nUser-agent: *\nDisallow: /", "/", true},
	} {
		if got := model(test.file, test.path); got != test.want {
			t.Errorf("the model says %v for %s by %q", got, test.path, test.file)
		}
	}
}

// script makes a well-formed file of any bytes: each byte is a piece of a line.
func script(pieces []byte) string {
	words := []string{
		"\nUser-agent: *", "\nUser-agent: " + us, "\nUser-agent: other", "\nDisallow: ", "\nAllow: ",
		"\nAllow: /", "\nDisallow: /", "\nDisallow: *", "\nDisallow: /a", "a", "b", "/", "*", "$", ".", "%41", "%2f", "%7e", "~", "%", "%2", "ü", "?", "+", "(", "%2A", "%24", "é",
	}
	var out strings.Builder
	out.WriteString("User-agent: *")
	for _, p := range pieces {
		out.WriteString(words[int(p)%len(words)])
	}
	// A pattern begins with a slash or a star.
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		if strings.HasSuffix(key, "llow") && value != "" && value[0] != '/' && value[0] != '*' {
			lines[i] = key + ": /" + value
		}
		if key == "User-agent" {
			for _, agent := range []string{"*", us, "other"} {
				if strings.HasPrefix(value, agent) {
					lines[i] = key + ": " + agent
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

// FuzzModel compares what a well-formed file allows with the model.
func FuzzModel(f *testing.F) {
	f.Add([]byte{3, 9, 12, 14, 4, 9}, "/a.b")
	f.Add([]byte{1, 6, 0, 6, 9, 13}, "/a")
	f.Add([]byte{7, 5, 9, 12, 10, 13, 8, 10}, "/axb")
	f.Add([]byte{6, 17, 5, 18}, "/~x")
	f.Fuzz(func(t *testing.T, pieces []byte, path string) {
		if len(pieces) > 64 || len(path) > 64 || !strings.HasPrefix(path, "/") {
			t.Skip()
		}
		file := script(pieces)
		r := Parse([]byte(file), us)
		if got, want := r.Allowed(path), model(file, path); got != want {
			t.Errorf("%q allowed by %q: %v, want %v", path, file, got, want)
		}
		if len(r.Notes()) > 0 {
			t.Errorf("%q: notes %q", file, r.Notes())
		}
	})
}

// FuzzParse reads anything: it never fails, temoto never gets what it refuses,
// and a bad line more changes nothing.
func FuzzParse(f *testing.F) {
	for _, file := range []string{
		"User-agent: *\nDisallow: /a\n", "\uFEFFUser-agent:*\r\rAllow\t/\x00", "Crawl-delay: 1e30", "User-agent: *\nCrawl-delay: -0",
		"User-agent: sluice-crawler\nDisallow: /[*$(\nCrawl-delay: 0x1p-2", "user agent: *\nDISALLOW:\t*\n#",
	} {
		f.Add([]byte(file), "/a")
	}
	f.Fuzz(func(t *testing.T, file []byte, path string) {
		r := Parse(file, us)
		for _, note := range r.Notes() {
			if strings.Contains(note, "Parse error") {
				t.Fatalf("%q: %s", file, note)
			}
		}
		d, ok := r.Delay()
		if d < 0 || d > MaxDelay || !ok && d != 0 {
			t.Errorf("%q: delay %v, %v", file, d, ok)
		}
		if len(r.Notes()) > maxNotes+2 {
			t.Errorf("%q: %d notes", file, len(r.Notes()))
		}
		allowed := r.Allowed(path)
		for _, bad := range []string{"Crawl-delay: abc\n", "Disallow: /\n", "what is this\n", "\uFEFF\n"} {
			if bom := strings.HasPrefix(string(file), "\uFEFF"); bom {
				break // it would no longer be the first
			}
			if len(file)+len(bad) > MaxSize {
				break
			}
			if got := Parse(append([]byte(bad), file...), us).Allowed(path); got != allowed {
				t.Errorf("%q: %s allowed %v, with %q before it %v", file, path, allowed, bad, got)
			}
		}
	})
}
