// Package defaults has the defaults that more than one package applies.
package defaults

import (
	"fmt"
	"time"
)

// MaxServerWait is the default of sluice.RetryPolicy.MaxServerWait.
const MaxServerWait = 5 * time.Minute

// Option returns the configuration that a caller of function passed as its last argument, or
// the zero T without one. More than one is a programming error, and panics.
func Option[T any](function string, cfg []T) T {
	switch len(cfg) {
	case 0:
		var zero T
		return zero
	case 1:
		return cfg[0]
	}
	panic(fmt.Sprintf("%s: called with %d configurations, want at most one", function, len(cfg)))
}
