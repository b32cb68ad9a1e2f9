//go:build !windows

package batch

import "os"

func hasEscapes(*os.File) bool { return os.Getenv("TERM") != "dumb" }
