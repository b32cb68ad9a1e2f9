package sluice_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// The model of a program is a book of what happened at each gate. It computes nothing in advance: it
// looks through all entries, and says which cannot be.

// forever is later than all that happens.
const forever = time.Duration(math.MaxInt64)

// A book has the entries of one gate.
type book struct {
	cfg sluice.Config

	mu      sync.Mutex
	in      int64        // in flight, in calls or cost
	limits  []limitSince // in flight, oldest first
	pauses  []pausedSpan
	left    []departure
	closed  time.Duration
	arrived []arrival
}

// A limitSince is a limit in flight from an instant on; 0 means none.
type limitSince struct {
	at    time.Duration
	limit int64
}

type pausedSpan struct{ from, to time.Duration }

// An arrival is a call that came and left.
type arrival struct{ came, left time.Duration }

func newBook(cfg sluice.Config) *book {
	return &book{cfg: cfg, closed: forever, limits: []limitSince{{-1, cfg.Concurrency}}}
}

// leave enters a call of n that leaves at an instant, and returns what cannot be and how to enter
// its end. If settled is true, cost in flight may exceed the limit: a call may have been settled
// upwards.
func (b *book) leave(at time.Duration, n int64, settled bool) (wrong []string, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := unitOf(b.cfg.ConcurrencyUnit, n)
	b.in += m
	if limit := b.limitAt(at); b.in > limit && !(settled && b.cfg.ConcurrencyUnit == sluice.Cost) {
		wrong = append(wrong, fmt.Sprintf("%s: %d in flight of %d", b.cfg.Name, b.in, limit))
	}
	if at > b.closed {
		wrong = append(wrong, fmt.Sprintf("%s: a call left, and the gate was closed at %v", b.cfg.Name, b.closed))
	}
	for _, p := range b.pauses {
		if p.from < at && at < p.to {
			wrong = append(wrong, fmt.Sprintf("%s: a call left in a pause from %v to %v", b.cfg.Name, p.from, p.to))
		}
	}
	b.left = append(b.left, departure{at: at, n: unitOf(b.cfg.RateUnit, n)})
	return wrong, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.in -= m
	}
}

// limitAt returns the limit in flight at an instant: the largest, if it was changed then.
func (b *book) limitAt(at time.Duration) (most int64) {
	for i, l := range b.limits {
		switch {
		case l.at > at || i+1 < len(b.limits) && b.limits[i+1].at < at:
		case l.limit == 0:
			return math.MaxInt64
		default:
			most = max(most, l.limit)
		}
	}
	return most
}

func (b *book) change(at time.Duration, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = append(b.limits, limitSince{at, limit})
}

func (b *book) pause(from, to time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses = append(b.pauses, pausedSpan{from, to})
}

func (b *book) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses = nil
}

func (b *book) close(at time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = min(b.closed, at)
}

func (b *book) arrive(came, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrived = append(b.arrived, arrival{came, left})
}

// tooFast says where more left than the rate allows, which must not have changed: in any window W
// at most B + (W + CatchUp)/T + n − 1 units.
func (b *book) tooFast() string {
	rate := b.cfg.Rate
	if rate.Count == 0 {
		return ""
	}
	catchUp := b.cfg.CatchUp
	switch {
	case catchUp == 0:
		catchUp = 50 * time.Millisecond
	case catchUp < 0:
		catchUp = 0
	}
	heaviest := int64(1)
	slices.SortStableFunc(b.left, func(x, y departure) int { return cmp.Compare(x.at, y.at) })
	for _, d := range b.left {
		heaviest = max(heaviest, d.n)
	}
	for i := range b.left {
		sum := int64(0)
		for _, d := range b.left[i:] {
			sum += d.n
			window := d.at - b.left[i].at
			most := float64(max(1, rate.Burst)+heaviest-1) + float64(window+catchUp+2)*float64(rate.Count)/float64(rate.Per)
			if float64(sum) > most+1e-9 {
				return fmt.Sprintf("%s: %d units within %v from %v on, at %v", b.cfg.Name, sum, window, b.left[i].at, rate)
			}
		}
	}
	return ""
}

// overtaken says which call left before one that had come earlier.
func (b *book) overtaken() string {
	slices.SortStableFunc(b.arrived, func(x, y arrival) int { return cmp.Compare(x.came, y.came) })
	var last arrival // to leave, of those so far
	for _, a := range b.arrived {
		if a.left < last.left && a.came > last.came {
			return fmt.Sprintf("%s: a call that came at %v left at %v, before one that came at %v and left at %v",
				b.cfg.Name, a.came, a.left, last.came, last.left)
		}
		if a.left > last.left {
			last = a
		}
	}
	return ""
}
