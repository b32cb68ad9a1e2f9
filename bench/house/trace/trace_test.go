package trace

import (
	"os"
	"path/filepath"
	"testing"
)

func outer() { defer In("a.go", "outer")(); inner(); inner() }

func inner() { defer In("b.go", "inner")() }

// Only what the goroutine does between Call and its end is recorded, and each call is appended.
func TestCall(t *testing.T) {
	was := file
	defer func() { file = was }()
	file = ""
	Call()() // records nothing
	file = filepath.Join(t.TempDir(), "record")
	outer()
	for range 2 {
		end := Call()
		done := make(chan struct{})
		go func() { defer close(done); outer() }()
		<-done
		outer()
		end()
	}
	outer()
	got, err := os.ReadFile(file)
	one := "call\n1\ta.go\touter\n2\tb.go\tinner\n2\tb.go\tinner\n"
	if string(got) != one+one || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCall_CannotWrite(t *testing.T) {
	was := file
	defer func() { file = was }()
	file = t.TempDir()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Call()()
}
