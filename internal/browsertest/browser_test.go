package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A tester stands in for the test of a page, to see what it would report.
type tester struct {
	testing.TB
	said     []string
	cleanups []func()
}

func (t *tester) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}
func (t *tester) Helper()          {}
func (t *tester) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *tester) clean() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

const head = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"></head><body><main><h1>A page</h1>`

// Each of these pages is reported, but the first.
func TestOpen_ReportsFaults(t *testing.T) {
	b := Start(t)
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for _, page := range []struct{ name, html, report string }{
		{"good", `<p>text</p>`, ""},
		{"console", `<script>console.warn("careful")</script>`, "careful"},
		{"exception", `<script>undefined.x</script>`, "exception"},
		{"missing", `<img alt="" src="/missing.png">`, "404"},
		{"other origin", `<img alt="" src="` + elsewhere.URL + `/x.png">`, "loads " + elsewhere.URL},
		{"policy", `<meta http-equiv="Content-Security-Policy" content="style-src 'none'"><style>p{color:red}</style>`, "Content Security Policy"},
		{"contrast", `<p style="color:#999;background:#aaa">grey</p>`, "color-contrast"},
		{"no label", `<input>`, "label"},
		{"too wide", `<div style="width:2000px">wide</div>`, "2008 px wide"},
	} {
		t.Run(page.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/missing.png" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				fmt.Fprint(w, head, page.html, `</main><link rel="icon" href="data:,"></body></html>`)
			}))
			defer s.Close()
			said := &tester{TB: t}
			p := b.Open(said, s.URL+"/", View{})
			p.CheckAccessible()
			p.CheckFits()
			said.clean()
			all := strings.Join(said.said, "\n")
			if (page.report == "") != (all == "") || !strings.Contains(all, page.report) {
				t.Errorf("want a report of %q, got %q", page.report, all)
			}
		})
	}
}

// The keyboard, the mouse, the theme and JavaScript do what they say.
func TestPage(t *testing.T) {
	b := Start(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, head, `<p id="dark"></p><button onclick="this.textContent += '!'">go</button>
			<input aria-label="in"><noscript>no script</noscript>
			<script>document.querySelector("#dark").textContent = matchMedia("(prefers-color-scheme: dark)").matches</script>
			</main><link rel="icon" href="data:,"></body></html>`)
	}))
	t.Cleanup(s.Close)
	p := b.Open(t, s.URL+"/", View{Width: 400, Dark: true})
	if got := p.Text("#dark"); got != "true" {
		t.Errorf("dark: %s", got)
	}
	p.Press("Tab", "Enter")
	p.Click("button")
	p.WaitFor(`document.querySelector("button").textContent === "go!!"`)
	p.Press("Tab")
	p.Type("é")
	p.WaitFor(`document.querySelector("input").value === "é"`)
	if got := p.Requests(); !slices.Contains(got, s.URL+"/") {
		t.Errorf("requests: %v", got)
	}
	if got := b.Open(t, s.URL+"/", View{NoScript: true}).Text("noscript"); got != "no script" {
		t.Errorf("without JavaScript: %s", got)
	}
}
