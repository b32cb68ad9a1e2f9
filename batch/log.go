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

var (
	// ErrLogExists is the error of OpenLog if the mode is Fresh and the log has items.
	ErrLogExists = errors.New("batch: the log already has items: resume it or use another name")

	// ErrLogConfig is the error of OpenLog if the log was written with another LogConfig.Config.
	ErrLogConfig = errors.New("batch: the log belongs to another configuration")

	errLogInUse = errors.New("batch: the log is in use")
	errNotLog   = errors.New("batch: not a log")
	errDamaged  = errors.New("batch: the log is damaged")
	errLogGone  = errors.New("batch: the log was removed or replaced while it was in use")
)

// A Mode says which items a batch skips. If an item is in the log several times, the last entry
// applies.
type Mode int

const (
	// Fresh skips nothing. The log must be new or have no items.
	Fresh Mode = iota

	// Resume skips items that are in the log, ok or failed.
	Resume

	// ResumeFailed skips items that are ok; failed items are run again.
	ResumeFailed

	// RetryFailed runs only items that have failed. It skips all others.
	RetryFailed
)

// LogConfig configures a [Log].
type LogConfig struct {
	Mode Mode

	// Config describes how items are processed, such as a command and a version, so that a log is
	// not resumed with something else. Only 64 bits of its SHA-256 are written.
	Config string

	// AnyConfig resumes a log even if its Config is different, and replaces it.
	AnyConfig bool
}

// A Log records the outcome of each item of a batch in a file of JSON Lines, to which it only
// appends:
//
//	{"batch_log":1,"config":"9f86d081884c7d65"}
//	{"key":"a","state":"ok","attempts":1,"intended":"2026-03-01T12:00:00Z","sent":"2026-03-01T12:00:00.5Z","done":"2026-03-01T12:00:00.75Z","service_ms":250}
//	{"key":"b","state":"failed","attempts":4,…,"error":"503 Service Unavailable"}
//	{"learned":{…},"gate":"api"}
//
// Lines survive the end of the process, including kill -9. They are synced to disk after a second,
// when the batch ends, and by Close. A file that was removed or replaced ends the batch with an
// error. A key that is not UTF-8 is written as base64 in the field raw_key. The log keeps the
// estimates of a gate with [sluice.Adaptive], and restores them to the gate of that name.
//
// A Log must be made by [OpenLog], is not safe for use by multiple goroutines, and serves one batch
// at a time. It keeps 20 to 50 bytes in memory for each key that was in the file.
type Log struct {
	// OK and Failed are the numbers of items that were ok and that had failed when it was opened.
	OK, Failed int

	name  string // absolute
	file  *os.File
	known map[digest]known
	mode  Mode

	learned map[string][]byte // by gate

	size  int64 // of the file, up to the end of the last complete line
	dirty bool  // whether there is something to sync
	err   error // the first failure; nothing is written afterwards
	line  bytes.Buffer
}

// syncEvery is the longest time that a line waits for the disk.
const syncEvery = time.Second

// digest stands for a key: 128 bits of its SHA-256. The chance that two of 10⁹ keys
// collide, so that one of them is not run, is 1 in 10²¹.
type digest [16]byte

func digestOf(key string) digest {
	sum := sha256.Sum256([]byte(key))
	return digest(sum[:16])
}

// known is the state of a key in a log when it was opened.
type known struct {
	ok   bool   // the last entry
	runs uint16 // entries, less the items that were skipped for them
}

// OpenLog opens the log called name, or creates it, readable only by its owner, in every mode. It
// removes an incomplete last line.
//
// It returns [ErrLogExists], [ErrLogConfig], or another error if the log is in use, or if the file
// is not a log, not a regular file, or damaged elsewhere than at its end. Then the file is
// unchanged. The file system must support locks; the lock ends with the process.
func OpenLog(name string, cfg LogConfig) (*Log, error) {
	if cfg.Mode < Fresh || cfg.Mode > RetryFailed {
		return nil, fmt.Errorf("batch: unknown mode %d", cfg.Mode)
	}
	file, err := openLocked(name)
	if err == errLogInUse {
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	if err != nil {
		return nil, fmt.Errorf("batch: opening the log: %w", err)
	}
	l := &Log{name: name, file: file, mode: cfg.Mode}
	if full, err := filepath.Abs(name); err == nil {
		l.name = full
	}
	if err := keepName(file, name); err != nil {
		file.Close()
		return nil, fmt.Errorf("batch: syncing the directory of the log: %w", err)
	}
	if err := l.load(cfg); err != nil {
		file.Close() // nothing was written
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	return l, nil
}

// keepName syncs the directory of an empty file, so that its name survives a loss of
// power. It does so before anything is written: then a file with a header never needs it.
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
	case !info.Mode().IsRegular(): // such as /dev/zero, which has no end
		return fmt.Errorf("%w: not a regular file", errNotLog)
	}
	text, err := readLog(l.file)
	if err != nil {
		return err
	}
	l.known, l.learned, l.size = text.known, text.learned, text.whole
	for _, k := range l.known {
		if k.ok {
			l.OK++
		} else {
			l.Failed++
		}
	}
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
			return fmt.Errorf("batch: removing an incomplete line of the log: %w", err)
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

// skip reports whether nothing is left to do for the item of key, and whether more items
// with that key were skipped than have ever run. It may be called while other items are
// recorded, but not by several goroutines.
func (l *Log) skip(key string) (skip, repeated bool) {
	if len(l.known) == 0 {
		return l.mode == RetryFailed, false
	}
	d := digestOf(key)
	k, there := l.known[d]
	switch l.mode {
	case Resume:
		skip = there
	case ResumeFailed:
		skip = k.ok
	case RetryFailed:
		skip = k.ok || !there
	}
	if skip && there {
		if repeated = k.runs == 0; !repeated {
			k.runs--
			l.known[d] = k
		}
	}
	return skip, repeated
}

// record appends the outcome of an item.
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

// write writes to the end of the file. If it fails, it tries to remove the incomplete line;
// OpenLog would do so as well.
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

// sync waits until all written lines are on the disk, in the file that the name of the log
// stands for. After an error of it or of write nothing more is written.
func (l *Log) sync() error {
	if !l.dirty || l.err != nil {
		return l.err
	}
	if err := l.file.Sync(); err != nil {
		l.err = fmt.Errorf("batch: syncing the log: %w", err)
		return l.err
	}
	if !l.there() {
		l.err = fmt.Errorf("%w: %s", errLogGone, l.name)
		return l.err
	}
	l.dirty = false
	return nil
}

// there reports whether the written lines can be found under the name of the log.
func (l *Log) there() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return true // unknown
	}
	found, err := os.Stat(l.name)
	return err == nil && os.SameFile(ours, found)
}

// Close syncs and closes the file, and returns the first error of the log. Closing twice
// is harmless.
func (l *Log) Close() error {
	if errors.Is(l.err, os.ErrClosed) {
		return nil
	}
	err := l.sync()
	if failed := l.file.Close(); failed != nil && err == nil {
		err = fmt.Errorf("batch: closing the log: %w", failed)
	}
	l.err = fmt.Errorf("batch: the log: %w", os.ErrClosed)
	return err
}

// entryOf returns the line for an item.
func entryOf(key string, s state, failure error, t times) entry {
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

// stamp formats a time; a zero time is left out.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// cut shortens the text of an error, which may be a page of HTML.
func cut(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
