package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What OpenLog may refuse.
var (
	// ErrLogInUse: another process, or another Log of this one, has it open.
	ErrLogInUse = errors.New("batch: the log is in use")

	// ErrLogExists: the mode is Fresh, and there are items in the log.
	ErrLogExists = errors.New("batch: the log has items already: resume it, or take another name")

	// ErrLogConfig: the log was written with another configuration.
	ErrLogConfig = errors.New("batch: the log is that of another configuration")

	// ErrNotLog: the file is not a log, is no regular file, or is damaged
	// elsewhere than at its end.
	ErrNotLog = errors.New("batch: not a log")
)

// A Mode says which items a batch skips. Of an item that is in the log several
// times the last time counts.
type Mode int

const (
	// Fresh skips nothing. The log must be new, or without an item.
	Fresh Mode = iota

	// Resume skips what is in the log, ok or failed.
	Resume

	// ResumeFailed skips what is ok, so that failed items are run again.
	ResumeFailed

	// RetryFailed skips all but what has failed, also what is not in the log.
	RetryFailed
)

// LogConfig is what [OpenLog] may be told.
type LogConfig struct {
	Mode Mode

	// Config says what is done with the items, so that a log is not resumed
	// with something else: the command, the address, the version of the
	// program. Of it only a fingerprint is written, 64 bits of its SHA-256, for
	// it may contain passwords.
	Config string

	// AnyConfig resumes a log all the same whose Config was another, which
	// from then on is the one of the log.
	AnyConfig bool
}

// A Log notes what became of each item of a batch, in a file of JSON Lines to
// which lines are only ever appended:
//
//	{"batch_log":1,"config":"9f86d081884c7d65"}
//	{"key":"a","state":"ok","attempts":1,"intended":"2026-03-01T12:00:00Z","sent":"2026-03-01T12:00:00.5Z","done":"2026-03-01T12:00:00.75Z","service_ms":250}
//	{"key":"b","state":"failed","attempts":4,…,"error":"503 Service Unavailable"}
//
// A line is written at once, in one piece, when the body of the loop is done
// with its item: what is in the log survives the end of the process, kill -9
// included, and what is not is run again. It is synced to the disk a second
// after it was written, when the batch ends, and by Close: if the machine
// loses power, the items of the last second or so may be run again, or of as
// long as the body of the loop took at that moment. A key that is not UTF-8 is
// written as base64, in a field raw_key.
//
// In memory is a digest of each key that was in the file when it was opened,
// 20 to 40 bytes; what is added takes none.
//
// A Log must be made by [OpenLog]. It is not safe for use by multiple
// goroutines, and serves one batch at a time.
type Log struct {
	file  *os.File
	known map[digest]bool // whether it is ok
	mode  Mode

	size  int64 // of the file, up to the end of the last whole line
	dirty bool  // whether there is something to sync
	err   error // the first failure; nothing is written after it
	line  bytes.Buffer
}

// syncEvery is how long a line may wait for the disk.
const syncEvery = time.Second

// digest stands for a key. Of 10⁹ keys two have the same 128 bits of a SHA-256
// with a chance of 1 in 10²¹; then one of them would not be run.
type digest [16]byte

func digestOf(key string) digest {
	sum := sha256.Sum256([]byte(key))
	return digest(sum[:16])
}

// OpenLog opens the log of a name, or makes it if there is none, in any mode.
// A last line that was not written to its end, because the machine lost power
// or the disk was full, is removed. OpenLog returns [ErrLogInUse], [ErrLogExists],
// [ErrLogConfig] or [ErrNotLog], which leave the file as it was, and errors of
// the file system, which must be able to lock files; the lock ends with the
// process. A new file is for its owner only: errors of calls may tell secrets. Its
// directory is synced, where the system can do that, so that the name of the file
// survives a loss of power, too.
func OpenLog(name string, cfg LogConfig) (*Log, error) {
	if cfg.Mode < Fresh || cfg.Mode > RetryFailed {
		return nil, fmt.Errorf("batch: no mode %d", cfg.Mode)
	}
	file, err := openLocked(name)
	if err == ErrLogInUse {
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	if err != nil {
		return nil, fmt.Errorf("batch: opening the log: %w", err)
	}
	l := &Log{file: file, mode: cfg.Mode}
	if err := keepName(file, name); err != nil {
		file.Close()
		return nil, fmt.Errorf("batch: syncing the directory of the log: %w", err)
	}
	if err := l.load(cfg); err != nil {
		file.Close() // nothing was written that could be lost
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	return l, nil
}

// keepName syncs the directory of a file that has nothing in it yet. It does so
// before anything is written, so that a file with a header needs no sync of its
// directory, whenever the process that made it ended.
func keepName(file *os.File, name string) error {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		return nil // load returns the error
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	return syncDir(filepath.Dir(name))
}

// load reads the file and repairs its end.
func (l *Log) load(cfg LogConfig) error {
	switch info, err := l.file.Stat(); {
	case err != nil:
		return fmt.Errorf("batch: the log: %w", err)
	case !info.Mode().IsRegular(): // it may have no end
		return fmt.Errorf("%w: it is no file", ErrNotLog)
	}
	text, err := readLog(l.file)
	if err != nil {
		return err
	}
	l.known, l.size = text.known, text.whole
	fingerprint := fmt.Sprintf("%x", sha256.Sum256([]byte(cfg.Config)))[:16]
	another := text.config != "" && text.config != fingerprint
	switch {
	case cfg.Mode == Fresh && len(l.known) > 0:
		return ErrLogExists
	case another && len(l.known) > 0 && !cfg.AnyConfig:
		return fmt.Errorf("%w (fingerprint %s, not %s)", ErrLogConfig, text.config, fingerprint)
	}
	if text.torn {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("batch: removing a torn line of the log: %w", err)
		}
	}
	if _, err := l.file.Seek(l.size, io.SeekStart); err != nil {
		return fmt.Errorf("batch: the log: %w", err)
	}
	if text.open {
		if err := l.write([]byte("\n")); err != nil {
			return err
		}
	}
	if text.config != fingerprint {
		return l.append(header{Version: logVersion, Config: fingerprint})
	}
	return nil
}

// Known returns how many items were in the log when it was opened: how many
// of them are ok, and how many have failed.
func (l *Log) Known() (ok, fail int) {
	for _, isOK := range l.known {
		if isOK {
			ok++
		} else {
			fail++
		}
	}
	return ok, fail
}

// skip reports whether the item of a key has nothing left to do. It may be
// called while others are recorded.
func (l *Log) skip(key string) bool {
	if len(l.known) == 0 {
		return l.mode == RetryFailed
	}
	isOK, there := l.known[digestOf(key)]
	switch l.mode {
	case Resume:
		return there
	case ResumeFailed:
		return isOK
	case RetryFailed:
		return isOK || !there
	}
	return false
}

// record appends what became of an item.
func (l *Log) record(e entry) error {
	return l.append(e)
}

// append writes one line.
func (l *Log) append(v any) error {
	if l.err != nil {
		return l.err
	}
	l.line.Reset()
	encoder := json.NewEncoder(&l.line)
	encoder.SetEscapeHTML(false) // a & stays a &
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("batch: encoding for the log: %w", err)
	}
	return l.write(l.line.Bytes())
}

// write writes to the end of the file. What was written only in part is taken
// back, as far as that goes; OpenLog would do it, too.
func (l *Log) write(b []byte) error {
	if _, err := l.file.Write(b); err != nil {
		l.err = fmt.Errorf("batch: writing the log: %w", err)
		if err := l.file.Truncate(l.size); err != nil {
			l.err = errors.Join(l.err, err)
		}
		return l.err
	}
	l.size += int64(len(b))
	l.dirty = true
	return nil
}

// Sync waits until what was written is on the disk. An error stays, as that of
// a failed write does: nothing is written after it.
func (l *Log) Sync() error {
	if !l.dirty || l.err != nil {
		return l.err
	}
	if err := l.file.Sync(); err != nil {
		l.err = fmt.Errorf("batch: syncing the log: %w", err)
		return l.err
	}
	l.dirty = false
	return nil
}

// Close syncs and closes the file, and returns the first error that the log
// had. Closing it again does nothing.
func (l *Log) Close() error {
	if errors.Is(l.err, os.ErrClosed) {
		return nil
	}
	err := l.Sync()
	if failed := l.file.Close(); failed != nil && err == nil {
		err = fmt.Errorf("batch: closing the log: %w", failed)
	}
	l.err = fmt.Errorf("batch: the log: %w", os.ErrClosed)
	return err
}

// entryOf is the line for an item.
func entryOf(key string, s state, failure error, t Times) entry {
	e := entry{
		Key: &key, State: s, Attempts: t.Attempts,
		Intended: stamp(t.Intended), Sent: stamp(t.Sent), Done: stamp(t.Done),
		Service: float64(t.Service) / float64(time.Millisecond),
	}
	if clean := strings.ToValidUTF8(key, "\uFFFD"); clean != key {
		e.Raw, e.Key = []byte(key), &clean
	}
	if failure != nil {
		e.Error = cut(failure.Error())
	}
	return e
}

// stamp is how a time is written; one that is not known is left out.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// cut bounds the length of an error, which may be a page of HTML.
func cut(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
