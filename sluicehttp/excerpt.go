package sluicehttp

import "bytes"

// An excerpt keeps what a Usage gets of a body or of an event: all of it if it is short, otherwise
// its end. Of an object of JSON it keeps the outline instead.
type excerpt struct {
	all     tail
	outline *outline // nil unless it is a long object
}

// add adds the next bytes.
func (e *excerpt) add(p []byte) {
	switch {
	case e.outline != nil:
		e.outline.add(p)
	case len(e.all) <= mostOfUsage && len(e.all)+len(p) > mostOfUsage && isObject(e.all, p):
		e.outline = new(outline)
		e.outline.add(e.all)
		e.outline.add(p)
		e.all = nil
	default:
		e.all.add(p)
	}
}

// isObject reports whether what begins with first, and goes on with next, looks like an object.
func isObject(first, next []byte) bool {
	for _, p := range [...][]byte{first, next} {
		if p = bytes.TrimLeft(p, whitespace); len(p) > 0 {
			return p[0] == '{'
		}
	}
	return false
}

// bytes returns the excerpt. It is valid until the next add.
func (e *excerpt) bytes() []byte {
	if e.outline != nil {
		return e.outline.out.last()
	}
	return e.all.last()
}

// reset makes e empty.
func (e *excerpt) reset() { e.all, e.outline = e.all[:0], nil }

// An outline is JSON without its long strings and arrays.
//
// # Where is the usage in a long response?
//
// Anywhere: some servers write it before the answer, and not all at the same depth. What makes a
// response long is text, in strings, or numbers, in arrays. So a string of more than 1 KiB becomes
// an empty one, and an array whose outline has more than 4 KiB becomes [], and the rest nearly always
// fits into what a Usage gets:
//
//	{"usage":{"total_tokens":44},"choices":[{"text":"… 200 KiB"}]}
//	{"usage":{"total_tokens":44},"choices":[{"text":""}]}
//
// Nested arrays are part of the outermost one. If the outline is too long all the same, its end counts.
// An outline of anything but JSON is of no use, but as short. It needs a few bytes of state and
// no stack, and 1 ns a byte of numbers or 5 of text with an escape in each 8; json.Decoder.Token takes 93 and 11.
type outline struct {
	out     tail
	depth   int  // of brackets and braces
	array   int  // depth of the array of which this is part; 0: none
	from    int  // where that begins in out
	long    bool // the array is too long
	quoted  bool // this is a string
	quote   int  // where that begins in out
	cut     bool // the string is too long
	escaped bool // the byte before was a backslash
}

const (
	mostOfString = 1 << 10 // bytes of an outline
	mostOfArray  = 4 << 10 // likewise
	whitespace   = " \t\r\n"
)

// add adds the next bytes of the JSON.
func (o *outline) add(p []byte) {
	for len(p) > 0 {
		switch {
		case o.quoted:
			p = p[o.addString(p):]
			continue
		case o.long:
			i := bytes.IndexAny(p, `"[]{}`)
			if i < 0 {
				return
			}
			p = p[i:]
		}
		o.addByte(p[0])
		p = p[1:]
	}
}

// addByte adds a byte that is not part of a string, or begins one.
func (o *outline) addByte(c byte) {
	if o.array == 0 {
		o.out.bound()
	}
	switch c {
	case '"':
		o.quoted, o.quote = true, len(o.out)
	case '{', '[':
		if o.depth++; c == '[' && o.array == 0 {
			o.array, o.from = o.depth, len(o.out)
		}
	case '}', ']':
		if o.depth = max(0, o.depth-1); o.array > o.depth {
			o.array, o.long = 0, false
		}
	case ' ', '\t', '\r', '\n':
		if o.depth > 0 {
			return
		}
	}
	if !o.long {
		o.keep(c)
	}
}

// addString adds what p has of the string, and returns how many bytes that is.
func (o *outline) addString(p []byte) int {
	n := 0
	for o.quoted && n < len(p) {
		switch i := bytes.IndexAny(p[n:], `"\`); {
		case o.escaped:
			o.escaped = false
			n++
		case i < 0:
			n = len(p)
		default:
			o.escaped, o.quoted = p[n+i] == '\\', p[n+i] != '"'
			n += i + 1
		}
	}
	switch {
	case o.long:
	case len(o.out)+n-o.quote > mostOfString:
		o.out, o.cut = o.out[:o.quote+1], true
	case !o.cut:
		o.keep(p[:n]...)
	}
	if o.cut && !o.quoted {
		o.cut = false
		if !o.long {
			o.keep('"')
		}
	}
	return n
}

// keep keeps p, unless the array is too long by that. Part of a string does not count, for it may be cut.
func (o *outline) keep(p ...byte) {
	o.out = append(o.out, p...)
	if o.array > 0 && !o.quoted && len(o.out)-o.from > mostOfArray {
		o.out, o.long = o.out[:o.from+1], true
	}
}
