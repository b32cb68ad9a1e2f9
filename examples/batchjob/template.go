package main

import (
	"path"
	"strconv"
	"strings"
)

// A subject is what stands for the placeholders of a template.
type subject struct {
	item string
	seq  int64 // of the item, from 1
	slot int   // of the job, from 1: no two that run at once have the same
}

// placeholders are those of GNU parallel. A longer one comes before those that
// it begins with.
var placeholders = []struct {
	text  string
	value func(s subject) string
}{
	{"{/.}", func(s subject) string { return withoutExt(path.Base(s.item)) }},
	{"{//}", func(s subject) string { return path.Dir(s.item) }},
	{"{/}", func(s subject) string { return path.Base(s.item) }},
	{"{.}", func(s subject) string { return withoutExt(s.item) }},
	{"{#}", func(s subject) string { return strconv.FormatInt(s.seq, 10) }},
	{"{%}", func(s subject) string { return strconv.Itoa(s.slot) }},
	{"{}", func(s subject) string { return s.item }},
}

// withoutExt cuts the extension off, but not that of a folder, nor the name of
// a hidden file.
func withoutExt(name string) string {
	if base := path.Base(name); strings.LastIndexByte(base, '.') > 0 {
		return strings.TrimSuffix(name, path.Ext(base))
	}
	return name
}

// expand puts the values of s in the place of the placeholders of a template,
// each through escape, which gets the text before it. What a value
// contains is not expanded again.
func expand(template string, s subject, escape func(before, value string) string) string {
	var b strings.Builder
	for rest := template; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:open])
		rest = rest[open:]
		length := 1
		value := "{"
		for _, p := range placeholders {
			if strings.HasPrefix(rest, p.text) {
				length = len(p.text)
				value = escape(template[:len(template)-len(rest)], p.value(s))
				break
			}
		}
		b.WriteString(value)
		rest = rest[length:]
	}
	return b.String()
}

// hasPlaceholder reports whether a template stands for more than itself.
func hasPlaceholder(template string) bool {
	for _, p := range placeholders {
		if strings.Contains(template, p.text) {
			return true
		}
	}
	return false
}

func verbatim(_, value string) string { return value }
