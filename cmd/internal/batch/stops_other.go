//go:build !unix

package batch

func stopGroup(int)     {}
func continueGroup(int) {}
