package main

import (
	"os"
	"testing"
	"testing/synctest"
)

// inBubble calls f in a testing/synctest bubble, where time passes only when
// all goroutines wait, then next outside it, and ends the program with the status
// that next returns.
//
// Bubbles are for tests, so the program becomes one, by what package testing
// keeps for systems that are not "go test". The alternative is a program that
// draws what "go test" has computed before: two commands where one will do.
func inBubble(f func(), next func() int) {
	os.Args = os.Args[:1] // the flags are read, and testing has others
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{
		Name: "timeline",
		F: func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { f() })
			os.Exit(next()) // here, or testing says PASS
		},
	}}, nil, nil)
}
