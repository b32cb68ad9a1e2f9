//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Whatever the length: it comes back as it was, and beyond a megabyte it is in a file.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, size := range []int{0, 1, inMemory - 1, inMemory, inMemory + 1, 3*inMemory + 7} {
		want := bytes.Repeat([]byte("x"), size)
		var read, adopted spool
		if more, err := read.readFrom(bytes.NewReader(want), 4*inMemory); more || err != nil {
			t.Fatal(more, err)
		}
		file, err := tempFile()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := adopted.adopt(file); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*spool{&read, &adopted} {
			if inFile := size > inMemory; (s.file != nil) != inFile || len(s.head) > inMemory {
				t.Errorf("%d bytes: %d in memory, file %v", size, len(s.head), s.file)
			}
			if err := s.endLine(); err != nil {
				t.Error(err)
			}
			var got []byte
			if err := s.each(func(b []byte) error { got = append(got, b...); return nil }); err != nil {
				t.Error(err)
			}
			if text := strings.TrimSuffix(string(got), "\n"); text != string(want) || size > 0 && len(got) != size+1 {
				t.Errorf("%d bytes came back as %d", size, len(got))
			}
			s.close()
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestSpool_TooLong(t *testing.T) {
	var s spool
	defer s.close()
	if more, err := s.readFrom(strings.NewReader(strings.Repeat("x", 2*inMemory+1)), 2*inMemory); !more || err != nil {
		t.Error(more, err)
	}
}
