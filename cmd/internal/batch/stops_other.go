//go:build !unix

package batch

// catch does nothing: there is no ^Z.
func (*stops) catch(func() (resume func())) (release func()) { return func() {} }

func stopGroup(int)     {}
func continueGroup(int) {}
