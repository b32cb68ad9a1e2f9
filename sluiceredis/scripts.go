package sluiceredis

import (
	"embed"
	"strings"
)

// # What may a script do?
//
//   - It reads the server's clock once, and replies it last, in microseconds:
//     what was decided can then be computed again (see replay_test.go). No clock
//     of a client decides anything.
//   - It replies integers, first a code: 0, or negative if a key holds what it
//     must not. Texts of errors differ between servers and are not looked at.
//   - It decides everything before it writes anything, so that an error leaves
//     the keys as they were.
//   - It names all keys, which share a hash tag, and gives each an expiry as
//     long as what it says counts.
//   - It uses no library beyond string, math and table, so that it runs on
//     Redis from version 5 on, on Valkey and in miniredis.

//go:embed lua/*.lua
var lua embed.FS

// script returns the script of lua/name.lua, behind those parts it needs.
func script(name string, parts ...string) *Script {
	var text strings.Builder
	for _, part := range append(append([]string{"clock"}, parts...), name) {
		text.WriteString(source(part))
	}
	return NewScript(name, text.String())
}

// source returns what is in lua/name.lua, bare.
func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // they are part of the program
	}
	return string(bare(string(text)))
}

// bare returns source without the lines that are comments only: a server that
// does not know a script is sent all of it.
func bare(source string) []byte {
	var out []byte
	for line := range strings.Lines(source) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			out = append(out, line...)
		}
	}
	return out
}
