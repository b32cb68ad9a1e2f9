package cli

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Width returns the columns of a terminal; 0 if a file is none.
func Width(f *os.File) int {
	width, _ := Size(f)
	return width
}

// Size returns the columns and rows of a terminal; 0 if a file is none. One that does not say so
// has 80 and 24.
func Size(f *os.File) (width, height int) {
	if !IsTerminal(f) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
