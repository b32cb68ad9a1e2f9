package crawl

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/sluicetest"
)

// The sites that were given get the fields of -header; neither those that they redirect or link to,
// nor their own by http if https was given.
func TestHeader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fields")
	if err := os.WriteFile(file, []byte("Cookie: a=1; b=2\r\n\nX-More: yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	with := make(map[string]bool) // by address
	note := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		mu.Lock()
		with[scheme+r.Host+r.URL.Path] = r.Header.Get("Cookie") == "a=1; b=2" && r.Header.Get("X-More") == "yes" && strings.Join(r.Header.Values("Accept-Language"), ",") == "de"
		if r.Header.Get("Cookie") != "" != with[scheme+r.Host+r.URL.Path] {
			t.Errorf("%s: %v", r.URL, r.Header)
		}
		mu.Unlock()
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "http://elsewhere.test/", http.StatusFound)
		case r.URL.Path == "/robots.txt":
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<a href="https://www.a.test/1">x</a><a href="http://a.test/2">x</a><a href="http://c.test/3">x</a>`))
		}
	}))
	crawl(t, site(note), "-header", "@"+file, "-header", "Accept-Language: de", "-domains", "c.test", "https://a.test/", "http://b.test/moved")
	for address, want := range map[string]bool{
		"https://a.test/": true, "https://a.test/robots.txt": true, "https://www.a.test/1": true, "http://b.test/moved": true,
		"http://a.test/2": false, "http://c.test/3": false, "http://elsewhere.test/": false,
	} {
		if got, asked := with[address]; got != want || !asked {
			t.Errorf("%s: %v, asked %v", address, got, asked)
		}
	}
}

func TestHeader_Mistakes(t *testing.T) {
	for text, want := range map[string]string{
		"secret": "want a field", "A b: c": "want a field", "A: b\nc": "want a field", "": "want a field", "User-Agent: x": "-agent",
		"host: x": "Host is set by the crawler", "@/no/such": "no such file",
	} {
		_, err := parseOptions([]string{"-header", text, "http://a.test/"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := parseOptions([]string{"-header", "A: b", "-resume"}); err == nil || !strings.Contains(err.Error(), "give them") {
		t.Error(err)
	}
}
