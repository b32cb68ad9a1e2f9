package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// Quote writes an argument so that a POSIX shell reads it as it is.
func Quote(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool { return !plain(r) }) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// QuoteAll writes a command line.
func QuoteAll(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = Quote(arg)
	}
	return strings.Join(quoted, " ")
}

// ResumeCommand is how to go on: the same command line, with -resume if it does
// not resume yet. args is os.Args; the second one is the command of sluice. Secrets in addresses and in values of -header are hidden.
func ResumeCommand(args []string, resuming bool) string {
	command := append(again(args[0]), args[1])
	if !resuming {
		command = append(command, "-resume")
	}
	hidden := false
	rest := slices.Clone(args[2:])
	for i, arg := range rest {
		if arg == "--" {
			break
		}
		if login.MatchString(arg) {
			rest[i], hidden = login.ReplaceAllString(arg, "://(hidden)@"), true
		}
		// A flag and its value, or both in one, as -header=….
		name, field, joined := strings.Cut(arg, "=")
		switch {
		case "-"+strings.TrimLeft(name, "-") != "-header":
		case joined:
			field, hidden = hide(field, hidden)
			rest[i] = name + "=" + field
		case i+1 < len(rest):
			rest[i+1], hidden = hide(rest[i+1], hidden)
		}
	}
	text := QuoteAll(append(command, rest...))
	if hidden {
		text += "\n\t(with the values that are hidden)"
	}
	return text
}

// login is the user and password of an address.
var login = regexp.MustCompile(`://[^/?#]*@`)

// hide replaces the value of a header field that may be a secret: what is printed may end
// up in the log of a build server. @ begins the name of a file, which is none.
func hide(field string, before bool) (shown string, hidden bool) {
	if strings.HasPrefix(field, "@") {
		return field, before
	}
	name, _, _ := strings.Cut(field, ":")
	for _, word := range []string{"auth", "cookie", "token", "key", "secret", "password", "credential", "session"} {
		if strings.Contains(strings.ToLower(name), word) {
			return name + ": (hidden)", true
		}
	}
	return field, before
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
// directory with the name of a digest, for some days.
func passing(name string) bool {
	folder := filepath.Dir(name)
	id, cached := strings.CutSuffix(filepath.Base(folder), "-d")
	if _, err := hex.DecodeString(id); cached && err == nil && len(id) == 2*sha256.Size {
		return true
	}
	return filepath.Base(folder) == "exe" && strings.HasPrefix(filepath.Base(filepath.Dir(filepath.Dir(folder))), "go-build")
}
