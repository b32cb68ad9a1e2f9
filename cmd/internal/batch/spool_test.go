//go:build unix

package batch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the length: it comes back as it was, and beyond a megabyte it is in a file.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, size := range []int{0, 1, inMemory - 1, inMemory, inMemory + 1, 3*inMemory + 7} {
		want := bytes.Repeat([]byte("x"), size)
		var read, adopted spool
		if more, err := read.readFrom(bytes.NewReader(want), 4*inMemory, ""); more || err != nil {
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
	for _, most := range []int64{1, inMemory - 1, inMemory, inMemory + 1, 2 * inMemory} {
		for more := range int64(2) {
			var s spool
			got, err := s.readFrom(strings.NewReader(strings.Repeat("x", int(most+more))), most, "")
			if got != (more == 1) || err != nil {
				t.Errorf("%d of at most %d bytes: %v, %v", most+more, most, got, err)
			}
			s.close()
		}
	}
}

// With a name, a long output is in a file of that folder, until it is saved or closed.
func TestSpool_Named(t *testing.T) {
	name := filepath.Join(t.TempDir(), "1.out")
	want := strings.Repeat("x", inMemory) + "end"
	for _, saved := range []bool{false, true} {
		var s spool
		if more, err := s.readFrom(strings.NewReader(want), 0, name); more || err != nil || len(s.head) > 0 {
			t.Fatal(more, err, len(s.head))
		}
		if part, err := os.ReadFile(name + ".part"); err != nil || string(part) != want {
			t.Fatal(len(part), err)
		}
		if saved {
			if err := s.save(name); err != nil {
				t.Fatal(err)
			}
		}
		s.close()
		files, err := os.ReadDir(filepath.Dir(name))
		if err != nil || len(files) != map[bool]int{true: 1}[saved] {
			t.Errorf("saved: %v: %v, %v", saved, files, err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Error(len(got), err)
	}
}
