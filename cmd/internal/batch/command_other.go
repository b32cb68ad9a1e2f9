//go:build !unix

package batch

import (
	"os"
	"os/exec"
)

// alone does nothing: a canceled command is killed, as os/exec has it.
func alone(*exec.Cmd) (ended func()) { return func() {} }

// killRest does nothing: there are no groups to kill.
func killRest(*exec.Cmd) {}

func isBusy(error) bool { return true }

func isScarce(error) bool { return false }

func leadsNowhere(*os.File) bool { return false }

// unlink does nothing: an open file cannot be deleted.
func unlink(*os.File) error { return nil }

func closeTemp(file *os.File) {
	file.Close()
	os.Remove(file.Name())
}
