package testkit_test

import (
	"bytes"
	"flag"
	"go/format"
	"os"
	"path"
	"strings"
	"testing"
)

var writeCopies = flag.Bool("copy", false, "write the copies of internal files")

// copies are the files of the core that a nested module has as well, in its own internal directory:
// it is tagged apart, so it may not import them, and as exported packages they would be promises to
// all.
var copies = map[string][]string{
	"observe/live": {"internal/clean/clean.go", "internal/sentence/sentence.go"},
	"sluiceredis":  {"internal/kind/bucket.go", "internal/kind/sliding.go", "internal/rates/rates.go", "internal/sat/sat.go"},
}

func TestCopies(t *testing.T) {
	if _, err := os.Stat("../../sluiceredis"); err != nil {
		t.Skip("not a checkout: the other modules are not here")
	}
	for nested, files := range copies {
		for _, name := range files {
			original, err := os.ReadFile(path.Join("../..", name))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(original), module+"/internal/", module+"/"+nested+"/internal/")
			want, err := format.Source([]byte(text)) // which sorts the imports
			if err != nil {
				t.Fatal(err)
			}
			to := path.Join("../..", nested, name)
			if *writeCopies {
				if err := os.WriteFile(to, want, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is no copy of %s (%v): run go test ./internal/testkit -run TestCopies -copy", to, name, err)
			}
		}
	}
}
