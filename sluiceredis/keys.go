package sluiceredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// longestText is the longest name or key that stands in a Redis key as it is.
const longestText = 128

// key returns where a limit keeps what it knows: prefix:kind:{name|key}. What
// stands in braces decides the slot of a Redis Cluster, so all parts of one
// limit, and of limits that are given the same name and key, are on one server.
// The kind holds the version of the format, and no numbers of the limit: those
// may change without its beginning anew.
func (s *Store) key(kind, name, key, part string) string {
	k := s.prefix + ":" + kind + ":{" + escape(name) + "|" + escape(key) + "}"
	if part != "" {
		k += ":" + part
	}
	return k
}

// escape returns text without braces and bars, and not longer than that.
func escape(text string) string {
	if len(text) > longestText {
		sum := sha256.Sum256([]byte(text))
		return "%" + hex.EncodeToString(sum[:16]) // no escaped text begins like that and is as long
	}
	if !strings.ContainsAny(text, "{|}%") {
		return text
	}
	return escaper.Replace(text)
}

var escaper = strings.NewReplacer("%", "%25", "{", "%7b", "|", "%7c", "}", "%7d")

// checkName returns an error if a limit cannot be called name.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("sluiceredis: a limit needs a name: it is part of its keys")
	}
	return nil
}
