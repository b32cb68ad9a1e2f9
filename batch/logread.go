package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const logVersion = 1

// logBegin is what every log begins with.
const logBegin = `{"batch_log":`

// A header says what the lines after it are about.
type header struct {
	Version int    `json:"batch_log"`
	Config  string `json:"config"`
}

// An entry says what became of an item.
type entry struct {
	Key      *string `json:"key"`
	Raw      []byte  `json:"raw_key,omitempty"`
	State    state   `json:"state"`
	Attempts int     `json:"attempts"`
	Intended string  `json:"intended,omitempty"`
	Sent     string  `json:"sent,omitempty"`
	Done     string  `json:"done,omitempty"`
	Service  float64 `json:"service_ms"`
	Error    string  `json:"error,omitempty"`
}

// A logText is what was read from the file of a log.
type logText struct {
	known  map[digest]bool // whether it is ok
	config string          // the last fingerprint, "" if there is none
	whole  int64           // how many bytes are worth keeping
	torn   bool            // whether there are more
	open   bool            // whether the last of them lacks its newline
}

// readLog reads a log. A last line without a newline counts if it is whole: an
// editor may have taken the newline away. Otherwise it was torn when it was
// written, and its item will be run again. A line in the middle cannot have
// been torn, for OpenLog removes those: that is a mistake of somebody else, and
// to guess what it meant could leave an item out.
func readLog(r io.Reader) (logText, error) {
	t := logText{known: make(map[digest]bool)}
	lines := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return t, fmt.Errorf("batch: reading the log: %w", err)
		}
		last := err == io.EOF
		if len(line) == 0 {
			return t, nil
		}
		wrong := t.add(line, n == 1)
		switch {
		case wrong == nil:
			t.whole += int64(len(line))
			t.open = last
		case last && torn(line, n == 1):
			t.torn = true
		default:
			return t, fmt.Errorf("%w: line %d: %w", ErrNotLog, n, wrong)
		}
		if last {
			return t, nil
		}
	}
}

// torn reports whether a line without a newline looks like the begin of one.
// Somebody else's file must not: a torn line is removed.
func torn(line []byte, first bool) bool {
	begin := []byte(logBegin)
	return !json.Valid(line) && (!first || bytes.HasPrefix(begin, line) || bytes.HasPrefix(line, begin))
}

// add adds one line.
func (t *logText) add(line []byte, first bool) error {
	if bytes.HasPrefix(line, []byte(logBegin)) {
		var h header
		if err := json.Unmarshal(line, &h); err != nil {
			return err
		}
		switch {
		case h.Version != logVersion:
			return fmt.Errorf("version %d, not %d", h.Version, logVersion)
		case h.Config == "":
			return errors.New("no config")
		}
		t.config = h.Config
		return nil
	}
	if first {
		return errors.New("it does not begin as one does")
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	switch {
	case e.Key == nil:
		return errors.New("no key")
	case e.State != done && e.State != failed:
		return fmt.Errorf("no state %q", e.State)
	}
	key := *e.Key
	if e.Raw != nil {
		key = string(e.Raw)
	}
	t.known[digestOf(key)] = e.State == done
	return nil
}
