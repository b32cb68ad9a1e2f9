package sluicehttp

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Report tells what became of a request: an answer with the status 429 does
// not say how often it was asked for, nor why not once more. It is safe for use
// by multiple goroutines.
type Report struct {
	mu   sync.Mutex
	hops []Hop
}

// A Hop is one request as an [http.Client] made it: the first one, or one that
// follows a redirect.
type Hop struct {
	// Key names the gate that it passed.
	Key string

	// Attempts are those that were made, in order; none if the gate refused.
	Attempts []Attempt

	// Why there was no other attempt after the last one failed: ErrReplay,
	// ErrUnsafe, or what a *sluice.RetryError error has as its Why; the error of
	// the gate if that let none through, or why there was no gate, or no body
	// to send. nil if the last one did not fail.
	Why error

	// RetryAt is when it is worth coming back, zero if nothing is known.
	RetryAt time.Time
}

// An Attempt is one time that a request was sent.
type Attempt struct {
	// Waited is how long it waited before it left, for the backoff and for
	// the gate.
	Waited time.Duration

	// Sent is when it left, and Took how long it was until the header of the
	// answer was there, or an error.
	Sent time.Time
	Took time.Duration

	// Status is that of the answer, 0 if there was none. Err is why there was
	// none or, if the answer counts as a failure, a *StatusError.
	Status int
	Err    error
}

type reportKey struct{}

// WithReport returns a context for one request, and the report of it.
func WithReport(ctx context.Context) (context.Context, *Report) {
	r := new(Report)
	return context.WithValue(ctx, reportKey{}, r), r
}

// ReportFrom returns the report that ctx was made with by [WithReport], or nil.
// It works for the context of a request, and so for that of a response's request.
func ReportFrom(ctx context.Context) *Report {
	r, _ := ctx.Value(reportKey{}).(*Report)
	return r
}

// Hops returns what has happened so far: a hop for each request that was made with
// the context, in the order in which they began.
func (r *Report) Hops() []Hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	hops := slices.Clone(r.hops)
	for i := range hops {
		hops[i].Attempts = slices.Clone(hops[i].Attempts)
	}
	return hops
}

// Last returns the last hop, or the zero Hop if there was none yet.
func (r *Report) Last() Hop {
	hops := r.Hops()
	if len(hops) == 0 {
		return Hop{}
	}
	return hops[len(hops)-1]
}

// A page is one hop of a report while it is being written; nil if nobody asked
// for a report.
type page struct {
	report *Report
	i      int
}

func newPage(ctx context.Context, k key) *page {
	r := ReportFrom(ctx)
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hops = append(r.hops, Hop{Key: k.String()})
	return &page{r, len(r.hops) - 1}
}

// attempted notes an attempt, unless p is nil.
func (p *page) attempted(a Attempt) {
	if p == nil {
		return
	}
	p.report.mu.Lock()
	defer p.report.mu.Unlock()
	hop := &p.report.hops[p.i]
	hop.Attempts = append(hop.Attempts, a)
}

// stopped notes why there is no other attempt, unless p is nil.
func (p *page) stopped(why error, at time.Time) {
	if p == nil {
		return
	}
	p.report.mu.Lock()
	defer p.report.mu.Unlock()
	hop := &p.report.hops[p.i]
	hop.Why, hop.RetryAt = why, at
}
