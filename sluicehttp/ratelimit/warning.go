package ratelimit

import "fmt"

// A Warning is about a header field that was ignored or looks wrong.
type Warning struct {
	Field string // as spelled in the header
	Value string // at most 64 bytes
	Why   string
}

// String returns the warning in one line.
func (w Warning) String() string {
	if w.Value == "" {
		return w.Field + ": " + w.Why
	}
	return fmt.Sprintf("%s: %s: %q", w.Field, w.Why, w.Value)
}

// shortened returns the beginning of a value that a Warning keeps.
func shortened(value string) string { return value[:min(len(value), 64)] }
