package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sluice-go/sluice/batch"
)

// A record is the line of -jsonl for an item. Times are in milliseconds.
type record struct {
	Seq      int64      `json:"seq"`
	Item     string     `json:"item"`
	OK       bool       `json:"ok"`
	Status   *int       `json:"status,omitempty"` // of the last attempt: the exit status or the status of the response, if any
	Attempts int        `json:"attempts"`
	Start    *time.Time `json:"start,omitempty"` // of the first attempt
	Late     float64    `json:"late_ms"`         // that it began later than by -rate
	Took     float64    `json:"took_ms"`         // all attempts together
	Waited   float64    `json:"waited_ms"`       // between them
	Error    string     `json:"error,omitempty"`
}

// recordOf returns the record of an item that is done.
func (j *job) recordOf(r batch.Result[item, output]) record {
	millis := func(d time.Duration) float64 { return float64(max(0, d).Microseconds()) / 1000 }
	rec := record{Seq: r.In.seq, Item: r.In.text, OK: r.Err == nil, Attempts: r.Attempts, Took: millis(r.Service)}
	if !r.Sent.IsZero() {
		rec.Start = &r.Sent
		rec.Late = millis(r.Sent.Sub(r.Intended))
		rec.Waited = millis(r.Done.Sub(r.Sent) - r.Service)
	}
	if status, ok := r.Out.statusOf(r.Err); ok {
		rec.Status = &status
	}
	if r.Err != nil {
		rec.Error = reason(r.Err)
	}
	return rec
}

// statusOf returns the status of an attempt that ended with err.
func (o output) statusOf(err error) (status int, ok bool) {
	if o.response != 0 {
		return o.response, true
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exitStatus(exit), true
	}
	return 0, o.ended && err == nil
}

// openRecords opens the file of -jsonl, and changes nothing in it.
func (o options) openRecords() (*os.File, error) {
	if o.jsonl == "" || o.jsonl == "-" {
		return nil, nil
	}
	return os.OpenFile(o.jsonl, os.O_RDWR|os.O_CREATE, 0o666)
}

// beginRecords empties the file of -jsonl, or goes to where a job that resumes another one goes
// on: behind the last complete line. The item of one that is not complete is run again.
func (j *job) beginRecords() error {
	if j.records == nil {
		return nil
	}
	info, err := j.records.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err // it may be a pipe
	}
	end := int64(0)
	if j.o.mode != batch.Fresh {
		if end, err = endOfLines(j.records, info.Size()); err != nil {
			return err
		}
	}
	if err := j.records.Truncate(end); err != nil {
		return err
	}
	_, err = j.records.Seek(end, io.SeekStart)
	return err
}

// endOfLines returns where the last complete line of a file of a size ends.
func endOfLines(file io.ReaderAt, size int64) (int64, error) {
	b := make([]byte, 64<<10)
	for end := size; end > 0; {
		begin := max(0, end-int64(len(b)))
		piece := b[:end-begin]
		if _, err := file.ReadAt(piece, begin); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
		end = begin
	}
	return 0, nil
}

// record writes the line of an item for -jsonl. It is there when it returns.
func (j *job) record(r batch.Result[item, output]) error {
	if j.o.jsonl == "" {
		return nil
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(j.recordOf(r))
	switch {
	case err != nil:
	case j.records == nil:
		return j.show.Print(j.show.Stdout, line.Bytes())
	default:
		_, err = j.records.Write(line.Bytes())
	}
	if err != nil {
		return fmt.Errorf("-jsonl: %w", err)
	}
	return nil
}
