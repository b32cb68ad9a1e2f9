package batch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// followEvery is the interval at which the output of a command that runs is looked at.
const followEvery = 100 * time.Millisecond

// A follower prints, with -line-buffer, the lines of a command while it runs. It reads the files
// that the command writes to, so that the end of the command is still its own end, and children that
// it leaves behind do not matter.
type follower struct {
	print func(to stream, line []byte) error
	tag   []byte // begins each line

	mu     sync.Mutex
	files  [2]*os.File // of each stream
	at     [2]int64    // printed so far
	broken error       // of print; nothing is printed after it
}

// A stream is stdout or stderr of a command.
type stream int

const (
	toStderr stream = iota
	toStdout
)

// mostOfLine is the longest line that is printed in one piece.
const mostOfLine = 1 << 20

// look prints the lines that are complete, and at the end of the command the rest, which gets
// a newline if it has none.
func (f *follower) look(atEnd bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for to := range f.files {
		for f.broken == nil {
			n, err := f.piece(stream(to), atEnd)
			if err != nil {
				f.broken = err
			}
			if n == 0 {
				break
			}
			f.at[to] += int64(n)
		}
	}
	return f.broken
}

// piece prints the lines that are next, and returns their length in bytes.
func (f *follower) piece(to stream, atEnd bool) (n int, err error) {
	info, err := f.files[to].Stat()
	if err != nil || info.Size() <= f.at[to] {
		return 0, err
	}
	b := make([]byte, min(info.Size()-f.at[to], mostOfLine))
	n, err = f.files[to].ReadAt(b, f.at[to])
	if err != nil && err != io.EOF {
		return 0, err
	}
	more := n == mostOfLine // the line is longer than that, or others follow
	b = b[:n]
	if end := bytes.LastIndexByte(b, '\n') + 1; end > 0 {
		b = b[:end]
	} else if !more && !atEnd {
		return 0, nil
	}
	n = len(b)
	if n == 0 {
		return 0, nil
	}
	if atEnd && !more && b[n-1] != '\n' {
		b = append(b, '\n')
	}
	if f.tag == nil {
		return n, f.print(to, b)
	}
	tagged := tagger{tag: f.tag, write: func(b []byte) error { return f.print(to, b) }, begin: true}
	return n, tagged.add(b)
}

// follow prints the lines of a command that writes to files until its end, when end is called,
// which returns why something could not be printed. Then broken was called.
func (f *follower) follow(stdout, stderr *os.File, broken func()) (end func() error) {
	f.files = [2]*os.File{toStderr: stderr, toStdout: stdout}
	stop := cli.Every(followEvery, func() {
		if f.look(false) != nil {
			broken()
		}
	})
	return func() error {
		stop()
		if err := f.look(true); err != nil {
			return fmt.Errorf("printing an output: %w", err)
		}
		return nil
	}
}
