package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/examples/internal/apiserver"
)

// figures is what -json prints of one run. What is measured at the server is
// measured by the built-in server where that is the one called, and otherwise
// where the calls depart.
type figures struct {
	Calls         int64   `json:"calls"`          // items called for
	Attempts      int64   `json:"attempts"`       // requests sent
	Throttled     int64   `json:"throttled"`      // attempts answered 429
	Lost          int64   `json:"lost"`           // items not fetched or not written
	RateAllowed   float64 `json:"rate_allowed"`   // per second
	RateDelivered float64 `json:"rate_delivered"` // per second, (accepted − 1) ÷ (last − first arrival)
	SpacingP50    int64   `json:"spacing_p50_us"` // between neighbouring accepted arrivals
	SpacingP99    int64   `json:"spacing_p99_us"` //
	MaxInFlight   int64   `json:"max_in_flight"`  // at the server, one too many included
	Wall          float64 `json:"wall_s"`         // seconds
	Ideal         float64 `json:"ideal_s"`        // items ÷ rate
}

// result is a finished run: the figures and what only the table says.
type result struct {
	figures
	fetched     int64 // items safe in the file, or merely fetched if there is none
	notStarted  int64
	wall        time.Duration
	spacing50   time.Duration
	spacing99   time.Duration
	tooFast     int64 // of the 429s, as the built-in server gave its reasons
	tooMany     int64
	explained   bool // whether it did
	complaints  []error
	unexplained int64 // losses beyond the complaints

	// With -unknown:
	told    *result // the same items through a gate that has the rate; nil if there was no such run
	learned *sluice.Learned
}

// newResult adds up a run. saved is the number of items it kept; server is nil if
// the calls went elsewhere.
func newResult(o options, j *job, saved int64, wall time.Duration, server *apiserver.Server) result {
	d := j.client.meter.total()
	r := result{
		figures: figures{
			Calls:       d.calls,
			Attempts:    d.attempts,
			Throttled:   d.throttled,
			Lost:        int64(o.share.items(o.n)) - saved,
			RateAllowed: o.perSecond(),
			MaxInFlight: d.maxInFlight,
			Wall:        wall.Seconds(),
			Ideal:       float64(o.share.items(o.n)) / o.perSecond(),
		},
		fetched:     saved,
		wall:        wall,
		notStarted:  int64(o.share.items(o.n)) - d.calls,
		complaints:  j.losses,
		unexplained: j.unnamed,
	}
	spacing := d.spacing
	if server != nil {
		// The receiving end is the judge: what it saw replaces what was
		// thought to have been sent.
		seen := server.Report()
		spacing = seen.Arrivals
		r.tooFast, r.tooMany, r.explained = seen.TooFast, seen.TooMany, true
		r.Throttled = seen.TooFast + seen.TooMany
		r.MaxInFlight = seen.MaxInFlight
	}
	r.RateDelivered = spacing.PerSecond
	r.spacing50, r.spacing99 = spacing.P50, spacing.P99
	r.SpacingP50, r.SpacingP99 = spacing.P50.Microseconds(), spacing.P99.Microseconds()
	return r
}

// learnedFigures is what -json prints of the estimate of the gate, with -unknown. Rates are
// per second; 0 means unknown.
type learnedFigures struct {
	Phase    string  `json:"phase"`
	Pace     float64 `json:"pace"`
	Rate     float64 `json:"rate"`
	Proven   float64 `json:"proven"`
	Refuted  float64 `json:"refuted"`
	Refusals uint64  `json:"refusals"`
	Changes  uint64  `json:"changes"`
	Why      string  `json:"why"`
}

func learnedOf(l *sluice.Learned) *learnedFigures {
	if l == nil {
		return nil
	}
	return &learnedFigures{l.Phase, l.Pace, l.Rate, l.AcceptedRate, l.ThrottledRate, l.Throttled, l.Updates, l.Why}
}

// refused is the share of the attempts that were answered 429, in per cent.
func (r result) refused() float64 {
	if r.Attempts == 0 {
		return 0
	}
	return 100 * float64(r.Throttled) / float64(r.Attempts)
}

// wasted is the attempts that brought no item.
func (r result) wasted() int64 { return r.Attempts - r.fetched }

// ofAllowed is the delivered rate in per cent of the allowed one.
func (r result) ofAllowed() float64 { return 100 * r.RateDelivered / r.RateAllowed }

// writeJSON writes the one object that -json promises; naive is nil when
// there was no such run.
func writeJSON(w io.Writer, gate result, naive *result) error {
	type runs struct {
		Gate    figures         `json:"gate"`
		Naive   *figures        `json:"naive"`
		Told    *figures        `json:"told,omitempty"`
		Learned *learnedFigures `json:"learned,omitempty"`
	}
	out := runs{Gate: gate.figures, Learned: learnedOf(gate.learned)}
	if gate.told != nil {
		out.Told = &gate.told.figures
	}
	if naive != nil {
		out.Naive = &naive.figures
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("writing the JSON: %w", err)
	}
	return nil
}
