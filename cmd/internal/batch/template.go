package batch

import (
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A subject is what stands for the placeholders of a template.
type subject struct {
	items []string // one, or with -n several,
	joint string   // with this between them
	seq   int64    // of the item, from 1
	slot  int      // of the job, from 1: no two that run at once have the same

	columns []string                 // for {1}, {2} and so on; nil if there are none
	field   func(path string) string // for {.name}; nil if there are none
}

// A shape says how an item becomes a subject.
type shape struct {
	colsep string // between columns; "" if items have none
	n      int    // how many lines of the input are an item
	fill   int    // or as many as have so many bytes, if it is above 0
	end    string // between them
	joint  string // between them in the place of {}
	json   bool   // an item is a JSON object, with fields
}

// numbered reports whether {1} is a placeholder, or {.name}.
func (f shape) numbered() bool { return f.colsep != "" || f.json || f.several() }

// several reports whether several lines of the input may be one item.
func (f shape) several() bool { return f.n > 1 || f.fill > 0 }

// subject returns the subject of an item.
func (f shape) subject(item string, seq int64, slot int) subject {
	s := subject{items: []string{item}, joint: f.joint, seq: seq, slot: slot}
	switch {
	case f.colsep != "":
		s.columns = strings.Split(item, f.colsep)
	case f.several():
		s.items = strings.Split(item, f.end)
		s.columns = s.items
	}
	if f.json {
		s.field = fieldsOf(item)
	}
	return s
}

// errNotJSON is the error of items without the fields that -json promises.
var errNotJSON = errors.New("the item is not a JSON object (-json)")

// fieldsOf returns a function that returns a field of a JSON object, such as user.name: the text of a
// string, and what else there is as JSON. One that is missing is empty. It returns nil for what is no object.
func fieldsOf(item string) func(path string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(item), &object) != nil || object == nil {
		return nil
	}
	return func(path string) string {
		name, rest, nested := strings.Cut(path, ".")
		value := object[name]
		if nested {
			if inner := fieldsOf(string(value)); inner != nil {
				return inner(rest)
			}
			return ""
		}
		var text string
		if json.Unmarshal(value, &text) == nil && string(value) != "null" {
			return text
		}
		return string(value)
	}
}

// sample returns the subject of an item of which each part is the same text.
func (f shape) sample(text string) subject {
	s := subject{items: slices.Repeat([]string{text}, max(f.n, 1)), joint: f.joint, seq: 1, slot: 1}
	if f.numbered() {
		s.columns = slices.Repeat([]string{text}, max(f.n, 9))
	}
	if f.json {
		s.field = func(string) string { return text }
	}
	return s
}

// column returns the value of a placeholder such as {2}, {2/.} or {.name} at the beginning of a template,
// and how long it is, or 0. A column that is not there is empty.
func (s subject) column(template string) (value string, length int) {
	if s.columns == nil && s.field == nil {
		return "", 0
	}
	found := column.FindStringSubmatch(template)
	switch {
	case found == nil || found[3] == "" && s.columns == nil || found[3] != "" && s.field == nil:
		return "", 0
	case found[3] != "":
		return s.field(found[3]), len(found[0])
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return "", 0
	}
	if n <= len(s.columns) {
		value = s.columns[n-1]
	}
	if part := parts[found[2]]; part != nil && value != "" {
		value = part(value)
	}
	return value, len(found[0])
}

// parts are those of a name that a placeholder may stand for, by what it has before its brace.
var parts = map[string]func(string) string{
	"/.": func(name string) string { return withoutExt(path.Base(name)) },
	"//": path.Dir,
	"/":  path.Base,
	".":  withoutExt,
}

// placeholders are those of GNU parallel. A longer one comes before those that
// it begins with.
var placeholders = []struct {
	text   string
	values func(s subject) []string
}{
	{"{/.}", func(s subject) []string { return s.each(parts["/."]) }},
	{"{//}", func(s subject) []string { return s.each(parts["//"]) }},
	{"{/}", func(s subject) []string { return s.each(parts["/"]) }},
	{"{.}", func(s subject) []string { return s.each(parts["."]) }},
	{"{#}", func(s subject) []string { return []string{strconv.FormatInt(s.seq, 10)} }},
	{"{%}", func(s subject) []string { return []string{strconv.Itoa(s.slot)} }},
	{"{}", func(s subject) []string { return s.items }},
}

func (s subject) each(f func(string) string) []string {
	values := make([]string, len(s.items))
	for i, item := range s.items {
		values[i] = f(item)
	}
	return values
}

// arguments returns what stands for an argument of a command: several if it is nothing but
// a placeholder of several items.
func (s subject) arguments(template string) []string {
	for _, p := range placeholders {
		if template == p.text {
			return p.values(s)
		}
	}
	return []string{expand(template, s, verbatim)}
}

// withoutExt cuts the extension off, but not that of a directory, nor the name of
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
		if column, n := s.column(rest); n > 0 {
			length, value = n, escape(template[:len(template)-len(rest)], column)
		}
		for _, p := range placeholders {
			if strings.HasPrefix(rest, p.text) {
				length = len(p.text)
				values := slices.Clone(p.values(s))
				for i := range values {
					values[i] = escape(template[:len(template)-len(rest)], values[i])
				}
				value = strings.Join(values, s.joint)
				break
			}
		}
		b.WriteString(value)
		rest = rest[length:]
	}
	return b.String()
}

// hasPlaceholder reports whether a template stands for more than itself, with {1} or
// without.
func hasPlaceholder(template string, numbered bool) bool {
	for _, p := range placeholders {
		if strings.Contains(template, p.text) {
			return true
		}
	}
	return numbered && anyColumn.MatchString(template)
}

var (
	column    = regexp.MustCompile(`^\{(?:([1-9][0-9]*)(/\.|//|/|\.|)|\.([A-Za-z_][\w.-]*))\}`)
	anyColumn = regexp.MustCompile(strings.TrimPrefix(column.String(), "^"))
)

func verbatim(_, value string) string { return value }
