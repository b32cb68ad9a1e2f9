package presets

import (
	"encoding/json"
	"io"
	"sync"
)

// # Why is the model not found by encoding/json?
//
// The key of a request is needed before its cost is, and both are in the body. A decoder builds
// each value that it passes, and most of a body is prompt, before or after the model. So the
// body is parsed once, for the cost, and only looked through for the key: nothing is built but
// the name of the model.

// chunks are buffers of stringIn.
var chunks = sync.Pool{New: func() any { return new([4096]byte) }}

// stringIn returns the string that a field of the JSON object in body is, "" if there is none. name
// is that of the field, in quotes.
func stringIn(body io.Reader, name string) string {
	var (
		depth   int    // of objects and arrays
		text    []byte // of the string that is being read, if it may matter
		matters bool   // it may be the name of a field of the object, or the value of name
		isName  bool   // the last string was name, as the name of a field
		value   bool   // after a colon
		in      bool   // a string
		escaped bool   // the next byte of it
	)
	chunk := chunks.Get().(*[4096]byte)
	defer chunks.Put(chunk)
	for {
		n, err := body.Read(chunk[:])
		for _, b := range chunk[:n] {
			if in {
				if matters && (isName || len(text) <= len(name)) {
					text = append(text, b)
				}
				switch {
				case escaped:
					escaped = false
				case b == '\\':
					escaped = true
				case b == '"':
					in = false
					if matters && isName && value {
						var found string
						_ = json.Unmarshal(text, &found) // "" if it is none
						return found
					}
					isName = matters && string(text) == name
				}
				continue
			}
			switch b {
			case '"':
				in, matters = true, depth == 1 && (!value || isName)
				text = append(text[:0], b)
			case '{', '[':
				if depth++; depth == 1 && b == '[' {
					return ""
				}
			case '}', ']':
				if depth--; depth == 0 {
					return ""
				}
			case ':':
				value = value || depth == 1
			case ',':
				if depth == 1 {
					value = false
				}
			}
		}
		if err != nil {
			return ""
		}
	}
}
