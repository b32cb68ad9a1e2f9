package errs

import "errors"

// AtOnce marks the error of a throttled call if the server has said that it was because of the calls in
// flight at the same time.
type AtOnce struct{ Err error }

func (e *AtOnce) Error() string { return e.Err.Error() }
func (e *AtOnce) Unwrap() error { return e.Err }

// IsAtOnce reports whether err was marked so.
func IsAtOnce(err error) bool {
	_, ok := errors.AsType[*AtOnce](err)
	return ok
}
