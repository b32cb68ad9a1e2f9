// Package playground tests the page of examples/playground in a browser.
package playground

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/internal/browsertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build compiles the playground.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "playground")
	cmd := exec.Command("go", "build", "-o", program, "./examples/playground")
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// root is the clone.
var root = filepath.Join("..", "..", "..")

// serve starts the playground, which ends with the test, and returns its address.
func serve(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.Command(program, "-addr", "127.0.0.1:0")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// drawn is true once the verdict is that of the sliders and nothing is being computed.
const drawn = `!document.querySelector("#lanes.stale") && document.querySelectorAll(".lane svg").length > 0 &&
	document.querySelector("#verdict").dataset.of === state.story.Key + JSON.stringify(state.values)`

func TestPlayground(t *testing.T) {
	b := browsertest.Start(t)
	program := build(t)
	url := serve(t, program)
	t.Run("views", func(t *testing.T) { testViews(t, b, url) })
	t.Run("stories", func(t *testing.T) { testStories(t, b, url) })
	t.Run("sliders", func(t *testing.T) { testSliders(t, b, url) })
	t.Run("address", func(t *testing.T) { testAddress(t, b, url) })
	t.Run("replay", func(t *testing.T) { testReplay(t, b, url) })
	t.Run("static", func(t *testing.T) { testStatic(t, b, program) })
	t.Run("telephone", func(t *testing.T) { testTelephone(t, b, url) })
	t.Run("without JavaScript", func(t *testing.T) {
		p := b.Open(t, url, browsertest.View{NoScript: true})
		if said := p.Text("noscript"); !strings.Contains(said, "docs/concepts.md") {
			t.Errorf("the page says %q", said)
		}
		p.CheckFits()
	})
}

func testViews(t *testing.T, b *browsertest.Browser, url string) {
	for _, v := range browsertest.Views {
		t.Run(v.String(), func(t *testing.T) {
			p := b.Open(t, url+"#story=pause", v)
			p.WaitFor(drawn)
			var after, took float64
			p.Eval(`Number(document.body.dataset.drawn)`, &after)
			p.Eval(`Number(document.body.dataset.took)`, &took)
			t.Logf("drawn %.0f ms after the navigation began, computed in %.0f ms", after, took)
			p.CheckAccessible()
			p.CheckFits()
			p.Screenshot("playground-" + v.String() + ".png")
			if v.Width < 600 {
				p.Eval(`document.querySelector("#sliders").scrollIntoView()`, nil)
				p.Screenshot("playground-" + v.String() + "-below.png")
			}
		})
	}
}

// On a telephone the picture begins on the first screen, and the sliders are above it: who
// moves one sees what changes.
func testTelephone(t *testing.T, b *browsertest.Browser, url string) {
	const height = 667
	for _, story := range []string{"semaphore", "cancel", "pause", "adaptive", "league", "free"} {
		p := b.Open(t, url+"#story="+story, browsertest.View{Width: 375, Height: height})
		p.WaitFor(drawn)
		top := func(selector string) (y float64) {
			p.Eval(fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().top`, selector), &y)
			return y
		}
		sliders, picture, lane := top("#sliders"), top("#picture"), top(".lane svg")
		t.Logf("%s: sliders at %.0f px, picture at %.0f, first lane at %.0f", story, sliders, picture, lane)
		if sliders >= picture || picture > 420 || lane > height-60 {
			t.Errorf("%s: sliders at %.0f px, picture at %.0f, first lane at %.0f", story, sliders, picture, lane)
		}
		p.CheckFits()
		p.Screenshot("playground-375-" + story + ".png")
	}
}

// The numbers are those that the tests of the engine have without a browser.
func testStories(t *testing.T, b *browsertest.Browser, url string) {
	p := b.Open(t, url, browsertest.View{})
	p.WaitFor(drawn)
	p.Click("#bars summary")
	for _, story := range []struct {
		key, verdict string
		lanes        int
	}{
		{"semaphore", "semaphore alone: 207 served, 196 refused, 31 in the busiest second, 4 in flight at most.", 3},
		{"cancel", "sluice.Gate: 21 served, a patient caller waited up to 1.5 s.", 3},
		{"pause", "sluice.Gate: 237 served, 1 refused, 10 in the busiest second after the pause, 7.1 % fewer served than by x/time/rate + x/sync/semaphore.", 2},
		{"adaptive", "x/time/rate: 839 served, 306 refused.", 2},
		{"league", "x/time/rate: 440 served, 0 refused.", 2},
		{"free", "sluice.Gate: 236 served, 4 refused", 2},
	} {
		t.Run(story.key, func(t *testing.T) {
			p.Click(fmt.Sprintf("#stories a[data-key=%s]", story.key))
			p.WaitFor(drawn + fmt.Sprintf(" && state.story.Key === %q", story.key))
			if said := p.Text("#verdict"); !strings.Contains(said, story.verdict) {
				t.Errorf("the verdict is %q, want %q in it", said, story.verdict)
			}
			var lanes, lines, bars int
			p.Eval(`document.querySelectorAll(".lane svg[role=img][aria-label]").length`, &lanes)
			p.Eval(`document.querySelectorAll("#table tbody tr").length`, &lines)
			p.Eval(`document.querySelectorAll("#bars tbody tr").length`, &bars)
			if lanes != story.lanes || lines < 6 || bars < 20 {
				t.Errorf("%d lanes, want %d; %d and %d lines of the tables", lanes, story.lanes, lines, bars)
			}
			if story.key == "cancel" { // with both tables; of a long one it takes seconds
				p.CheckAccessible()
			}
			p.CheckFits()
			p.Screenshot("playground-" + story.key + ".png")
		})
	}
}

// A slider that is moved by a key or the mouse changes the address, the picture and the
// verdict, which screen readers announce.
func testSliders(t *testing.T, b *browsertest.Browser, url string) {
	p := b.Open(t, url, browsertest.View{})
	p.WaitFor(drawn)
	var before, after string
	const path = `document.querySelector(".lane svg .served").getAttribute("d")`
	p.Eval(path, &before)
	verdict := p.Text("#verdict")
	// The first Tab goes to the link that skips the stories, then come the six of them.
	p.Press("Tab", "Tab", "Tab", "Tab", "Tab", "Tab", "Tab", "Tab")
	var id string
	if p.Eval(`document.activeElement.id`, &id); id != "slider-concurrency" {
		t.Fatalf("the focus is on %q", id)
	}
	p.Press("ArrowRight", "ArrowRight")
	p.WaitFor(`location.hash === "#story=semaphore&concurrency=6"`)
	p.WaitFor(drawn)
	var took float64
	p.Eval(`Number(document.body.dataset.took)`, &took)
	t.Logf("after a key, computed in %.0f ms", took)
	p.Eval(path, &after)
	if said := p.Text("#verdict"); after == before || said == verdict || !strings.Contains(said, "6 in flight at most") {
		t.Errorf("the picture changed: %v; the verdict is %q", after != before, said)
	}
	var value string
	if p.Eval(`document.activeElement.getAttribute("aria-valuetext")`, &value); value != "6" {
		t.Errorf("the slider says %q", value)
	}
	p.Click("#reset")
	p.WaitFor(`location.hash === "#story=semaphore"`)
	p.WaitFor(drawn)
	if said := p.Text("#verdict"); said != verdict {
		t.Errorf("after a reset the verdict is %q, want %q", said, verdict)
	}
	p.Click("#slider-limit") // its middle
	p.WaitFor(`location.hash === "#story=semaphore&limit=25"`)
	p.WaitFor(drawn)
	if said := p.Text("#verdict"); !regexp.MustCompile(`semaphore alone: \d+ served, 0 refused`).MatchString(said) {
		t.Errorf("with a limit of 25/s the verdict is %q", said)
	}
	p.WaitFor(`document.querySelector("#verdict[role=status]") !== null`)
}

// An address with sliders is the picture that was shared, and a wrong one does no harm.
func testAddress(t *testing.T, b *browsertest.Browser, url string) {
	p := b.Open(t, url+"#story=cancel&rate=10&callers=60", browsertest.View{Width: 400, Height: 800})
	p.WaitFor(drawn)
	if said := p.Text("#title"); said != "Cancelled waiters" {
		t.Errorf("the title is %q", said)
	}
	var rate string
	if p.Eval(`document.querySelector("#slider-rate").value`, &rate); rate != "10" {
		t.Errorf("the rate is %s", rate)
	}
	// Wrong values are those before a slider is moved.
	p.Eval(`location.hash = "#story=cancel&rate=-1&callers=1e9&giveup=x&burst=2"`, nil)
	p.WaitFor(`document.querySelector("#slider-burst").value === "2" && document.querySelector("#slider-rate").value === "5"`)
	p.WaitFor(drawn)
	p.Eval(`location.hash = "#story=bogus"`, nil)
	p.WaitFor(`document.querySelector("#title").textContent === "A semaphore is not a rate"`)
	p.WaitFor(drawn)
	// A story that is chosen while a long one is computed is the one that is shown.
	p.Eval(`patience = 0; const before = worker; location.hash = "#story=league&world=1"; location.hash = "#story=pause"`, nil)
	p.WaitFor(`worker !== before`)
	p.WaitFor(`document.querySelector("#title").textContent === "A pause that ends evenly"`)
	p.WaitFor(drawn)
	var seconds float64
	if p.Eval(`state.picture.Seconds`, &seconds); seconds != 30 {
		t.Errorf("the picture has %g s", seconds)
	}
}

func testReplay(t *testing.T, b *browsertest.Browser, url string) {
	p := b.Open(t, url+"#story=pause", browsertest.View{})
	p.WaitFor(drawn)
	whole := p.Text(".lane h3 span")
	p.Click("#play")
	p.WaitFor(`state.at > 1 && state.at < 30`)
	p.Click("#play")
	if said := p.Text("#play"); said != "Replay" {
		t.Errorf("the button says %q", said)
	}
	if part := p.Text(".lane h3 span"); part == whole || !strings.Contains(part, "calls left") {
		t.Errorf("in between: %q; at the end: %q", part, whole)
	}
	p.Eval(`document.querySelector("#at").focus()`, nil)
	p.Press("End")
	p.WaitFor(fmt.Sprintf(`document.querySelector(".lane h3 span").textContent === %q`, whole))
}

// The files work below any path of any server; without the engine the page says so.
func testStatic(t *testing.T, b *browsertest.Browser, program string) {
	dir := t.TempDir()
	cmd := exec.Command(program, "-static", dir)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	server := httptest.NewServer(http.StripPrefix("/any/path", http.FileServer(http.Dir(dir))))
	defer server.Close()
	p := b.Open(t, server.URL+"/any/path/", browsertest.View{Noise: []string{"404"}})
	p.WaitFor(drawn)
	if err := os.Remove(filepath.Join(dir, "engine.wasm.gz")); err != nil {
		t.Fatal(err)
	}
	p.Goto(server.URL + "/any/path/?again")
	p.WaitFor(`document.querySelector("#verdict").textContent.includes("cannot be computed")`)
	if said := p.Text("#verdict"); !strings.Contains(said, "engine.wasm.gz: 404") {
		t.Errorf("the page says %q", said)
	}
	p.CheckAccessible()
}
