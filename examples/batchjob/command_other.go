//go:build !unix

package main

import "os/exec"

// alone does nothing: a cancelled command is killed, as os/exec has it.
func alone(*exec.Cmd) {}

// killRest does nothing: there are no groups to kill.
func killRest(*exec.Cmd) {}
