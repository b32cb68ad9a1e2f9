// Package browsertest opens web pages in a headless Chromium and checks the visible result: that a
// page works with the keyboard, in light and dark, at 400 px and at 1,400 px; that axe-core finds
// nothing wrong with its accessibility; that the console stays empty and nothing is loaded from
// elsewhere. See README.md.
//
// It speaks the DevTools protocol itself, in about 200 lines, because a general client would
// take longer to compile than all other tests to run.
package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is the time that a page may take for anything before its test fails.
const patience = 30 * time.Second

// A Browser is a running Chromium.
type Browser struct {
	pipe *pipe
}

// Start starts a Chromium, which ends with the test. It skips the test unless SLUICE_BROWSER
// is set, and then fails it if there is no Chromium. SLUICE_BROWSER can be the path of
// one; with any other value the names chromium, google-chrome and the like are tried.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := find(t)
	ours, theirs, err := pipes()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(),
		"--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-extensions", "--disable-background-networking", "--disable-component-update",
		"--hide-scrollbars", "--force-color-profile=srgb", "--lang=en",
		"--font-render-hinting=none", "--disable-features=Translate,MediaRouter,OptimizationHints",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // which does not start for root
	}
	said := new(strings.Builder)
	cmd := exec.Command(path, append(args, "about:blank")...)
	cmd.ExtraFiles = theirs[:] // file descriptors 3 and 4, as Chromium expects
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	b := &Browser{pipe: newPipe(ours[1])}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.pipe.read(ours[0])
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		b.pipe.call(ctx, "", "Browser.close", nil, nil) // which may end before it answers
		kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		ours[0].Close()
		ours[1].Close()
		<-read
		if err != nil {
			t.Logf("%s: %v\n%s", path, err, said)
		}
	})
	return b
}

func find(t testing.TB) string {
	t.Helper()
	want := os.Getenv("SLUICE_BROWSER")
	if want == "" {
		t.Skip("needs a Chromium, and SLUICE_BROWSER to be set")
	}
	for _, name := range []string{want, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium: install one, for instance with: apt-get install chromium")
	return ""
}

// pipes returns the ends of two pipes: ours to read from and to write to, theirs likewise.
func pipes() (ours, theirs [2]*os.File, err error) {
	if theirs[0], ours[1], err = os.Pipe(); err != nil {
		return ours, theirs, err
	}
	ours[0], theirs[1], err = os.Pipe()
	return ours, theirs, err
}

// View says how a page is looked at. The zero View is 1,400 by 900 px, light, with
// JavaScript.
type View struct {
	Width, Height int64
	Dark          bool
	NoScript      bool // JavaScript is switched off
	Elsewhere     bool // loading from other origins than the page's is allowed

	// Noise are parts of console messages that are expected, such as of a request
	// that the test wants to fail. Any other error or warning fails the test.
	Noise []string
}

// Open opens a page in a fresh profile and waits until it is loaded. The page is closed with
// the test, which fails if the page wrote an error or a warning to the console, threw an
// exception, broke its Content-Security-Policy or loaded anything from another origin.
func (b *Browser) Open(t testing.TB, url string, v View) *Page {
	t.Helper()
	if v.Width == 0 {
		v.Width = 1400
	}
	if v.Height == 0 {
		v.Height = 900
	}
	p := &Page{t: t, pipe: b.pipe, view: v}
	var context struct {
		ID string `json:"browserContextId"`
	}
	p.in("", "Target.createBrowserContext", nil, &context)
	var target struct {
		ID string `json:"targetId"`
	}
	p.in("", "Target.createTarget", args{"url": "about:blank", "browserContextId": context.ID}, &target)
	var session struct {
		ID string `json:"sessionId"`
	}
	p.in("", "Target.attachToTarget", args{"targetId": target.ID, "flatten": true}, &session)
	p.session = session.ID
	p.pipe.listen(p.session, p.event)
	t.Cleanup(func() {
		p.in("", "Target.disposeBrowserContext", args{"browserContextId": context.ID}, nil)
		p.pipe.listen(p.session, nil)
		p.checkQuiet()
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.call(domain+".enable", nil, nil)
	}
	p.Resize(v.Width, v.Height)
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", args{"features": []args{
		{"name": "prefers-color-scheme", "value": scheme},
		{"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
	if v.NoScript {
		p.call("Emulation.setScriptExecutionDisabled", args{"value": true}, nil)
	}
	p.Goto(url)
	return p
}

// Views are those that each page should be looked at with.
var Views = []View{
	{Width: 400, Height: 800},
	{Width: 400, Height: 800, Dark: true},
	{Width: 1400, Height: 900},
	{Width: 1400, Height: 900, Dark: true},
}

// String returns v for the name of a test or a file, such as 400-dark.
func (v View) String() string {
	theme := "light"
	if v.Dark {
		theme = "dark"
	}
	return fmt.Sprintf("%d-%s", v.Width, theme)
}

type args = map[string]any

// event collects the messages and requests of the page.
func (p *Page) event(method string, params json.RawMessage) {
	var e struct {
		Type string `json:"type"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
		Request          struct{ URL string }
	}
	if err := json.Unmarshal(params, &e); err != nil {
		p.note("%s: %v", method, err)
		return
	}
	switch method {
	case "Page.loadEventFired":
		select {
		case p.loaded() <- struct{}{}:
		default:
		}
	case "Runtime.consoleAPICalled":
		if slices.Contains([]string{"error", "warning", "assert"}, e.Type) {
			p.note("console.%s: %v", e.Type, e.Args)
		}
	case "Runtime.exceptionThrown":
		p.note("exception: %s", e.ExceptionDetails)
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.note("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case "Network.requestWillBeSent":
		p.mu.Lock()
		p.requests = append(p.requests, e.Request.URL)
		p.mu.Unlock()
	}
}
