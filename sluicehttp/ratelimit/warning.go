package ratelimit

import "fmt"

// A Warning is something in a header that was not used, or that looks wrong.
type Warning struct {
	Field string // as it is spelled in the header
	Value string // at most 64 bytes of it
	Why   string
}

// String returns the warning in one line.
func (w Warning) String() string {
	if w.Value == "" {
		return w.Field + ": " + w.Why
	}
	return fmt.Sprintf("%s: %s: %q", w.Field, w.Why, w.Value)
}

// shortened returns what a Warning keeps of a value.
func shortened(value string) string { return value[:min(len(value), 64)] }
