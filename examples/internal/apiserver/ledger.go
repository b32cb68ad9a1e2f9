package apiserver

import (
	"sync"
	"time"

	"github.com/sluice-go/sluice/examples/internal/arrivals"
)

// Report is what a Server saw of its callers.
type Report struct {
	// Calls is the number of calls for items that arrived: Accepted + TooFast + TooMany.
	Calls int64
	// Accepted is the number that the limiter admitted, those answered 503 included.
	Accepted int64
	// TooFast and TooMany were answered 429: over the rate, over the
	// concurrency.
	TooFast, TooMany int64
	// Faults is the number of accepted calls that were answered 503.
	Faults int64
	// MaxInFlight is the most calls in flight at the same time, the one just arriving
	// included even when it was rejected for being one too many.
	MaxInFlight int64
	// Arrivals is about the accepted calls alone.
	Arrivals arrivals.Summary
}

// Moment is what a Server can say at any time, at no cost.
type Moment struct {
	Calls, Served, Throttled, InFlight int64
}

// Tally is what a Server saw of one of its callers.
type Tally struct {
	Accepted         int64
	TooFast, TooMany int64 // answered 429
}

// ledger is the state of one run: the limiter and the books.
type ledger struct {
	items    int
	noFaults bool

	mu      sync.Mutex
	limiter limiter
	seen    Report // Accepted and Arrivals are filled in by report
	series  arrivals.Series
	failed  map[int]bool // ids whose 503 has been spent
	callers map[string]Tally
}

// newLedger needs a Config that New has found fit.
func newLedger(cfg Config) *ledger {
	b, err := newBucket(cfg.Count, cfg.Per, cfg.Bucket)
	if err != nil {
		panic(err) // New has tried the same bucket
	}
	return &ledger{
		items:    cfg.Items,
		noFaults: cfg.NoFaults,
		limiter:  limiter{concurrency: cfg.Concurrency, bucket: b},
		failed:   make(map[int]bool),
		callers:  make(map[string]Tally),
	}
}

// entry is what the books say of one call.
type entry struct {
	verdict verdict
	wait    time.Duration
	fault   bool

	// How the caller stands with the rate after it: how many calls may come together, when another
	// may, and when the bucket is full.
	left       int64
	next, full time.Duration
}

// arrive judges a call of a caller and notes it. The clock is read under the lock: read
// before it, two calls could be judged in the other order than they came.
func (l *ledger) arrive(clock func() time.Duration, id int, caller string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock()
	l.seen.Calls++
	l.seen.MaxInFlight = max(l.seen.MaxInFlight, l.limiter.inFlight+1)

	var e entry
	tally := l.callers[caller]
	e.verdict, e.wait = l.limiter.arrive(now)
	e.left, e.next, e.full = l.limiter.bucket.standing(now)
	switch e.verdict {
	case tooFast:
		l.seen.TooFast++
		tally.TooFast++
	case tooMany:
		l.seen.TooMany++
		tally.TooMany++
	case accepted:
		l.series.Add(now)
		tally.Accepted++
		if !l.noFaults && faulty(id, l.items) && !l.failed[id] {
			l.failed[id] = true
			l.seen.Faults++
			e.fault = true
		}
	}
	l.callers[caller] = tally
	return e
}

// leave counts an accepted call out of flight.
func (l *ledger) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limiter.leave()
}

// now returns the number of calls that arrived, that were or are being served an item, that were
// answered 429, and that are in flight.
func (l *ledger) now() (m Moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m = Moment{Calls: l.seen.Calls, Throttled: l.seen.TooFast + l.seen.TooMany, InFlight: l.limiter.inFlight}
	m.Served = m.Calls - m.Throttled - l.seen.Faults
	return m
}

func (l *ledger) report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.seen
	r.Arrivals = l.series.Summary()
	r.Accepted = r.Arrivals.Count
	return r
}
