package sluicehttp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// A Report is the history of a request. It is safe for use by multiple goroutines.
type Report struct {
	mu   sync.Mutex
	last *page // nil before the first hop
}

// A Hop is one request as an [http.Client] made it: the first one, or one that follows a redirect.
type Hop struct {
	// Key is the key of the gate.
	Key string

	// Attempts are the attempts in order; none if the gate rejected the request.
	Attempts []Attempt

	// Why there was no other attempt after the last one failed: ErrReplay, ErrUnsafe, the Why of a
	// *sluice.RetryError, or the error because of which none was made. It is nil if the last one did
	// not fail.
	Why error

	// RetryAt is when to retry; zero if unknown.
	RetryAt time.Time
}

// An Attempt is one time that a request was sent.
type Attempt struct {
	// Waited is the time in the backoff and at the gate before that.
	Waited time.Duration

	// Sent is when it was sent, and Took the time until the header of the response or an error.
	Sent time.Time
	Took time.Duration

	// Status is the status of the response, 0 if there was none. Err is why there
	// was none or, if the response counts as a failure, a *StatusError.
	Status int
	Err    error
}

type reportKey struct{}

// WithReport returns a context for a request, and the report about it.
func WithReport(ctx context.Context) (context.Context, *Report) {
	r := new(Report)
	return context.WithValue(ctx, reportKey{}, r), r
}

// Last returns the last hop, after the last redirect, or the zero Hop before the first.
func (r *Report) Last() Hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return Hop{}
	}
	hop := r.last.hop
	hop.Attempts = slices.Clone(hop.Attempts)
	return hop
}

// Settle replaces the estimated amounts of the last hop by the actual ones, as
// [sluice.Permit.SettleCosts] does, before or after the body is read. It reports false and changes
// nothing if there is no response yet, or if the request was settled before: by Settle, or by
// Config.Usage when its body ended. It panics if an amount is negative.
func (r *Report) Settle(actual sluice.Costs) bool {
	r.mu.Lock()
	var b *bill
	if r.last != nil {
		b = r.last.bill
	}
	r.mu.Unlock()
	return b.settle(actual)
}

// A page is a hop that is being written; nil without a report.
type page struct {
	report *Report
	hop    Hop   // guarded by report.mu
	bill   *bill // of the attempt whose response was returned; guarded by report.mu
}

// billed sets the bill of the attempt whose response is returned, unless p is nil.
func (p *page) billed(b *bill) {
	if p == nil {
		return
	}
	p.report.mu.Lock()
	defer p.report.mu.Unlock()
	p.bill = b
}

func newPage(ctx context.Context, k key) *page {
	r, _ := ctx.Value(reportKey{}).(*Report)
	if r == nil {
		return nil
	}
	p := &page{report: r, hop: Hop{Key: k.String()}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = p
	return p
}

// attempted adds an attempt, unless p is nil.
func (p *page) attempted(a Attempt) {
	if p == nil {
		return
	}
	p.report.mu.Lock()
	defer p.report.mu.Unlock()
	p.hop.Attempts = append(p.hop.Attempts, a)
}

// stopped sets why there is no other attempt, unless p is nil.
func (p *page) stopped(why error, at time.Time) {
	if p == nil {
		return
	}
	p.report.mu.Lock()
	defer p.report.mu.Unlock()
	p.hop.Why, p.hop.RetryAt = why, at
}
