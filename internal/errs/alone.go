package errs

import "errors"

// Alone marks the error of a throttled call if it is known that it concerns only that call, such as because
// the response comes from a cache: it teaches the gate nothing.
type Alone struct{ Err error }

func (e *Alone) Error() string { return e.Err.Error() }
func (e *Alone) Unwrap() error { return e.Err }

// IsAlone reports whether err was marked so.
func IsAlone(err error) bool {
	_, ok := errors.AsType[*Alone](err)
	return ok
}
