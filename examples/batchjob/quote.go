package main

import (
	"slices"
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
	if !resuming {
		args = slices.Insert(slices.Clone(args), 1, "-resume")
	}
	return quoteAll(args)
}
