package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// backWindow and backShare say when the throughput is back after a break: when so
	// much of the rate is served in such a window.
	backWindow = 500 * time.Millisecond
	backShare  = 0.95
)

// figures is what a run was, as -json prints it. Times are in seconds. Back is how long
// after a break the throughput was back, and null if the run ended before.
type figures struct {
	Items       int `json:"items"`
	Processed   int `json:"processed"`   // items that the API processed
	Left        int `json:"left"`        // after an interrupt: items that are in the queue
	Lost        int `json:"lost"`        // the others
	Twice       int `json:"twice"`       // items that it processed more than once
	Redelivered int `json:"redelivered"` // items that the queue delivered again, counted each time
	Replayed    int `json:"replayed"`    // calls that the API recognized by their key
	Calls       int `json:"calls"`       // that it got
	Refused     int `json:"refused"`     // calls over its rate

	Rate      float64 `json:"rate"`      // allowed, per second
	Delivered float64 `json:"delivered"` // from the first call to the last, per second
	Percent   float64 `json:"percent"`   // of the allowed
	Wall      float64 `json:"wall"`

	Kills    []killFigures    `json:"kills"`
	Restart  *breakFigures    `json:"restart"`
	Throttle *throttleFigures `json:"throttle"`
}

// breakFigures is what a break cost.
type breakFigures struct {
	At   float64  `json:"at"`
	Back *float64 `json:"back"`
}

// killFigures is what killing a worker cost.
type killFigures struct {
	breakFigures
	Worker   int      `json:"worker"`
	Held     int      `json:"held"`     // items that it had
	Missing  int      `json:"missing"`  // those that no other worker took
	Returned *float64 `json:"returned"` // when others had taken all of them, after the kill
}

// throttleFigures is what a 429 cost.
type throttleFigures struct {
	breakFigures
	Early int     `json:"early"` // calls that came before the time that it asked for had ended
	Last  float64 `json:"last"`  // when the last of them came, after the 429
}

// figures returns what the run was.
func (f *fleet) figures() figures {
	rec := f.api.Record()
	r := figures{Items: f.n, Calls: len(rec.Requests), Refused: rec.Throttled(), Redelivered: f.books.redelivered(),
		Rate: float64(f.rate.Count) / f.rate.Per.Seconds(), Wall: f.wall.Seconds()}
	f.api.mu.Lock()
	r.Processed, r.Replayed = f.api.items, f.api.replayed
	for _, times := range f.api.processed {
		if times > 1 {
			r.Twice++
		}
	}
	f.api.mu.Unlock()
	r.Lost = r.Items - r.Processed
	var throttled time.Duration
	s := seen{zero: f.began.Sub(f.api.made), rate: r.Rate}
	for _, q := range rec.Requests {
		if q.Status == http.StatusOK {
			s.served = append(s.served, q.Arrived-s.zero)
		} else if q.Status == http.StatusTooManyRequests && q.ThrottledBy == "" {
			throttled = q.Ended - s.zero
		}
	}
	if n := len(s.served); n > 1 {
		r.Delivered = float64(n-1) / (s.served[n-1] - s.served[0]).Seconds()
		r.Percent = 100 * r.Delivered / r.Rate
	}
	for _, k := range f.books.victims {
		r.Kills = append(r.Kills, s.kill(k))
	}
	if f.restarted > 0 {
		b := s.at(f.restarted)
		r.Restart = &b
	}
	if throttled > 0 {
		t := s.throttle(throttled)
		r.Throttle = &t
	}
	return r
}

// giveBack counts the items that an interrupted run left in the queue, not as lost.
func (r *figures) giveBack(q *queue) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if left, err := q.left(ctx); err == nil {
		r.Left = min(left, r.Lost) // some were processed, and the queue does not know
		r.Lost -= r.Left
	}
}

// seen is what the API saw: when each call came that it served, since the run began.
type seen struct {
	zero   time.Duration
	rate   float64
	served []time.Duration
}

// at returns what a break cost.
func (s seen) at(t time.Duration) breakFigures {
	need := int(backShare * s.rate * backWindow.Seconds())
	first, _ := slices.BinarySearch(s.served, t)
	for i := first; i+need < len(s.served); i++ {
		// Both a window from the break on and each that a call begins will do.
		if s.served[i+need]-s.served[i] <= backWindow {
			back := (s.served[i] - t).Seconds()
			return breakFigures{t.Seconds(), &back}
		}
	}
	return breakFigures{At: t.Seconds()}
}

// kill returns what killing a worker cost.
func (s seen) kill(k *killed) killFigures {
	r := killFigures{breakFigures: s.at(k.at), Worker: k.worker, Held: k.n, Missing: len(k.held)}
	if r.Missing == 0 && r.Held > 0 {
		returned := (k.last - k.at).Seconds()
		r.Returned = &returned
	}
	return r
}

// throttle returns what a 429 cost that was answered then.
func (s seen) throttle(answered time.Duration) throttleFigures {
	first, _ := slices.BinarySearch(s.served, answered)
	end, _ := slices.BinarySearch(s.served, answered+banned)
	r := throttleFigures{breakFigures: s.at(answered), Early: end - first}
	if r.Early > 0 {
		r.Last = (s.served[end-1] - answered).Seconds()
	}
	// Calls on their way, and those that came when the pause had ended, do not count.
	r.Back = s.at(answered + banned/2).Back
	if r.Back != nil {
		*r.Back += (banned / 2).Seconds()
	}
	return r
}

// write writes the figures as JSON.
func (r figures) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// table returns the figures for people.
func (r figures) table() string {
	var b strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "%-34s "+format+"\n", append([]any{name}, values...)...)
	}
	b.WriteString("\n")
	row("items", "%d", r.Items)
	if r.Left > 0 {
		row("  left in the queue", "%d", r.Left)
	}
	row("  lost", "%d", r.Lost)
	row("  processed twice", "%d", r.Twice)
	row("  delivered again by the queue", "%d", r.Redelivered)
	row("  recognized by their key", "%d", r.Replayed)
	row("calls over the rate (refused)", "%d", r.Refused)
	row("rate allowed", "%.1f/s", r.Rate)
	row("rate delivered, breaks included", "%.1f/s, %.2f %%", r.Delivered, r.Percent)
	for _, k := range r.Kills {
		row(fmt.Sprintf("worker %d killed at %.1f s", k.Worker, k.At), "throughput back after %s, its %d items with others after %s",
			after(k.Back), k.Held, after(k.Returned))
	}
	if r.Restart != nil {
		row(fmt.Sprintf("queue killed at %.1f s", r.Restart.At), "throughput back after %s", after(r.Restart.Back))
	}
	if t := r.Throttle; t != nil {
		row(fmt.Sprintf("one 429 at %.1f s", t.At), "all paused: %d more calls in the second that it asked for, the last after %.0f ms; throughput back after %s",
			t.Early, 1000*t.Last, after(t.Back))
	}
	row("wall time", "%.1f s", r.Wall)
	return b.String()
}

// after writes a time that may be missing.
func after(s *float64) string {
	if s == nil {
		return "– (the run ended before)"
	}
	return fmt.Sprintf("%.2f s", *s)
}
