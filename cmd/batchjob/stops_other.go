//go:build !unix

package main

// catch does nothing: there is no ^Z.
func (*stops) catch(func() (resume func())) (release func()) { return func() {} }

func stopGroup(int)     {}
func continueGroup(int) {}
