package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// A bar is the last lines on a terminal, which are drawn again and again. Other lines are written
// above them.
type bar struct {
	w     io.Writer
	size  func() (width, height int)
	lines func(width int) []string
	fades bool // the last lines do not stay

	mu    sync.Mutex
	drawn []int // the widths of the lines that are on the terminal
	ended bool  // others write below the last lines
}

// draw writes text, which is empty or ends with a newline, and the current lines below it, in
// place of those drawn before.
func (b *bar) draw(text []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		_, err := b.w.Write(text)
		return err
	}
	width, height := b.size()
	var out strings.Builder
	rows := 0
	for _, n := range b.drawn { // a terminal that became narrower has wrapped them
		rows += max(1, (n+width-1)/width)
	}
	if rows > 0 {
		// The carriage return is for what the terminal itself wrote: after the ^C of a Ctrl-C
		// the cursor is in the third column, and what is left of it would not be erased.
		fmt.Fprintf(&out, "\r\x1b[%dA\x1b[J", min(rows, height-1))
	}
	out.Write(text)
	b.drawn = b.drawn[:0]
	for _, line := range b.lines(width) {
		if len(b.drawn) >= height-1 {
			break // lines above the top of the terminal could not be erased
		}
		line = cutPainted(line, width)
		b.drawn = append(b.drawn, Columns(line))
		out.WriteString(line + "\n")
	}
	_, err := io.WriteString(b.w, out.String())
	return err
}

// end draws the last lines, which stay, or takes them away if they fade.
func (b *bar) end() {
	b.mu.Lock()
	if b.fades {
		b.lines = func(int) []string { return nil }
	}
	b.mu.Unlock()
	_ = b.draw(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// hold keeps the terminal as it is until resume is called. Others may write there until then: the
// next lines are drawn below.
func (b *bar) hold() (resume func()) {
	b.mu.Lock()
	return func() {
		b.drawn = nil
		b.mu.Unlock()
	}
}

// mostRows bounds the rows that one line is wrapped into.
const mostRows = 4

// wrap breaks a line at its spaces into lines of at most width columns. The last one is cut.
func wrap(line string, width int) []string {
	var lines []string
	for width > 0 && Columns(line) > width && len(lines) < mostRows-1 {
		end, columns := 0, 0 // of what fits
		for i, word := range strings.SplitAfter(line, " ") {
			if columns += Columns(word); i > 0 && columns-trailing(word) > width {
				break
			}
			end += len(word)
		}
		if end == len(line) {
			break
		}
		if Columns(strings.TrimSuffix(line[:end], " ")) > width {
			end = len(string([]rune(line)[:width])) // a word as long as that; colors are around short ones
		}
		lines = append(lines, strings.TrimSuffix(line[:end], " "))
		line = line[end:]
	}
	return append(lines, cutPainted(line, width))
}

func trailing(word string) int {
	if strings.HasSuffix(word, " ") {
		return 1
	}
	return 0
}

var colors = strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "")

// Columns returns the width of a line, which may have colors.
func Columns(line string) int { return utf8.RuneCountInString(colors.Replace(line)) }

// cutPainted cuts a line that would wrap. If it is cut, it loses its colors.
func cutPainted(line string, width int) string {
	if width <= 0 || Columns(line) <= width {
		return line
	}
	return Cut(colors.Replace(line), width)
}
