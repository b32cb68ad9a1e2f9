package sluiceredis

// NewVirtual returns a client of a server in virtual time, and what makes its calls
// fail with an error, or not.
func NewVirtual() (c Client, fail func(err error)) {
	l := &line{to: newRemote()}
	return l, l.fail
}

// ErrRefused is an error of a server that does not run.
var ErrRefused = errRefused
