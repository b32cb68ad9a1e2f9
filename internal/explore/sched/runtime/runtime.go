// Package runtime is what package runtime is to rewritten code.
package runtime

import "runtime"

// AddCleanup does nothing: a cleanup would run outside of the execution.
func AddCleanup[T, S any](*T, func(S), S) (c runtime.Cleanup) { return c }
