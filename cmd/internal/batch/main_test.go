package batch

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// binary is the program: this test. With asProgram in the environment, which it has from here, it
// is sluice batch, whether or not its first argument says so.
var binary string

const asProgram = "SLUICE_RUN_BATCH"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		args := os.Args
		if len(args) < 2 || args[1] != "batch" {
			args = slices.Insert(args, 1, "batch")
		}
		os.Exit(Command.Execute(args, os.Stdin, os.Stdout, os.Stderr))
	}
	var err error
	if binary, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(asProgram, "1")
	goleak.VerifyTestMain(m)
}
