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
	ID       string     `json:"id,omitempty"`    // with -queue
	Queue    string     `json:"queue,omitempty"` // when that was made
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
	if r.In.taken != nil {
		rec.ID, rec.Queue = r.In.taken.ID, r.In.taken.Queue
	}
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
// on: behind the last complete line, unless the log does not have its item. Then that is run
// again, as is the item of a line that is not complete.
func (j *job) beginRecords() error {
	if j.records == nil {
		return nil
	}
	info, err := j.records.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err // it may be a pipe
	}
	end := int64(0)
	if j.o.mode != batch.Fresh || j.in.fleet != nil {
		if end, err = endOfLines(j.records, info.Size()); err != nil {
			return err
		}
		if end, err = j.endOfNoted(end); err != nil {
			return err
		}
	}
	if j.in.fleet != nil {
		j.in.fleet.written.read(io.NewSectionReader(j.records, 0, end), j.in.fleet.worker.Made, j.in.fleet.worker.Confirmed)
	}
	if err := j.records.Truncate(end); err != nil {
		return err
	}
	_, err = j.records.Seek(end, io.SeekStart)
	return err
}

// endOfNoted returns where the last line of -jsonl ends whose item is in the log, of the lines up
// to end. An item is written to -jsonl first, so if the program is killed between the two, its
// line has none in the log. There is at most one, and it is the last. If the line before it is
// not that of the last item in the log either, they may be of different jobs, and it stays.
func (j *job) endOfNoted(end int64) (int64, error) {
	if j.log.Log == nil || end == 0 {
		return end, nil
	}
	log, err := os.Open(j.o.log)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	noted, err := lastNoted(log)
	if err != nil {
		return 0, err
	}
	begin, last, err := lineBefore(j.records, end)
	if err != nil || last.Start == nil || last.Start.Equal(noted) {
		return end, err
	}
	_, previous, err := lineBefore(j.records, begin)
	if err != nil || previous.Start == nil || !previous.Start.Equal(noted) {
		return end, err
	}
	return begin, nil
}

// lastNoted returns when the last item in a log was sent; zero if there is none.
func lastNoted(log *os.File) (time.Time, error) {
	info, err := log.Stat()
	if err != nil {
		return time.Time{}, err
	}
	for end := info.Size(); end > 0; {
		begin, line, err := lineBefore(log, end)
		if err != nil || line.Key != nil {
			return line.Sent, err
		}
		end = begin
	}
	return time.Time{}, nil
}

// A dated is a line of -jsonl, or of a log.
type dated struct {
	Start *time.Time `json:"start"` // of -jsonl

	Key  *string   `json:"key"` // of a log, of which other lines have none
	Sent time.Time `json:"sent"`
}

// lineBefore returns the line that ends at end, and where it begins; the zero line if it is not JSON,
// or end is the beginning of the file.
func lineBefore(file io.ReaderAt, end int64) (begin int64, line dated, err error) {
	if end == 0 {
		return 0, dated{}, nil
	}
	if begin, err = endOfLines(file, end-1); err != nil {
		return 0, dated{}, err
	}
	text := make([]byte, end-begin)
	if _, err := file.ReadAt(text, begin); err != nil {
		return 0, dated{}, err
	}
	if json.Unmarshal(text, &line) != nil {
		return begin, dated{}, nil
	}
	return begin, line, nil
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
