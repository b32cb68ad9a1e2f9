package browsertest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/browsertest/axe"
)

// A Page is an open page. Its methods fail the test immediately if they fail; they must be called
// by the goroutine of the test.
type Page struct {
	t       testing.TB
	pipe    *pipe
	session string
	view    View
	origins []string // of the addresses that the test opened

	mu       sync.Mutex
	load     chan struct{}
	problems []string // messages that the page should not have written
	requests []string
}

func (p *Page) loaded() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.load == nil {
		p.load = make(chan struct{}, 1)
	}
	return p.load
}

func (p *Page) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, expected := range p.view.Noise {
		if strings.Contains(text, expected) {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

func (p *Page) in(session, method string, params, result any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.pipe.call(ctx, session, method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Page) call(method string, params, result any) {
	p.t.Helper()
	p.in(p.session, method, params, result)
}

// Goto opens another address and waits until it is loaded.
func (p *Page) Goto(address string) {
	p.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.origins = append(p.origins, u.Scheme+"://"+u.Host+"/", "data:", "blob:")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.loaded(): // by an earlier call
	default:
	}
	var went struct {
		ErrorText string `json:"errorText"`
	}
	p.call("Page.navigate", args{"url": address}, &went)
	if went.ErrorText != "" {
		p.t.Fatalf("%s: %s", address, went.ErrorText)
	}
	select {
	case <-p.loaded():
	case <-ctx.Done():
		p.t.Fatalf("%s has not loaded", address)
	}
}

// Resize changes the size of the window.
func (p *Page) Resize(width, height int64) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", args{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
}

// Eval evaluates a JavaScript expression, waits for it if it is a promise, and decodes its
// value into result, unless that is nil. The page's Content-Security-Policy does not apply
// to it.
func (p *Page) Eval(expression string, result any) {
	p.t.Helper()
	if err := p.eval(expression, result); err != nil {
		p.t.Fatalf("%.1000s: %v", expression, err)
	}
}

func (p *Page) eval(expression string, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.pipe.call(ctx, p.session, "Runtime.evaluate", args{"expression": expression, "awaitPromise": true, "returnByValue": true}, &answer)
	switch e := answer.ExceptionDetails; {
	case err != nil:
		return err
	case e != nil:
		return fmt.Errorf("%s %s", e.Text, e.Exception.Description)
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Text returns the visible text of the first element that matches a selector.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	p.Eval(fmt.Sprintf(`(document.querySelector(%q) || {innerText: "no "+%[1]q}).innerText`, selector), &text)
	return text
}

// WaitFor waits until a JavaScript expression is true; one that throws is not. The page may load
// another URL in between.
func (p *Page) WaitFor(expression string) {
	p.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(patience)
	for {
		ok := false
		err := p.eval(fmt.Sprintf("!!(%s)", expression), &ok)
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-deadline:
			p.t.Fatalf("never true: %s (%v)\nthe page says:\n%s", expression, err, p.Text("body"))
		}
	}
}

// Click clicks the middle of the first element that matches a selector, after scrolling to it,
// once it is where it was a moment before and nothing lies over it.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.WaitFor(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(), at = [r.x, r.y, r.width, r.height].join();
		const still = e.browsertestAt === at;
		e.browsertestAt = at;
		return still && e.contains(document.elementFromPoint(r.x + r.width/2, r.y + r.height/2));
	})()`, selector))
	var at struct{ X, Y float64 }
	p.Eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect();
		return {X: r.x + r.width/2, Y: r.y + r.height/2};
	})()`, selector), &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", args{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// keyCodes are the keys that Press knows in addition to characters.
var keyCodes = map[string]int{
	"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageDown": 34, "End": 35, "Home": 36,
	"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Backspace": 8,
}

// Press presses keys, one after another: "Tab", "Enter", "Escape", "ArrowDown", " " and the like.
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		code, known := keyCodes[key]
		if !known {
			p.t.Fatalf("Press(%q): use Type for text", key)
		}
		down := args{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
		switch key {
		case "Enter":
			down["text"] = "\r"
		case " ":
			down["text"], down["code"] = " ", "Space"
		}
		p.call("Input.dispatchKeyEvent", down, nil)
		p.call("Input.dispatchKeyEvent", args{"type": "keyUp", "key": key, "code": down["code"], "windowsVirtualKeyCode": code}, nil)
	}
}

// Type enters text where the focus is.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.call("Input.insertText", args{"text": text}, nil)
}

// Screenshot writes the visible page to a PNG, if the environment variable SLUICE_PICTURES
// names a directory for it.
func (p *Page) Screenshot(name string) {
	p.t.Helper()
	folder := os.Getenv("SLUICE_PICTURES")
	if folder == "" {
		return
	}
	var shot struct {
		Data string `json:"data"`
	}
	p.call("Page.captureScreenshot", args{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(folder+"/"+name, png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// CheckAccessible fails the test for each rule of axe-core that the page breaks. The rules are
// those of WCAG 2.2, levels A and AA, and axe's best practices.
func (p *Page) CheckAccessible() {
	p.t.Helper()
	p.Eval(axe.Source+"\n; true", nil)
	var broken []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string   `json:"html"`
			Target         []string `json:"target"`
			FailureSummary string   `json:"failureSummary"`
		}
	}
	p.Eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`, &broken)
	for _, b := range broken {
		n := b.Nodes[0]
		p.t.Errorf("%s: %s: %d elements, the first is %v, %.200s: %s", b.ID, b.Help, len(b.Nodes), n.Target, n.HTML, n.FailureSummary)
	}
}

// CheckFits fails the test if the page is wider than its window.
func (p *Page) CheckFits() {
	p.t.Helper()
	var at struct{ Wide, Window int }
	p.Eval(`({Wide: document.documentElement.scrollWidth, Window: innerWidth})`, &at)
	if at.Wide > at.Window {
		p.t.Errorf("the page is %d px wide, its window %d px", at.Wide, at.Window)
	}
}

// Requests returns the addresses that the page has loaded so far.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

func (p *Page) checkQuiet() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Errorf("the page says: %s", problem)
	}
	for _, r := range p.requests {
		ours := slices.ContainsFunc(p.origins, func(o string) bool { return strings.HasPrefix(r, o) })
		if !ours && !p.view.Elsewhere {
			p.t.Errorf("the page of %s loads %s", p.origins[0], r)
		}
	}
}
