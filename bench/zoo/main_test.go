package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The tests run this program as the command that it is, too.
func TestMain(m *testing.M) {
	if os.Getenv(gameVariable) != "" || os.Getenv(keepVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}
