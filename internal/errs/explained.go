package errs

// Explained marks the error of a throttled call if the server has published the limit that the call
// exceeded, and until when: there is nothing to learn from it, only to wait.
type Explained struct{ Err error }

func (e *Explained) Error() string { return e.Err.Error() }
func (e *Explained) Unwrap() error { return e.Err }
