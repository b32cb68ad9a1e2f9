package main

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// inMemory is how much of an output is kept in memory; the rest of it is in a file.
const inMemory = 1 << 20

// A spool keeps what an item prints until it is its turn. Its zero value is empty.
type spool struct {
	head []byte
	file *os.File // the rest, or nil; deleted already
}

// tempFile returns a file that is gone when it is closed, or with the process.
func tempFile() (*os.File, error) {
	file, err := os.CreateTemp("", "batchjob-*")
	if err != nil {
		return nil, err
	}
	if err := unlink(file); err != nil {
		closeTemp(file)
		return nil, err
	}
	return file, nil
}

// adopt keeps what a file holds. It returns an error if that may not be all, because the disk is
// full.
func (s *spool) adopt(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	full := isFull(info.Size())
	if info.Size() > inMemory {
		s.file = file // a child that is running may write on
		_, err = file.Seek(0, io.SeekStart)
		return errors.Join(full, err)
	}
	defer closeTemp(file)
	s.head = make([]byte, info.Size())
	n, err := file.ReadAt(s.head, 0)
	if err == io.EOF {
		err = nil // it may have been truncated meanwhile
	}
	s.head = s.head[:n]
	return errors.Join(full, err)
}

// isFull returns an error if the disk of temporary files is full, as far as an output of size
// bytes may have been cut by that: a command need not notice. What is cut ends with a block, so
// other outputs cost no look.
func isFull(size int64) error {
	if size == 0 || size%512 != 0 {
		return nil
	}
	file, err := tempFile()
	if err != nil {
		return err
	}
	defer closeTemp(file)
	_, err = file.Write(make([]byte, 1))
	return err
}

// readFrom keeps what r yields, up to most bytes. It reports whether there is more.
func (s *spool) readFrom(r io.Reader, most int64) (more bool, err error) {
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(r, inMemory))
	s.head = head.Bytes()
	if err != nil || n < inMemory {
		return false, err
	}
	if s.file, err = tempFile(); err != nil {
		return false, err
	}
	n, err = io.Copy(s.file, io.LimitReader(r, most-inMemory+1))
	if err != nil {
		return false, err
	}
	if n == 0 {
		closeTemp(s.file)
		s.file = nil
		return false, nil
	}
	_, err = s.file.Seek(0, io.SeekStart)
	return n > most-inMemory, err
}

// each calls write for all of it, in pieces.
func (s *spool) each(write func([]byte) error) error {
	if len(s.head) > 0 {
		if err := write(s.head); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	piece := make([]byte, inMemory)
	for {
		n, err := io.ReadFull(s.file, piece)
		if n > 0 {
			if err := write(piece[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// endLine adds a newline, unless there is one, or nothing.
func (s *spool) endLine() error {
	if s.file == nil {
		if n := len(s.head); n > 0 && s.head[n-1] != '\n' {
			s.head = append(s.head, '\n')
		}
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	last := make([]byte, 1)
	if _, err := s.file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = s.file.WriteAt([]byte("\n"), info.Size())
	return err
}

// save writes all of it to a file.
func (s *spool) save(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = s.each(func(b []byte) error { _, err := file.Write(b); return err })
	return errors.Join(err, file.Close())
}

// close forgets it.
func (s *spool) close() {
	if s.file != nil {
		closeTemp(s.file)
	}
	*s = spool{}
}
