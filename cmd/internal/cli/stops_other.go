//go:build !unix

package cli

// CatchStops does nothing: there is no ^Z.
func CatchStops(*Display, func(), func()) (release func()) { return func() {} }
