package window

import (
	"time"

	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A fixed is the units of fixed windows.
type fixed struct {
	epoch time.Time // the origin of monotonic times
	quota Quota
	rule  kind.Fixed
	state kind.FixedState
}

// NewFixed returns a Counter that allows at most quota.Limit units in each of its windows, which
// follow one another and do not slide: around an edge, up to twice the limit can pass. With a
// [Calendar] they begin at fixed times. Without one a window begins with the first call after the
// end of the previous window.
//
// With a calendar the wall clock is used, otherwise the monotonic clock. If the wall clock is put
// back, the Counter stays in its window until the clock has caught up, but at most for the length of
// the window: nothing is allowed twice.
//
// NewFixed returns an error if quota.Limit is not positive, and unless quota has either a positive
// Window or a Calendar; a Location needs a Calendar.
func NewFixed(quota Quota) (*Counter, error) {
	rule, err := quota.fixed()
	if err != nil {
		return nil, err
	}
	return &Counter{units: &fixed{epoch: time.Now(), quota: quota, rule: rule}}, nil
}

// read reads both clocks, at the same time.
func (f *fixed) read() (now time.Duration, wall int64) {
	t := time.Now()
	return t.Sub(f.epoch), t.UnixNano()
}

func (f *fixed) take(n int64) limits.Result {
	now, wall := f.read()
	return f.rule.Take(&f.state, now, wall, n)
}

func (f *fixed) setQuota(quota Quota) error {
	rule, err := quota.fixed()
	if err != nil {
		return err
	}
	if err := quota.sameWindows(f.quota); err != nil {
		return err
	}
	f.quota, f.rule = quota, rule
	return nil
}

func (f *fixed) adjust(delta int64, age time.Duration) {
	now, wall := f.read()
	f.rule.Adjust(&f.state, now, wall, delta, age)
}

func (f *fixed) forecast() limits.Forecast {
	now, wall := f.read()
	return foreseeFixed(f.rule, f.state, now, wall)
}

// foreseeFixed returns the forecast of a window of r in the state s.
func foreseeFixed(r kind.Fixed, s kind.FixedState, now time.Duration, wall int64) limits.Forecast {
	f := &forecast.Fixed{Limit: r.Limit, Window: r.Window}
	if r.Edges != nil {
		f.Edges = func(at time.Duration) (start, end time.Duration) {
			from, to := r.Edges(int64(sat.Add(time.Duration(wall), at)))
			return sat.Sub(time.Duration(from), time.Duration(wall)), sat.Sub(time.Duration(to), time.Duration(wall))
		}
	}
	if !r.Over(&s, now, wall) {
		f.Used, f.End = s.Used, r.Take(&s, now, wall, 0).ResetAfter
	}
	return f
}
