//go:build !unix

package main

import "os/exec"

// alone does nothing: a cancelled command is killed, as os/exec has it.
func alone(*exec.Cmd) {}
