package batch

import (
	"encoding/json"
	"os"
	"time"
)

// A summary is what -summary writes. Times are in milliseconds; 95 of 100 were less.
type summary struct {
	Status     int     `json:"status"` // exit status
	Why        string  `json:"ended_early,omitempty"`
	OK         int64   `json:"ok"`
	Failed     int64   `json:"failed"`
	Unfinished int64   `json:"unfinished"`
	Skipped    int64   `json:"skipped"`
	Repeated   int64   `json:"repeated,omitempty"`
	Retries    int64   `json:"retries"`
	Seconds    float64 `json:"seconds"`
	Late       float64 `json:"late_ms_p95"`
	Attempt    float64 `json:"attempt_ms_p95"`
}

// tryTheSummary returns an error if the file of -summary cannot be written: at the end of the job
// that would be too late.
func (o options) tryTheSummary() error {
	if o.summary == "" {
		return nil
	}
	before, missing := os.Stat(o.summary)
	if missing == nil && !before.IsDir() && !before.Mode().IsRegular() {
		return nil // a pipe may wait for its reader
	}
	file, err := os.OpenFile(o.summary, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	file.Close()
	if missing != nil {
		return os.Remove(o.summary)
	}
	return nil
}

// writeSummary replaces the file of -summary, if there is one.
func (j *job) writeSummary(status int, why error, took time.Duration) error {
	if j.o.summary == "" {
		return nil
	}
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	s := j.stats()
	sum := summary{
		Status: status, OK: s.OK, Failed: s.Failed, Unfinished: j.unfinished(s), Skipped: s.Skipped, Repeated: s.Repeated, Retries: s.Retries,
		Seconds: took.Seconds(), Late: millis(s.Queued.Quantile(0.95)), Attempt: millis(s.Service.Quantile(0.95)),
	}
	if why != nil {
		sum.Why = why.Error()
	}
	text, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	return os.WriteFile(j.o.summary, append(text, '\n'), 0o666)
}
