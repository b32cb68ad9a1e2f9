package observe

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
)

// Vars are the Stats of gates as a variable for package expvar:
//
//	expvar.Publish("gates", observe.Vars(observe.Gates(gate)))
//
// It is an array, for two gates may have one name, with an object for each gate.
// Durations are in seconds, and times in RFC 3339. What is zero because it does
// not apply, such as the end of a pause, is left out. wait is how long calls that
// were let through had waited: the upper bounds of a bucket, see
// [sluice.WaitTime.Quantile].
type Vars iter.Seq[sluice.Stats]

// String returns the JSON. It implements expvar.Var.
func (v Vars) String() string {
	all := []vars{} // not null if there is none
	for s := range v {
		all = append(all, of(s))
	}
	text, err := json.Marshal(all)
	if err != nil { // numbers, texts and times of this century
		panic(err)
	}
	return string(text)
}

// vars is a sluice.Stats as it is written.
type vars struct {
	Name        string  `json:"name"`
	InFlight    int64   `json:"in_flight"`
	Pacing      int64   `json:"pacing"`
	Waiting     int64   `json:"waiting"`
	LimitedBy   string  `json:"limited_by"`
	Concurrency int64   `json:"concurrency,omitzero"`
	Rate        string  `json:"rate"`
	Spacing     seconds `json:"spacing,omitzero"`
	RetryTokens int     `json:"retry_tokens"`

	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedWhy   string    `json:"paused_why,omitzero"`

	Granted  uint64  `json:"granted"`
	Refused  refused `json:"refused"`
	Retried  uint64  `json:"retried"`
	Stranded uint64  `json:"stranded"`
	Wait     waits   `json:"wait"`
}

type refused struct {
	Busy      uint64 `json:"busy"`
	Deadline  uint64 `json:"deadline"`
	Cancelled uint64 `json:"cancelled"`
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

func of(s sluice.Stats) vars {
	return vars{
		Name:        s.Name,
		InFlight:    s.InFlight,
		Pacing:      s.Pacing,
		Waiting:     s.Waiting,
		LimitedBy:   string(s.LimitedBy),
		Concurrency: s.Concurrency,
		Rate:        s.Rate.String(),
		Spacing:     in(s.Spacing),
		RetryTokens: s.RetryTokens,
		PausedUntil: s.PausedUntil,
		PausedWhy:   s.PausedWhy,
		Granted:     s.Granted,
		Refused:     refused(s.Refused),
		Retried:     s.Retried,
		Stranded:    s.Stranded,
		Wait:        waits{in(s.Waits.Quantile(0.5)), in(s.Waits.Quantile(0.9)), in(s.Waits.Quantile(0.99))},
	}
}
