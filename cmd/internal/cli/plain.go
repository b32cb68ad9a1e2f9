package cli

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes text of others fit for a line on a terminal: control characters, with which
// an item could change the title of a window or worse, are written as escapes, and what is
// long is cut.
func Plain(text string, most int) string {
	var b strings.Builder
	for i, r := range text {
		if b.Len() >= most {
			return fmt.Sprintf("%s… (%d bytes more)", b.String(), len(text)-i)
		}
		switch {
		case r == unicode.ReplacementChar, unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			quoted := fmt.Sprintf("%+q", r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Cut cuts a line that is longer than a terminal is wide.
func Cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	cut := "…"
	if !inUTF8() {
		cut = "~"
	}
	return string([]rune(line)[:width-1]) + cut
}

// inUTF8 reports whether the terminal understands UTF-8, as the locale says.
func inUTF8() bool {
	if runtime.GOOS == "windows" {
		return true
	}
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	locale = strings.ToLower(locale)
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// What a line shows of an item, and of an error.
const (
	MostOfItem  = 200
	MostOfError = 1000
)
