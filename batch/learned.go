package batch

import (
	"encoding/json"
	"fmt"
	"time"
)

// # What the gate has learned
//
// A gate that finds the limit of its server automatically (sluice.Adaptive) has learned more by
// the end of a batch than it knew at its beginning. The log keeps that, by the name of the
// gate, so that a batch that is resumed does not search again:
//
//	{"learned":{"version":1,…},"gate":"api"}
//
// The last line of a gate counts. It is written when the batch ends, and every ten seconds
// if something has changed.

const learnedBegin = `{"learned":`

const noteEvery = 10 * time.Second

// A lesson is the learned state of a gate.
type lesson struct {
	Learned json.RawMessage `json:"learned"`
	Gate    string          `json:"gate"`
}

// lessons is the state of its gate that the batch has written.
type lessons struct {
	changes uint64
	at      time.Time
}

// recall restores the estimates that the gate of a batch had when the log was written, unless it
// knows something already.
func (r *run[In, Out]) recall() {
	if r.cfg.Log == nil {
		return
	}
	s := r.gate.Stats()
	data := r.cfg.Log.learned[s.Name]
	if data == nil || s.Learned != nil && s.Learned.Updates > 0 {
		return
	}
	if err := r.gate.Restore(data); err != nil {
		r.stop(fmt.Errorf("batch: the log: %w", err), false)
	}
}

// note writes the changes of the learned limit since it was last written.
func (r *run[In, Out]) note(end bool) {
	s := r.gate.Stats()
	if s.Learned == nil || s.Learned.Updates == r.lessons.changes || !end && time.Since(r.lessons.at) < noteEvery {
		return
	}
	r.lessons = lessons{s.Learned.Updates, time.Now()}
	if err := r.cfg.Log.append(lesson{r.gate.Snapshot(), s.Name}); err != nil {
		r.stop(err, false)
	}
}
