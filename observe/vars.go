package observe

import (
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
)

// Vars returns a variable for package expvar that shows the Stats of gates:
//
//	expvar.Publish("gates", observe.Vars(observe.Gates(gate)))
//
// It is a JSON array with an object for each gate; several gates may have the same name. Durations
// are in seconds, and times in RFC 3339. Values that do not apply are left out. "wait" has
// quantiles of the time that admitted calls waited, see [sluice.WaitHistogram.Quantile].
func Vars(gates iter.Seq[sluice.Stats]) fmt.Stringer { return variable(gates) }

type variable iter.Seq[sluice.Stats]

// String implements expvar.Var.
func (v variable) String() string {
	all := []vars{} // not null if there is none
	for s := range v {
		all = append(all, of(s))
	}
	text, err := json.Marshal(all)
	if err != nil { // impossible: numbers, strings and times of this century
		panic(err)
	}
	return string(text)
}

// vars is a sluice.Stats as it is written.
type vars struct {
	Name        string   `json:"name"`
	InFlight    int64    `json:"in_flight"`
	Pacing      int64    `json:"pacing"`
	Waiting     int64    `json:"waiting"`
	LimitedBy   string   `json:"limited_by"`
	Why         string   `json:"why,omitzero"`
	Parent      string   `json:"parent,omitzero"`
	Concurrency int64    `json:"concurrency,omitzero"`
	Rate        string   `json:"rate"`
	Spacing     seconds  `json:"spacing,omitzero"`
	Learned     *learned `json:"learned,omitempty"`
	RetryTokens int      `json:"retry_tokens"`

	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedWhy   string    `json:"paused_why,omitzero"`

	LastError   string    `json:"last_error,omitzero"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`

	Granted  uint64  `json:"admitted"`
	Refused  refused `json:"rejected"`
	Retried  uint64  `json:"retried"`
	Stranded uint64  `json:"unreturned"`
	Wait     waits   `json:"wait"`
}

// learned is a sluice.Learned as it is written. Rates are per second.
type learned struct {
	Unit        string    `json:"unit,omitempty"`
	Phase       string    `json:"phase"`
	Pace        float64   `json:"pace,omitzero"`
	Rate        float64   `json:"rate,omitzero"`
	Proven      float64   `json:"accepted_rate,omitzero"`
	Refuted     float64   `json:"throttled_rate,omitzero"`
	Share       float64   `json:"share,omitzero"`
	Peers       int64     `json:"peers,omitzero"`
	Concurrency int64     `json:"concurrency,omitzero"`
	Window      string    `json:"window,omitzero"`
	Blocked     bool      `json:"blocked"`
	Pause       seconds   `json:"pause,omitzero"`
	Refusals    uint64    `json:"throttled"`
	Ignored     uint64    `json:"ignored"`
	Changes     uint64    `json:"changes"`
	Changed     time.Time `json:"changed,omitzero"`
	Why         string    `json:"why"`
	Units       []learned `json:"units,omitempty"`
}

type refused struct {
	Busy      uint64 `json:"busy"`
	Deadline  uint64 `json:"deadline"`
	Canceled  uint64 `json:"canceled"`
	TooLarge  uint64 `json:"too_large"`
	QueueFull uint64 `json:"queue_full"`
	Closed    uint64 `json:"closed"`
	Other     uint64 `json:"other"`
}

type waits struct {
	P50 seconds `json:"p50"`
	P90 seconds `json:"p90"`
	P99 seconds `json:"p99"`
}

type seconds float64

func in(d time.Duration) seconds { return seconds(d.Seconds()) }

func ofLearned(l *sluice.Learned) *learned {
	if l == nil {
		return nil
	}
	v := &learned{
		Unit: string(l.Unit), Phase: l.Phase, Pace: l.Pace, Rate: l.Rate, Proven: l.AcceptedRate, Refuted: l.ThrottledRate,
		Share: l.Share, Peers: l.Peers, Concurrency: l.Concurrency, Blocked: l.Blocked, Pause: in(l.ThrottleCost),
		Refusals: l.Throttled, Ignored: l.Ignored, Changes: l.Updates, Changed: l.UpdatedAt, Why: l.Why,
	}
	if l.Window != (sluice.Rate{}) {
		v.Window = l.Window.String()
	}
	for i := range l.Units {
		v.Units = append(v.Units, *ofLearned(&l.Units[i]))
	}
	return v
}

func of(s sluice.Stats) vars {
	return vars{
		Name:        s.Name,
		InFlight:    s.InFlight,
		Pacing:      s.Pacing,
		Waiting:     s.Waiting,
		LimitedBy:   string(s.LimitedBy),
		Why:         s.Why(),
		Parent:      s.Parent,
		LastError:   s.LastError,
		LastErrorAt: s.LastErrorAt,
		Concurrency: s.Concurrency,
		Rate:        s.Rate.String(),
		Spacing:     in(s.Spacing),
		RetryTokens: s.RetryTokens,
		Learned:     ofLearned(s.Learned),
		PausedUntil: s.PausedUntil,
		PausedWhy:   s.PausedWhy,
		Granted:     s.Admitted,
		Refused:     refused(s.Rejected),
		Retried:     s.Retried,
		Stranded:    s.Unreturned,
		Wait:        waits{in(s.Waits.Quantile(0.5)), in(s.Waits.Quantile(0.9)), in(s.Waits.Quantile(0.99))},
	}
}
