package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSinkLines(t *testing.T) {
	tests := []struct{ body, want string }{
		{`{"a": 1,` + "\n" + `"b": "<&>"}`, `{"id":4,"body":{"a":1,"b":"<&>"}}`},
		{`12345678901234567890.10`, `{"id":4,"body":12345678901234567890.10}`},
		{` null `, `{"id":4,"body":null}`},
		{`plain "text"`, `{"id":4,"body":"plain \"text\""}`},
		{"two\nlines", `{"id":4,"body":"two\nlines"}`},
		{`{"cut":`, `{"id":4,"body":"{\"cut\":"}`},
		{``, `{"id":4,"body":""}`},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		s := &sink{w: &b}
		if err := s.write(4, []byte(tt.body)); err != nil {
			t.Errorf("%q: %v", tt.body, err)
		}
		if saved, err := s.close(); saved != 1 || err != nil {
			t.Errorf("%q: close: %d, %v", tt.body, saved, err)
		}
		if got := b.String(); got != tt.want+"\n" {
			t.Errorf("%q: line %q, want %q", tt.body, got, tt.want)
		}
	}
}

var errDisk = errors.New("disk full")

// disk takes some writes and then fails; closing it may fail as well.
type disk struct {
	writes   int
	closeErr error
}

func (d *disk) Write(p []byte) (int, error) {
	if d.writes--; d.writes < 0 {
		return len(p) / 2, errDisk
	}
	return len(p), nil
}

func (d *disk) Close() error { return d.closeErr }

// Items that were in the buffer when a write failed are not saved, nor is any
// after them; those of an earlier write are.
func TestSinkCountsWhatAFailedWriteLoses(t *testing.T) {
	d := &disk{writes: 1}
	s := &sink{w: d, closer: d}
	half := []byte(strings.Repeat("x", flushAt/2))
	for i, want := range []error{nil, nil, nil, errDisk, errDisk} {
		if err := s.write(i, half); !errors.Is(err, want) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	if saved, err := s.close(); saved != 2 || !errors.Is(err, errDisk) {
		t.Errorf("close: %d saved, %v; want 2 and the error", saved, err)
	}
}

func TestSinkFailsAtTheLastFlush(t *testing.T) {
	d := &disk{}
	s := &sink{w: d, closer: d}
	if err := s.write(0, []byte("1")); err != nil {
		t.Errorf("write: %v", err)
	}
	if saved, err := s.close(); saved != 0 || !errors.Is(err, errDisk) {
		t.Errorf("close: %d saved, %v; want 0 and the error", saved, err)
	}
}

func TestSinkFailsAtClose(t *testing.T) {
	d := &disk{writes: 9, closeErr: errDisk}
	s := &sink{w: d, closer: d}
	if err := s.write(0, []byte("1")); err != nil {
		t.Errorf("write: %v", err)
	}
	if saved, err := s.close(); saved != 0 || !errors.Is(err, errDisk) {
		t.Errorf("close: %d saved, %v; want 0 and the error", saved, err)
	}
}

func TestOpenSink(t *testing.T) {
	if s, err := openSink("", nil); s != nil || err != nil {
		t.Errorf("no name: %v, %v; want nothing", s, err)
	}
	var b bytes.Buffer
	if s, err := openSink("-", &b); err != nil || s.w != &b || s.closer != nil {
		t.Errorf("-: %+v, %v; want stdout, left open", s, err)
	}
	if _, err := openSink(filepath.Join(t.TempDir(), "no", "such"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
}
