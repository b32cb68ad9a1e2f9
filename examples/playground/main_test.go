package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/examples/playground/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPages are the files with something in the place of the engine.
func testPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := pages(compiled{wasm: []byte("the engine"), start: []byte("start it")})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		all[f.name] = string(f.content)
	}
	return all
}

func TestPages(t *testing.T) {
	files := testPages(t)
	z, err := gzip.NewReader(strings.NewReader(files["engine.wasm.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); string(got) != "the engine" || err != nil {
		t.Errorf("the engine is %q, %v", got, err)
	}
	var stories []struct {
		Key     string
		Text    []string
		Sliders []engine.Slider
	}
	if err := json.Unmarshal([]byte(files["stories.json"]), &stories); err != nil {
		t.Fatal(err)
	}
	if len(stories) != len(engine.Stories()) {
		t.Errorf("%d stories", len(stories))
	}
	for _, s := range stories {
		if len(s.Text) != 2 || len(s.Sliders) == 0 {
			t.Errorf("%s: %d sentences, %d sliders", s.Key, len(s.Text), len(s.Sliders))
		}
	}
}

// The page has nothing that its policy forbids, and what it asks for is there.
func TestPages_Whole(t *testing.T) {
	files := testPages(t)
	page := files["index.html"]
	if !strings.Contains(page, `content="`+policy+`"`) {
		t.Error("index.html has another Content-Security-Policy than the server")
	}
	for _, forbidden := range []string{`<script>`, `<style`, ` style="`, ` onclick=`, `javascript:`, `http://`, `https://`} {
		if strings.Contains(page, forbidden) {
			t.Errorf("index.html has %q", forbidden)
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page, -1) {
		if files[m[1]] == "" {
			t.Errorf("there is no %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\$\("([a-z-]+)"\)`).FindAllStringSubmatch(files["app.js"], -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("index.html has no id %q, which app.js asks for", m[1])
		}
	}
}

func TestHandler(t *testing.T) {
	files, err := pages(compiled{wasm: []byte("the engine")})
	if err != nil {
		t.Fatal(err)
	}
	h := handler(files)
	for _, test := range []struct {
		path, kind string
		status     int
	}{
		{"/", "text/html; charset=utf-8", 200},
		{"/app.js", "text/javascript; charset=utf-8", 200},
		{"/engine.wasm.gz", "application/gzip", 200}, // no Content-Encoding: the page unpacks it
		{"/index.html", "text/plain; charset=utf-8", 404},
		{"/../main.go", "", 307},
		{"/main.go", "text/plain; charset=utf-8", 404},
	} {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, test.path, nil))
		header := r.Result().Header
		if r.Code != test.status || test.kind != "" && header.Get("Content-Type") != test.kind || header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, %v; want %d and %s", test.path, r.Code, header, test.status, test.kind)
		}
		if r.Code == 200 && !strings.HasPrefix(header.Get("Content-Security-Policy"), policy) {
			t.Errorf("%s has the policy %q", test.path, header.Get("Content-Security-Policy"))
		}
	}
}

func TestRun_Refuses(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"more"}, 2, `unexpected argument "more"`},
		{[]string{"-bogus"}, 2, "-bogus"},
		{[]string{"-h"}, 0, "-static"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), test.args, &stdout, &stderr); status != test.status || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: status %d, want %d; %s", test.args, status, test.status, &stderr)
		}
	}
}

// Everything together is small enough for a telephone.
func TestRun_Static(t *testing.T) {
	if os.Getenv("SLUICE_FULL") == "" {
		t.Skip("compiles the engine: set SLUICE_FULL to run it")
	}
	dir := filepath.Join(t.TempDir(), "site")
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-static", dir}, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	t.Logf("%s", &stdout)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
		names = append(names, e.Name())
	}
	want := []string{"app.js", "chart.js", "engine.wasm.gz", "icon.svg", "index.html", "stories.json", "style.css", "wasm_exec.js", "worker.js"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if most := int64(3e6); sum < 1e6 || sum > most {
		t.Errorf("%d bytes, want at most %d", sum, most)
	}
}
