package batch

import (
	"io"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

func TestExpand(t *testing.T) {
	s := subject{items: []string{"dir.d/sub/file.tar.gz"}, seq: 12, slot: 3}
	for template, want := range map[string]string{
		"{}": "dir.d/sub/file.tar.gz", "{.}": "dir.d/sub/file.tar", "{/}": "file.tar.gz", "{//}": "dir.d/sub", "{/.}": "file.tar",
		"{#}": "12", "{%}": "3", "a{#}b{%}{#}": "a12b312", "{#}.{}": "12.dir.d/sub/file.tar.gz",
		"": "", "plain": "plain", "{": "{", "{x}": "{x}", "{{}}": "{dir.d/sub/file.tar.gz}", "}{": "}{", "{/": "{/",
	} {
		if got := expand(template, s, verbatim); got != want {
			t.Errorf("%q becomes %q, want %q", template, got, want)
		}
	}
	for item, want := range map[string]string{
		"file": "file file . file file", "dir.d/file": "dir.d/file file dir.d file dir.d/file",
		".hidden": ".hidden .hidden . .hidden .hidden", "/a.b": "/a a.b / a /a.b",
	} {
		if got := expand("{.} {/} {//} {/.} {}", subject{items: []string{item}}, verbatim); got != want {
			t.Errorf("%q becomes %q, want %q", item, got, want)
		}
	}
	// What an item contains is not a placeholder.
	if got := expand("{}{#}", subject{items: []string{"{#}{}"}, seq: 7}, verbatim); got != "{#}{}7" {
		t.Errorf("an item was expanded: %q", got)
	}
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ template, item, want string }{
		{"http://h/{}", "a b/c?d&e", "http://h/a%20b%2Fc%3Fd&e"},
		{"http://h/x?q={}&n={#}", "a b/c?d&e", "http://h/x?q=a+b%2Fc%3Fd%26e&n=1"},
		{"{}", "http://h/a?b=c", "http://h/a?b=c"},
		{"{}/more/{}", "http://h", "http://h/more/http:%2F%2Fh"},
	} {
		if got := expand(tt.template, subject{items: []string{tt.item}, seq: 1}, escape); got != tt.want {
			t.Errorf("%q for %q becomes %q, want %q", tt.template, tt.item, got, tt.want)
		}
	}
}

func TestWeb_Host(t *testing.T) {
	for _, tt := range []struct{ url, item, want string }{
		{"http://{}/health", "example.org", "http://example.org/health"},
		{"http://{}/health", "[::1]:80", "http://[::1]:80/health"},
		{"https://{}.example.org/", "a", "https://a.example.org/"},
		{"http://{}/x", "evil.org/y", ""}, // it would be another address
		{"http://h/{}", "a/b", "http://h/a%2Fb"},
		{"{}", "http://h/a/b", "http://h/a/b"},
	} {
		w, err := web{url: tt.url}.check()
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		req, err := w.request(t.Context(), subject{items: []string{tt.item}})
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s with %s is %s", tt.url, tt.item, req.URL)
			}
		} else if err != nil || req.URL.String() != tt.want {
			t.Errorf("%s with %s: %v, %v", tt.url, tt.item, req, err)
		}
	}
}

func TestWeb_Body(t *testing.T) {
	for _, tt := range []struct{ body, item, want, kind string }{
		{`{"q":"{}"}`, `it"s\`, `{"q":"it\"s\\"}`, "application/json"},
		{`{"n":{}}`, `7`, `{"n":7}`, "application/json"},
		{`q={}`, `it"s`, `q=it"s`, ""},
	} {
		w, err := web{url: "http://h/", body: tt.body}.check()
		if err != nil {
			t.Fatal(err)
		}
		req, err := w.request(t.Context(), subject{items: []string{tt.item}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || string(body) != tt.want || req.Header.Get("Content-Type") != tt.kind || req.Method != "POST" {
			t.Errorf("%s is %s %s, %s: %v", tt.body, req.Method, body, req.Header, err)
		}
		if got, want := w.describe(subject{items: []string{tt.item}}), "POST http://h/ -body "+cli.Quote(tt.want); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestShape_Lines(t *testing.T) {
	f := shape{n: 3, end: "\n", joint: " "}
	three, two := f.subject("d/a.x\nb c\ne", 1, 1), f.subject("d/a.x\nb c", 1, 1)
	for _, tt := range []struct {
		s        subject
		template string
		want     []string
	}{
		{three, "{}", []string{"d/a.x", "b c", "e"}},
		{three, "{/.}", []string{"a", "b c", "e"}},
		{three, "<{}>", []string{"<d/a.x b c e>"}},
		{three, "{3}{1}", []string{"ed/a.x"}},
		{three, "{#}", []string{"1"}},
		{two, "{}", []string{"d/a.x", "b c"}},
		{two, "{3}", []string{""}}, // as in GNU parallel
		{shape{}.subject("a\nb", 1, 1), "{}", []string{"a\nb"}},
	} {
		if got := tt.s.arguments(tt.template); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.template, got, tt.want)
		}
	}
}

func TestExpand_Columns(t *testing.T) {
	s := shape{colsep: ","}.subject("a,b c,", 1, 1)
	for template, want := range map[string]string{
		"{1}-{2}": "a-b c", "{3}{4}|": "|", "{}": "a,b c,", "{0}{x}{1": "{0}{x}{1", "{2}{1}": "b ca", "{+1}": "{+1}", "{12}": "", "{01}": "{01}", "{9.}": "",
	} {
		if got := expand(template, s, verbatim); got != want {
			t.Errorf("expand(%s) = %q, want %q", template, got, want)
		}
	}
	parts := shape{colsep: ","}.subject("d/e.x,f.tar.gz", 1, 1)
	if got := expand("{1.} {1/} {1//} {1/.} {2.} {2//}", parts, verbatim); got != "d/e e.x d e f.tar ." {
		t.Errorf("parts of columns: %q", got)
	}
	if got := expand("{1}", shape{}.subject("a,b", 1, 1), verbatim); got != "{1}" {
		t.Errorf("without -colsep: %q", got)
	}
	if !hasPlaceholder("x{10}", true) || hasPlaceholder("x{10}", false) || hasPlaceholder("{0}", true) {
		t.Error("hasPlaceholder")
	}
}
