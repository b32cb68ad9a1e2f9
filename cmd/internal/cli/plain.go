package cli

import (
	"fmt"
	"strings"
	"unicode"
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

// What a line shows of an item, and of an error.
const (
	MostOfItem  = 200
	MostOfError = 1000
)
