package sluiceredis

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// An asking is a request for n units of a window, and what was answered.
type asking struct {
	n int64

	result limits.Result
	now    int64     // the server's clock, µs since 1970
	name   string    // of the members it became, in a log
	sent   time.Time // when the script was, or a little earlier
}

// granted returns how many units were taken.
func (a *asking) granted() int64 {
	if a.result.Allowed() {
		return a.n
	}
	return 0
}

// inRuns calls f with those requests, in order, that a script must decide, equal
// neighbours together. Those for nothing and those for more than the limit have
// their answer, and are in none.
func inRuns(requests []*asking, limit int64, f func(run []*asking)) {
	var run []*asking
	for _, a := range requests {
		if a.n == 0 || a.n > limit {
			continue
		}
		if len(run) > 0 && run[0].n != a.n {
			f(run)
			run = nil
		}
		run = append(run, a)
	}
	if len(run) > 0 {
		f(run)
	}
}

// microseconds returns d in those, rounded up: a window is never shorter than
// told.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond != 0 {
		us++
	}
	return us
}

// checkWindow returns an error unless a window of so many can be.
func checkWindow(name string, limit int64, window time.Duration, most int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	switch {
	case limit <= 0:
		return fmt.Errorf("sluiceredis: limit of %d: it must be positive", limit)
	case limit > most:
		return fmt.Errorf("sluiceredis: limit of %d: at most %d", limit, most)
	case window <= 0:
		return fmt.Errorf("sluiceredis: window of %v: it must be positive", window)
	}
	return nil
}

// admit is what Admit of a meter returns for a result.
func admit(res limits.Result, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	if err := res.Err(); err != nil {
		return 0, err
	}
	return res.RetryAfter, nil
}
