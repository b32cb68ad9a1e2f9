package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// hasEscapes reports whether a terminal understands escape sequences, which old consoles must be
// told to do.
func hasEscapes(f *os.File) bool {
	console, mode := windows.Handle(f.Fd()), uint32(0)
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
