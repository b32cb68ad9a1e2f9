package cli

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A lockedBuffer may be written to by several goroutines, as a file.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// Where lines stay there is one each 10 s; a terminal has lines at its bottom, which are drawn anew
// and may be gone at the end, and lines that stay are above them.
func TestDisplay(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	shown := func(width int) (text string) {
		synctest.Test(t, func(t *testing.T) {
			var b lockedBuffer
			d := &Display{name: "sluice test", Stderr: &b, onTerm: map[io.Writer]bool{&b: width > 0}}
			begin := time.Now()
			line := func() string { return fmt.Sprintf("%v of 1m0s", time.Since(begin)) }
			p := Progress{
				Every: 5 * time.Second, Fades: true, Line: line,
				Lines: func(_ int, red func(string) string) []string { return []string{"red " + red("text"), line()} },
			}
			if width > 0 {
				d.draw(p, func() (int, int) { return width, 24 }, true)
			} else {
				d.print(p)
			}
			time.Sleep(17 * time.Second)
			d.Log("interrupted")
			time.Sleep(5 * time.Second)
			d.Stop()
			d.Stop()
			d.Log("over")
			text = b.String()
		})
		return text
	}
	if got, want := shown(0), "sluice test: 10s of 1m0s\nsluice test: interrupted\nsluice test: 20s of 1m0s\nsluice test: over\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const red = "red \x1b[31mtext\x1b[0m\n"
	clear := func(rows int) string { return fmt.Sprintf("\r\x1b[%dA\x1b[J", rows) }
	want := red + "0s of\n1m0s\n" + clear(3) + red + "5s of\n1m0s\n" + clear(3) + red + "10s of\n1m0s\n" + clear(3) + red + "15s of\n1m0s\n" +
		clear(3) + "sluice test: interrupted\n" + red + "17s of\n1m0s\n" + clear(3) + red + "20s of\n1m0s\n" + clear(3) + "sluice test: over\n"
	if got := shown(8); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// What net/http prints is a line of its own, and of lines that begin alike only the first one.
func TestDisplay_PackageLog(t *testing.T) {
	var b bytes.Buffer
	d := &Display{name: "sluice test", Stderr: &b}
	l := log.New(d.PackageLog(), "", 0)
	for i := range 3 {
		l.Printf("Unsolicited response received on idle HTTP channel starting with %d", i)
	}
	l.Print("http: \x1bpanic")
	if want := "sluice test: Unsolicited response received on idle HTTP channel starting with 0\nsluice test: http: \\x1bpanic\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestCutPainted(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	for _, tt := range []struct {
		line  string
		width int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"\x1b[31mab\x1b[0mc", 3, "\x1b[31mab\x1b[0mc"}, {"\x1b[31mab\x1b[0mcd", 3, "ab…"}, {"abc", 0, "abc"},
	} {
		if got := cutPainted(tt.line, tt.width); got != tt.want {
			t.Errorf("cutPainted(%q, %d) = %q, want %q", tt.line, tt.width, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	for _, tt := range []struct {
		line  string
		width int
		want  []string
	}{
		{"", 5, []string{""}}, {"ab cd", 5, []string{"ab cd"}}, {"ab cde", 5, []string{"ab", "cde"}}, {"ab cde fg", 5, []string{"ab", "cde", "fg"}},
		{"abcdefg h", 5, []string{"abcde", "fg h"}}, {"\x1b[31m1 failed\x1b[0m, 2", 9, []string{"\x1b[31m1 failed\x1b[0m,", "2"}},
		{"äöü äöü", 4, []string{"äöü", "äöü"}}, {"ab cd", 0, []string{"ab cd"}}, {"a b c d e f", 1, []string{"a", "b", "c", "…"}},
		{"http://127.0.0.1:4000 paused until 20:31:05 (429 Too Many Requests)", 40, []string{"http://127.0.0.1:4000 paused until", "20:31:05 (429 Too Many Requests)"}},
	} {
		if got := wrap(tt.line, tt.width); !slices.Equal(got, tt.want) {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.line, tt.width, got, tt.want)
		}
	}
}

// What was drawn is erased, also when the terminal has become narrower and wrapped it, and not
// after others wrote below it.
func TestBar(t *testing.T) {
	var out strings.Builder
	width, lines := 10, []string{"12345678", "1234"}
	b := &bar{w: &out, size: func() (int, int) { return width, 6 }, lines: func(int) []string { return lines }}
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{func() { b.draw(nil) }, "12345678\n1234\n"},
		{func() { b.draw([]byte("text\n")) }, "\r\x1b[2A\x1b[Jtext\n12345678\n1234\n"},
		{func() { width = 4; b.draw(nil) }, "\r\x1b[3A\x1b[J123~\n1234\n"},
		{func() { b.hold()(); b.draw(nil) }, "123~\n1234\n"},
		{func() { lines = slices.Repeat([]string{"x"}, 10); b.draw(nil) }, "\r\x1b[2A\x1b[J" + strings.Repeat("x\n", 5)},
		{func() { b.end() }, "\r\x1b[5A\x1b[J" + strings.Repeat("x\n", 5)},
		{func() { b.draw([]byte("text\n")) }, "text\n"},
		{func() { b.ended, b.fades = false, true; b.end() }, "\r\x1b[5A\x1b[J"},
	} {
		out.Reset()
		t.Setenv("LC_ALL", "C")
		if tt.do(); out.String() != tt.want {
			t.Errorf("got %q, want %q", out.String(), tt.want)
		}
	}
}
