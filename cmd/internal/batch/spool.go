package batch

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
)

// inMemory is how much of an output is kept in memory; the rest of it is in a file.
const inMemory = 1 << 20

// A spool keeps what an item prints until it is its turn. Its zero value is empty.
type spool struct {
	head []byte
	file *os.File // the rest, or nil
	part bool     // file has a name, and all of the output
}

// tempFile returns a file that is gone when it is closed, or with the process.
func tempFile() (*os.File, error) {
	file, err := os.CreateTemp("", "sluice-batch-*")
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

// drop closes a file that was printed. It returns an error if that may not have been all, because
// the disk is full.
func drop(file *os.File) error {
	defer closeTemp(file)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return isFull(info.Size())
}

// isFull returns an error if the disk of temporary files is full, as far as an output of size
// bytes may have been cut by that: a command need not notice. What is cut ends with a block, so
// other outputs cost no look.
func isFull(size int64) error {
	if size == 0 || size%512 != 0 {
		return nil
	}
	file, err := tempFile()
	if isScarce(err) {
		return nil // of files; the disk may have room
	}
	if err != nil {
		return err
	}
	defer closeTemp(file)
	_, err = file.Write(make([]byte, 1))
	return err
}

// readFrom keeps what r yields, up to most bytes if that is above 0. It reports whether there is
// more. What does not fit into memory goes into a file with a name, all of it, or without one.
func (s *spool) readFrom(r io.Reader, most int64, name string) (more bool, err error) {
	if most <= 0 {
		most = math.MaxInt64 - 1
	}
	r = io.LimitReader(r, most+1)
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(r, inMemory))
	s.head = head.Bytes()
	if err != nil || n < inMemory {
		return n > most, err
	}
	if s.part = name != ""; !s.part {
		s.file, err = tempFile()
	} else if s.file, err = os.OpenFile(name+".part", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err == nil {
		_, err = s.file.Write(s.head)
		s.head = nil
	}
	if err != nil {
		return false, err
	}
	rest, err := io.Copy(s.file, r)
	if err != nil {
		return false, err
	}
	if rest == 0 && !s.part {
		closeTemp(s.file)
		s.file = nil
		return n > most, nil
	}
	_, err = s.file.Seek(0, io.SeekStart)
	return n+rest > most, err
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

// empty reports whether it holds nothing.
func (s *spool) empty() bool { return len(s.head) == 0 && s.file == nil }

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
	if s.part {
		err := errors.Join(s.file.Close(), os.Rename(s.file.Name(), name))
		*s = spool{}
		return err
	}
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
		if s.part {
			os.Remove(s.file.Name())
		}
	}
	*s = spool{}
}
