package main

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
	file    *os.File
	end     byte         // of an item
	total   atomic.Int64 // how many there are, or unknown until they are read
	failure atomic.Pointer[error]
}

// openInput opens the input and, if it is a file, counts its items.
func openInput(o options, stdin *os.File) (*input, error) {
	in := &input{file: stdin, end: '\n'}
	if o.null {
		in.end = 0
	}
	in.total.Store(unknown)
	if o.in != "-" {
		file, err := os.Open(o.in)
		if err != nil {
			return nil, fmt.Errorf("-in: %w", err)
		}
		in.file = file
	}
	info, err := in.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return in, nil
	}
	at, err := in.file.Seek(0, io.SeekCurrent) // stdin may have been read from
	if err != nil {
		return in, nil
	}
	n := int64(0)
	for range in.read() {
		n++
	}
	if err := in.err(); err != nil {
		return nil, err
	}
	in.total.Store(n)
	if _, err := in.file.Seek(at, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the items: %w", err)
	}
	return in, nil
}

// read yields the items to the end, or to an error, for which see err.
func (in *input) read() iter.Seq[string] {
	return func(yield func(string) bool) {
		r := bufio.NewReaderSize(in.file, 64<<10)
		for {
			item, err := r.ReadString(in.end)
			item = strings.TrimSuffix(item, string(rune(in.end)))
			if item != "" && !yield(item) {
				return
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

// items yields the items until ending is closed, if it is not nil. What is
// waited for is a channel: while a person types items the program must be able
// to end. The goroutine that reads then ends with the program.
func (in *input) items(ending <-chan struct{}) iter.Seq[string] {
	return func(yield func(string) bool) {
		lines, over := make(chan string), make(chan struct{})
		defer close(over)
		go func() {
			defer close(lines)
			for item := range in.read() {
				select {
				case lines <- item:
				case <-over:
					return
				}
			}
		}()
		for n := int64(0); ; n++ {
			select {
			case item, ok := <-lines:
				if !ok {
					if in.err() == nil {
						in.total.Store(n)
					}
					return
				}
				if !yield(item) {
					return
				}
			case <-ending:
				return
			}
		}
	}
}

// err returns why the input could not be read to its end, or nil.
func (in *input) err() error {
	if failure := in.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// close closes the file. What was read of it is read.
func (in *input) close() { in.file.Close() }
