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

// logBegin is the beginning of every log.
const logBegin = `{"batch_log":`

// A header applies to the lines after it.
type header struct {
	Version int    `json:"batch_log"`
	Config  string `json:"config"`
}

// An entry is the outcome of an item.
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

// A logText is the content of a log.
type logText struct {
	known   map[digest]known
	learned map[string][]byte // by gate
	config  string            // the last fingerprint, "" if there is none
	whole   int64             // length of the complete lines
	torn    bool              // whether there is more
	open    bool              // whether the last of them lacks its newline
}

// readLog reads a log. A last line without a newline counts if it is complete, because an
// editor may have removed the newline. Otherwise it is torn, and its item is run again. A
// broken line in the middle is an error: OpenLog removes torn lines, and guessing could
// skip an item.
func readLog(r io.Reader) (logText, error) {
	t := logText{known: make(map[digest]known), learned: make(map[string][]byte)}
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
		case n == 1:
			return t, fmt.Errorf("%w: %w", errNotLog, wrong)
		default:
			return t, fmt.Errorf("%w: line %d: %w; mend the line, or remove it, and its item is run again", errDamaged, n, wrong)
		}
		if last {
			return t, nil
		}
	}
}

// torn reports whether a line without a newline looks like the beginning of one. It must
// not be true of a file that is not a log, because torn lines are removed.
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
		return errors.New("the file does not begin as a log does")
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return nil // left by an editor
	}
	if bytes.HasPrefix(line, []byte(learnedBegin)) {
		var l lesson
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		t.learned[l.Gate] = l.Learned
		return nil
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
	d := digestOf(key)
	k := t.known[d]
	k.ok, k.runs = e.State == done, max(k.runs, k.runs+1) // it saturates
	t.known[d] = k
	return nil
}
