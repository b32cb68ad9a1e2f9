package batch

import "bytes"

// A tagger writes a tag before each line.
type tagger struct {
	tag   []byte
	write func([]byte) error
	begin bool // of a line
}

func (t *tagger) add(b []byte) error {
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		if t.begin {
			out.Write(t.tag)
		}
		out.Write(line)
		t.begin = line[len(line)-1] == '\n'
	}
	return t.write(out.Bytes())
}
