//go:build !windows

package main

import "os"

func hasEscapes(*os.File) bool { return os.Getenv("TERM") != "dumb" }
