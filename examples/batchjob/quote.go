package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// quote writes an argument so that a POSIX shell reads it as it is.
func quote(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool { return !plain(r) }) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

func quoteAll(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = quote(arg)
	}
	return strings.Join(quoted, " ")
}

// resumeCommand is how to go on: the same command line, with -resume if it does
// not resume yet. The mode -resume would skip what failed of a run with
// -resume-failed, so those stay.
func resumeCommand(args []string, resuming bool) string {
	command := again(args[0])
	if !resuming {
		command = append(command, "-resume")
	}
	return quoteAll(append(command, args[1:]...))
}

// again is what to type to run the program of a name again.
func again(name string) []string {
	info, ok := debug.ReadBuildInfo()
	if !ok || !passing(name) || info.Main.Path == "" { // it has no path if files were named
		return []string{name}
	}
	return []string{"go", "run", info.Path}
}

// passing reports whether a program is one of go run, which deletes what it has
// built, in go-build…/b001/exe, when it ends; or runs what is in its cache, in a
// folder with the name of a digest, for some days.
func passing(name string) bool {
	folder := filepath.Dir(name)
	id, cached := strings.CutSuffix(filepath.Base(folder), "-d")
	if _, err := hex.DecodeString(id); cached && err == nil && len(id) == 2*sha256.Size {
		return true
	}
	return filepath.Base(folder) == "exe" && strings.HasPrefix(filepath.Base(filepath.Dir(filepath.Dir(folder))), "go-build")
}
