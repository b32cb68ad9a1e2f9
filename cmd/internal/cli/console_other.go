//go:build !windows

package cli

import "os"

func hasEscapes(*os.File) bool { return os.Getenv("TERM") != "dumb" }
