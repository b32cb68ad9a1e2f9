package main

import (
	"os"
	"testing"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

// binary is the program.
var binary string

func TestMain(m *testing.M) { os.Exit(built.Test(m, "apiclient", &binary, main)) }
