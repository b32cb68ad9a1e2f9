package sluiceredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// longestText is the longest name or key that stands in a Redis key as it is.
const longestText = 128

// key returns the key of the state of a limit: prefix:kind:{name|key}, and of one called
// family/limit prefix:kind:{family|key}:limit. The text in braces is the tag: it decides the slot
// of a Redis Cluster, so all parts of one limit, and all limits of one family and key, are on one
// server, and scripts can decide them together. The kind holds the version of the format, and no
// numbers of the limit: those may change without starting it over.
func (s *Store) key(kind, name, key, part string) string {
	return s.head(kind, name) + escape(key) + tail(name, part)
}

// head returns everything before the key, and tail everything behind it.
func (s *Store) head(kind, name string) string {
	family, _ := split(name)
	return s.prefix + ":" + kind + ":{" + escape(family) + "|"
}

func tail(name, part string) string {
	end := "}"
	if _, limit := split(name); limit != "" {
		end += ":" + escape(limit)
	}
	if part != "" {
		end += ":" + part
	}
	return end
}

// tagOf returns the tag of a key that key returned, as Redis finds it.
func tagOf(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

// split splits the name of a limit at its last slash: a family may be called
// example.com/api.
func split(name string) (family, limit string) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// hashMark begins the image of a long string. The escaper writes % only before 25,
// 7b, 7c and 7d, so the image of a short string never contains %h. A % followed by
// the digits alone would not do: the short string "%" + 30 digits escapes to
// "%25" + 30 digits, which is also the image of a long string whose hash begins
// with 25.
const hashMark = "%h"

// escape returns text without braces and bars. Different strings have different
// images, unless they are longer than longestText and 128 bits of their SHA-256
// agree.
func escape(text string) string {
	if len(text) > longestText {
		sum := sha256.Sum256([]byte(text))
		return hashMark + hex.EncodeToString(sum[:16])
	}
	for i := range len(text) { // strings.ContainsAny takes five times as long
		switch text[i] {
		case '{', '|', '}', '%':
			return escaper.Replace(text)
		}
	}
	return text
}

var escaper = strings.NewReplacer("%", "%25", "{", "%7b", "|", "%7c", "}", "%7d")

// checkName returns an error if a limit cannot be called name.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("sluiceredis: a limit needs a name: it is part of its keys")
	}
	if strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") {
		return fmt.Errorf("sluiceredis: a limit called %q: a family and a limit stand around the last slash", name)
	}
	return nil
}
