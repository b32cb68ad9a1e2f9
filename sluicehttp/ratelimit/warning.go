package ratelimit

import "fmt"

// A Warning is something in a header that was not used, or that looks wrong.
type Warning struct {
	Field string // as it is spelled in the header
	Value string // at most 64 bytes of it
	Why   string
}

// String returns the warning in one line.
func (w Warning) String() string { return fmt.Sprintf("%s: %q: %s", w.Field, w.Value, w.Why) }
