package live

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live/internal/clean"
)

const (
	pauseFor    = time.Minute
	longestHold = 24 * time.Hour // of a pause that is made on the page
	mostBody    = 4 << 10
)

// A change is the request of a POST.
type change struct {
	Gate  uint64 `json:"gate,omitzero"`  // the id of a row, as the page knows it
	Start string `json:"start,omitzero"` // of the message that had the row
	Name  string `json:"name,omitzero"`  // in place of both, for programs
	Do    string `json:"do"`
	For   string `json:"for,omitzero"`   // pause
	Rate  string `json:"rate,omitzero"`  // rate
	Limit *int64 `json:"limit,omitzero"` // concurrency; nil is an error
}

// An answer is the response to a POST.
type answer struct {
	Said string  `json:"said"`
	Undo *change `json:"undo,omitempty"` // the change that reverts it, without a gate; nil if there is none
}

// can returns a letter for each thing that a Gate.Control changes: p, r, c.
func can(c control) string {
	if c == nil {
		return ""
	}
	letters := "p"
	if _, ok := c.(rateControl); ok {
		letters += "r"
	}
	if _, ok := c.(concurrencyControl); ok {
		letters += "c"
	}
	return letters
}

// serveChange changes a gate, for requests that have the token and do not come from a page of
// another origin.
func (h *Handler) serveChange(w http.ResponseWriter, r *http.Request) {
	say := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer{Said: text})
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	given, token := sha256.Sum256([]byte(r.Header.Get("Sluice-Token"))), sha256.Sum256([]byte(h.Token))
	switch {
	case !h.changes() && h.Token != "":
		say(http.StatusForbidden, fmt.Sprintf("this page is read-only: its Token has fewer than %d bytes", leastToken))
		return
	case !h.changes():
		say(http.StatusForbidden, "this page is read-only")
		return
	case h.origin.Check(r) != nil:
		say(http.StatusForbidden, "the request comes from another origin")
		return
	case subtle.ConstantTimeCompare(given[:], token[:]) != 1:
		say(http.StatusForbidden, "the token is wrong")
		return
	case kind != "application/json":
		say(http.StatusUnsupportedMediaType, "want application/json")
		return
	}
	var c change
	from := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	from.DisallowUnknownFields()
	if err := from.Decode(&c); err != nil {
		say(http.StatusBadRequest, "want a JSON object: "+err.Error())
		return
	}
	if _, err := from.Token(); err != io.EOF {
		say(http.StatusBadRequest, "want one JSON object")
		return
	}
	row, before, err := h.find(c)
	if err != nil {
		say(http.StatusNotFound, err.Error())
		return
	}
	now := time.Now()
	did, err := c.apply(before.Control, now)
	if err != nil {
		say(http.StatusBadRequest, err.Error())
		return
	}
	h.refresh(row, c)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer{row.name + ": " + did, c.undo(&before.Stats, now)})
}

// find returns the gate that a change is for, and its values in the last sample.
func (h *Handler) find(c change) (row *history, before Gate, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Name != "" {
		h.fresh(time.Now())
	}
	var found []*history
	for _, row := range h.sampler.rows {
		if c.Name != "" && row.name == c.Name || c.Name == "" && row.id == c.Gate && h.start == c.Start {
			found = append(found, row)
		}
	}
	switch {
	case len(found) == 0:
		return nil, before, errors.New("there is no such gate; it may have been forgotten, or the program has restarted")
	case len(found) > 1:
		return nil, before, fmt.Errorf("there are %d gates of this name", len(found))
	case found[0].gate.Control == nil:
		return nil, before, errors.New("this gate can only be shown")
	}
	return found[0], found[0].gate, nil
}

// refresh notes a change that was made, for the undo of one that comes before the next sample.
func (h *Handler) refresh(row *history, c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch c.Do {
	case "pause":
		row.gate.PausedUntil = time.Now().Add(pauseFor) // roughly: a second pause has no undo
	case "resume":
		row.gate.PausedUntil = time.Time{}
	case "rate":
		row.gate.Rate, _ = c.rate()
	case "concurrency":
		row.gate.Concurrency = *c.Limit
	}
}

// rate returns the rate that c asks for.
func (c change) rate() (sluice.Rate, error) {
	if c.Rate == "none" {
		return sluice.Rate{}, nil
	}
	return limits.ParseRate(c.Rate)
}

// undo returns the change that takes c back, which was made at now, nil if there is none.
func (c change) undo(before *sluice.Stats, now time.Time) *change {
	switch was := before.PausedUntil.Sub(now); c.Do {
	case "pause":
		if was <= 0 { // otherwise it would end that pause, too
			return &change{Do: "resume"}
		}
	case "resume":
		if was > 0 {
			return &change{Do: "pause", For: min(was, longestHold).String()}
		}
	case "rate":
		return &change{Do: "rate", Rate: rateText(before.Rate)}
	case "concurrency":
		return &change{Do: "concurrency", Limit: &before.Concurrency}
	}
	return nil
}

// rateText writes a rate as a change has it.
func rateText(r sluice.Rate) string {
	if r == (sluice.Rate{}) {
		return "none"
	}
	return r.String()
}

// apply makes a change and describes it.
func (c change) apply(to control, now time.Time) (did string, err error) {
	switch c.Do {
	case "pause":
		d := pauseFor
		if c.For != "" {
			if d, err = time.ParseDuration(c.For); err != nil || d <= 0 || d > longestHold {
				return "", fmt.Errorf("%q: want a time such as 90s or 10m, at most %v", c.For, longestHold)
			}
		}
		to.PauseUntil(now.Add(d), "paused by hand")
		return "paused for " + rough(d), nil
	case "resume":
		to.Resume()
		return "resumed", nil
	case "rate":
		rates, ok := to.(rateControl)
		if !ok {
			return "", errors.New("the rate of this gate cannot be changed here")
		}
		rate, err := c.rate()
		if err != nil {
			return "", err
		}
		return "rate " + c.Rate, rates.SetRate(rate)
	case "concurrency":
		places, ok := to.(concurrencyControl)
		if !ok {
			return "", errors.New("the calls in flight of this gate cannot be changed here")
		}
		if c.Limit == nil {
			return "", errors.New("want a limit, 0 for none")
		}
		if *c.Limit == 0 {
			return "no limit in flight", places.SetConcurrency(0)
		}
		return "at most " + count(*c.Limit) + " in flight", places.SetConcurrency(*c.Limit)
	}
	return "", fmt.Errorf("cannot %q: want pause, resume, rate or concurrency", clean.Text(c.Do))
}
