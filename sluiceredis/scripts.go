package sluiceredis

import (
	"embed"
	"strings"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// # How may a script behave?
//
//   - It reads the server's clock once, and replies it last, in microseconds:
//     the decision can then be computed again (see replay_test.go). No clock
//     of a client decides anything.
//   - It replies integers, first a code: 0, or negative if a key has invalid content. Error messages differ between servers and are not looked at.
//   - It decides everything before it writes anything, so that an error leaves
//     the keys as they were.
//   - It names all keys, which share a hash tag, and gives each an expiry as long as its content matters.
//   - It uses no library beyond string, math and table, so that it runs on
//     Redis from version 5 on, on Valkey and in miniredis.

//go:embed lua/*.lua
var lua embed.FS

// takes and adds are the scripts that take from sets of limits of those kinds, or add to
// limits without asking. A script has the rules of its kinds only, because Lua creates each
// function again in each call; takes make them only for limits other than the usual bucket.
var takes, adds = func() (takes, adds [1 << kinds.Count]*Script) {
	for set := range takes {
		parts := []string{"epoch", "limits"}
		if kinds.Kind(set)&(kinds.BucketKind|kinds.PaceKind) != 0 {
			parts = append(parts, "instant")
		}
		for k := kinds.Kind(1); k < 1<<kinds.Count; k <<= 1 {
			if kinds.Kind(set)&k != 0 {
				parts = append(parts, k.String())
			}
		}
		adds[set] = strictScript("add", parts...)
		general := ""
		for _, part := range append(append([]string{"replies"}, parts...), "set") {
			general += source(part)
		}
		takes[set] = newScript("take", source("clock")+strings.Replace(source("take"), "parts_of_general()\n", general, 1))
		takes[set].strict, takes[set].marked, adds[set].marked = true, true, true
		takes[set].joins = kinds.Kind(set)&kinds.SlidingKind == 0
	}
	return takes, adds
}()

// script returns the script of lua/name.lua, behind those parts it needs.
func script(name string, parts ...string) *Script {
	var text strings.Builder
	for _, part := range append(append([]string{"clock", "replies"}, parts...), name) {
		text.WriteString(source(part))
	}
	return newScript(name, text.String())
}

// strictScript returns the script of lua/name.lua that, in strict mode, has the
// epoch for its last key.
func strictScript(name string, parts ...string) *Script {
	s := script(name, parts...)
	s.strict = true
	return s
}

// source returns the content of lua/name.lua, without the lines that are comments only: a
// server that does not know a script is sent all of it.
func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // they are part of the program
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			out.WriteString(line)
		}
	}
	return out.String()
}
