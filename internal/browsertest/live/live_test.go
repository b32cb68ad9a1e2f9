// Package live_test looks at the page of package observe/live in a browser.
package live_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/browsertest"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func text(n int) string { return strconv.Itoa(n) }

const isLive = `document.querySelector("#status").innerText.startsWith("Live")`

// One browser for all: it takes a second to start.
func TestPage(t *testing.T) {
	b := browsertest.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *browsertest.Browser)
	}{
		{"Views", testViews}, {"Keyboard", testKeyboard}, {"Change", testChange}, {"NoScript", testNoScript},
		{"Restart", testRestart}, {"Thousand", testThousand},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
}

// rowOf is the row of a gate.
func rowOf(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#gates tr")].find(r => r.querySelector(".name").innerText.includes(%q))`, name)
}

// In every view the page is complete, accessible, quiet and no wider than the window, with open
// details as well. What it says is what holds each gate up.
func testViews(t *testing.T, b *browsertest.Browser) {
	url := serve(t, func(page *live.Handler) { page.Title, page.Token = "Gates of a program", token })
	var pages []*browsertest.Page
	for _, v := range browsertest.Views {
		p := b.Open(t, url, v)
		p.WaitFor(`document.querySelectorAll("#gates tr").length === 10`)
		p.WaitFor(isLive)
		p.Eval(rowOf("unknown")+`.querySelector("details").open = true`, nil)
		p.WaitFor(`document.querySelector("details[open] .chart svg .pace") !== null`)
		pages = append(pages, p)
	}
	if os.Getenv("SLUICE_PICTURES") != "" {
		time.Sleep(65 * time.Second) // a chart shows the last minute
	}
	for i, p := range pages {
		p.CheckAccessible()
		p.CheckFits()
		// A wide window has room for the table, a narrow one for one gate.
		if browsertest.Views[i].Width < 1000 {
			p.Eval(rowOf("unknown")+`.scrollIntoView()`, nil)
		} else {
			p.Eval(rowOf("unknown")+`.querySelector("details").open = false`, nil)
		}
		p.Screenshot("live-" + browsertest.Views[i].String() + ".png")
	}
	p := pages[0]
	for name, says := range map[string]string{
		"github": "for the rate of 9/s, for another", "slow": "until a call in flight ends, about", "billing": "(429 Too Many Requests)",
		"search.example": "Refuses", "llm": "for the limit tokens", "broken": "fail", "idle": "Nothing to do", "cdn": "leave as they arrive",
	} {
		p.WaitFor(rowOf(name) + fmt.Sprintf(`.innerText.includes(%q)`, says))
	}
	p.WaitFor(`[...document.querySelectorAll("dd")].length > 0 && !document.body.innerText.includes("secret")`)
}

// The keyboard reaches everything: search, order, freeze, and the details of a gate, which say
// what its server publishes.
func testKeyboard(t *testing.T, b *browsertest.Browser) {
	p := b.Open(t, serve(t, func(page *live.Handler) { page.Every = 100 * time.Millisecond }), browsertest.View{})
	p.WaitFor(isLive)
	p.Press("Tab")
	p.Type("127.0.0.1")
	p.WaitFor(`document.querySelectorAll("#gates tr").length === 1 && location.search.includes("127.0.0.1")`)
	p.Press("Tab", "Tab", "Tab", "Enter")
	p.WaitFor(`document.querySelector("details[open] dl").innerText.includes("5,000 requests remain")`)
	p.WaitFor(`document.activeElement.tagName === "SUMMARY"`) // whatever is updated meanwhile

	p.Click("#freeze")
	p.WaitFor(`document.querySelector("#status").innerText.startsWith("Frozen")`)
	p.Click("#freeze")
	p.WaitFor(isLive)

	p.Click("input[type=search]")
	p.Eval(`document.querySelector("input[type=search]").value = ""; document.querySelector("select").value = "name"; document.querySelector("select").dispatchEvent(new Event("input", {bubbles: true}))`, nil)
	p.WaitFor(`document.querySelectorAll("#gates tr").length === 10 && location.search.includes("sort=name")`)
	p.WaitFor(`(n => n.length === 10 && n.join() === [...n].sort().join())([...document.querySelectorAll(".name")].map(e => e.innerText))`)
}

// With the token, and only with it, a gate is changed.
func testChange(t *testing.T, b *browsertest.Browser) {
	g := limits.Must(sluice.New(sluice.Config{Name: "g", Concurrency: 8}))
	page := live.New(live.FromGates(g))
	page.Every, page.Token = 100*time.Millisecond, token
	s := httptest.NewServer(page)
	t.Cleanup(s.Close)
	p := b.Open(t, s.URL+"/gates", browsertest.View{Noise: []string{"403"}})
	p.WaitFor(isLive)
	// By the keyboard: the details grow, and what is below them moves.
	press := func(button string) {
		p.Eval(fmt.Sprintf(`document.querySelector(%q).focus()`, button), nil)
		p.Press("Enter")
	}
	p.Click("summary")
	press(".change button")
	said := func(text string) {
		t.Helper()
		p.WaitFor(fmt.Sprintf(`document.querySelector(".change output").innerText === %q`, text)) // next to the button
	}
	said("the token is wrong")
	p.Click("input[type=password]")
	p.Type(token)
	press(".change button")
	p.WaitFor(`document.querySelector("#gates").innerText.includes("would wait for the pause (paused by hand)")`)
	if !strings.Contains(g.String(), "paused by hand") {
		t.Errorf("not paused: %v", g)
	}
	press(".change button:nth-of-type(2)")
	p.WaitFor(`document.querySelector("#gates").innerText.includes("Nothing to do")`)

	// A field has the current value, nothing in it changes nothing, and a change can be undone.
	field := func(n int, text string) {
		p.Eval(fmt.Sprintf(`(f => { f.focus(); f.select(); })(document.querySelectorAll(".change input")[%d])`, n), nil)
		if text == "" {
			p.Press("Backspace")
		} else {
			p.Type(text)
		}
		p.Press("Enter")
	}
	p.WaitFor(`[...document.querySelectorAll(".change input")].map(f => f.value).join() === "none,8"`)
	field(1, "")
	said("Nothing is changed: want a number or none.")
	field(0, "")
	said("Nothing is changed: want 5/s or none.")
	press(`[aria-label="Set in flight"]`)
	said("Nothing is changed: want a number or none.")
	if s := g.Stats(); s.Concurrency != 8 {
		t.Errorf("an empty field has changed %v", s)
	}
	field(1, "none")
	said("g: no limit in flight")
	p.WaitFor(`document.querySelector("[data-f=inFlight]").innerText === "0"`)
	press(".change button:last-of-type")
	said("g: at most 8 in flight")
	p.WaitFor(`document.querySelector("[data-f=inFlight]").innerText === "0 of 8"`)
	field(0, "7/s")
	p.WaitFor(`document.querySelector("#gates").innerText.includes("7/s asked")`)
	p.WaitFor(`document.activeElement.value === "7/s" && getComputedStyle(document.querySelector(".change button:last-of-type")).display !== "none"`)
	p.CheckAccessible()
	for _, r := range p.Requests() {
		if strings.Contains(r, token) {
			t.Errorf("the token is in %s", r)
		}
	}
}

// Without JavaScript the page has the same rows, details that open, and a search.
func testNoScript(t *testing.T, b *browsertest.Browser) {
	p := b.Open(t, serve(t, func(*live.Handler) {}), browsertest.View{Width: 400, NoScript: true})
	if got := p.Text("#gates"); !strings.Contains(got, "https://api.github.com") || !strings.Contains(got, "wait for the pause (429 Too Many Requests), until ") {
		t.Errorf("%s", got)
	}
	if got := p.Text("#status"); !strings.Contains(got, "reload the page") {
		t.Errorf("%s", got)
	}
	p.CheckFits()
	p.Click("input[type=search]")
	p.Type("github")
	p.Press("Enter")
	p.WaitFor(`document.querySelectorAll("#gates tr").length === 1`)
	p.Click("summary")
	if got := p.Text("details"); !strings.Contains(got, "9/s asked") {
		t.Errorf("%s", got)
	}
}

// When the program ends the page says so; when it is back the page goes on on its own, with
// the gates of the new one.
func testRestart(t *testing.T, b *browsertest.Browser) {
	listener := limits.Must(net.Listen("tcp", "127.0.0.1:0"))
	address := listener.Addr().String()
	begin := func(l net.Listener, name string) *http.Server {
		same := limits.Must(sluice.New(sluice.Config{Name: "same"}))
		_ = same.Wait(t.Context())
		page := live.New(live.FromGates(limits.Must(sluice.New(sluice.Config{Name: name})), same))
		s := &http.Server{Handler: page}
		s.RegisterOnShutdown(page.Close)
		go s.Serve(l)
		return s
	}
	s := begin(listener, "before")
	p := b.Open(t, "http://"+address+"/", browsertest.View{Noise: []string{"ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED"}})
	names := func(want string) string {
		return fmt.Sprintf(` && [...document.querySelectorAll(".name")].map(e => e.innerText).sort().join() === %q`, want)
	}
	p.WaitFor(isLive + names("before,same"))
	p.Eval(rowOf("same")+`.querySelector("details").open = true`, nil)
	points := rowOf("same") + `.querySelector(".chart .pace").getAttribute("d").split("L").length`
	p.WaitFor(points + ` >= 3`)
	s.Close()
	p.WaitFor(`/connection is lost: these numbers are of .*[0-9]+:[0-9]+:[0-9]+/.test(document.querySelector("#status.lost").innerText)`)
	p.CheckAccessible()
	s = begin(limits.Must(net.Listen("tcp", address)), "after")
	t.Cleanup(func() { s.Close() })
	p.WaitFor(isLive + names("after,same"))
	// What was open stays so, with its chart of before; the gate that is gone is not shown.
	p.WaitFor(rowOf("same") + `.querySelector("details").open && ` + rowOf("same") + `.querySelector(".chart .pace").getAttribute("d").split(/[LM]/).length >= 4`)
}

// A thousand gates: the busiest are on top, and the rest can be found.
func testThousand(t *testing.T, b *browsertest.Browser) {
	c := newCrowd(t)
	var all []*sluice.Gate
	for i := range 1000 {
		all = append(all, limits.Must(sluice.New(sluice.Config{Name: fmt.Sprintf("host-%03d.example", i)})))
	}
	busy := all[777]
	c.calls(1, func() { _ = busy.Wait(c.ctx); c.sleep(5 * time.Millisecond) })
	page := live.New(live.FromGates(all...))
	s := httptest.NewServer(page)
	t.Cleanup(func() { page.Close(); s.Close() })
	p := b.Open(t, s.URL, browsertest.View{})
	p.WaitFor(`document.querySelectorAll("#gates tr").length === 100 && document.querySelector(".name").innerText === "host-777.example"`)
	if got := p.Text("#count"); got != "100 of 1000 gates are shown: search for the others." {
		t.Errorf("%s", got)
	}
	p.Click("input[type=search]")
	p.Type("host-99")
	p.WaitFor(`document.querySelectorAll("#gates tr").length === 10`)
}
