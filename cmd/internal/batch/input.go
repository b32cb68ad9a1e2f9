package batch

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync/atomic"
)

// unknown is the total of an input that cannot be counted beforehand.
const unknown = -1

// An input is where items come from.
type input struct {
	file    *os.File // nil if the items were given on the command line
	from    io.Reader
	end     byte         // of a line
	each    int          // lines that are an item,
	fill    int          // or as many as have so many bytes, if it is above 0
	crlf    bool         // a carriage return before it is part of the end
	returns atomic.Bool  // an item ends with one, and it is part of the item
	total   atomic.Int64 // how many there are, or unknown until they are read
	failure atomic.Pointer[error]
	fleet   *fleet // where items come from instead, with -queue
}

// openInput opens the input and, if it is a file or was given on the command line, counts its
// items. Stdin is not touched if the items are elsewhere.
func openInput(o options, stdin *os.File) (in *input, err error) {
	in = &input{file: stdin, from: stdin, end: '\n', each: max(1, o.shape.n), fill: o.shape.fill, crlf: o.crlf}
	if o.null {
		in.end = 0
	}
	in.total.Store(unknown)
	if o.queue.Name != "" && o.fill == "" {
		in.file = nil
		in.fleet, err = openFleet(o)
		return in, err
	}
	if o.given != nil {
		all := strings.Join(o.given, "\x00")
		in.file, in.from = nil, strings.NewReader(all)
		in.total.Store(in.count())
		in.from = strings.NewReader(all)
		return in, nil
	}
	if o.in != "-" {
		file, err := os.Open(o.in)
		if err != nil {
			return nil, fmt.Errorf("-in: %w", err)
		}
		in.file, in.from = file, file
	}
	info, err := in.file.Stat()
	if err == nil && info.IsDir() {
		return nil, fmt.Errorf("-in %s: is a folder", o.in)
	}
	if err != nil || !info.Mode().IsRegular() {
		return in, nil
	}
	at, err := in.file.Seek(0, io.SeekCurrent) // stdin may have been read from
	if err != nil {
		return in, nil
	}
	n := in.count()
	if err := in.err(); err != nil {
		return nil, err
	}
	in.total.Store(n)
	if _, err := in.file.Seek(at, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the items: %w", err)
	}
	return in, nil
}

// count reads the items to the end, or to an error, and returns how many there are.
func (in *input) count() (n int64) {
	for items := range in.read() {
		n += int64(len(items))
	}
	return n
}

// read yields the items to the end, or to an error, for which see err: as many at the same time as
// have come.
func (in *input) read() iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		r := bufio.NewReaderSize(in.from, atOnce)
		end := string(rune(in.end))
		var lines, items []string
		size, filled := 0, 0
		join := func() {
			item := strings.Join(lines, end)
			items, lines, size, filled = append(items, item), lines[:0], size+len(item), 0
		}
		for {
			line, err := r.ReadString(in.end)
			if line = in.trim(strings.TrimSuffix(line, end)); line != "" {
				const pointer = 8 // of an argument
				if filled += len(line) + 1 + pointer; in.fill > 0 && filled > in.fill && len(lines) > 0 {
					join()
					filled = len(line) + 1 + pointer
				}
				lines = append(lines, line)
			}
			if in.fill == 0 && len(lines) == in.each || err != nil && len(lines) > 0 {
				join()
			}
			if len(items) > 0 && (err != nil || r.Buffered() == 0 || size >= atOnce) {
				if !yield(items) {
					return
				}
				items, size = nil, 0
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				err = fmt.Errorf("reading the items: %w", err)
				in.failure.Store(&err)
				return
			}
		}
	}
}

// trim removes the carriage return of a line of Windows, if that was asked for.
func (in *input) trim(line string) string {
	if in.end == '\n' && strings.HasSuffix(line, "\r") {
		if in.crlf {
			return line[:len(line)-1]
		}
		in.returns.Store(true)
	}
	return line
}

// The input is read ahead, so that it is known how many items a pipe has: up to
// mostAhead times so many bytes, and the item that exceeds them.
const (
	atOnce    = 64 << 10
	mostAhead = 128
)

// items yields the items until ending is closed, if it is not nil. What is
// waited for is a channel: while a person types items the program must be able
// to end. The goroutine that reads then ends with the program.
func (in *input) items(ending <-chan struct{}) iter.Seq[string] {
	return func(yield func(string) bool) {
		ahead, over := make(chan []string, mostAhead), make(chan struct{})
		defer close(over)
		go func() {
			defer close(ahead)
			n := int64(0)
			for items := range in.read() {
				n += int64(len(items))
				select {
				case ahead <- items:
				case <-over:
					return
				}
			}
			if in.err() == nil {
				in.total.Store(n)
			}
		}()
		for {
			select {
			case items, ok := <-ahead:
				if !ok || !yieldUntil(ending, items, yield) {
					return
				}
			case <-ending:
				return
			}
		}
	}
}

// yieldUntil yields items until ending is closed, and reports whether that is still to come.
func yieldUntil(ending <-chan struct{}, items []string, yield func(string) bool) bool {
	for _, item := range items {
		select {
		case <-ending:
			return false
		default:
		}
		if !yield(item) {
			return false
		}
	}
	return true
}

// err returns why the input could not be read to its end, or nil.
func (in *input) err() error {
	if failure := in.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// close closes the file, if there is one. What was read of it is read.
func (in *input) close() {
	in.fleet.close()
	if in.file != nil {
		in.file.Close()
	}
}
