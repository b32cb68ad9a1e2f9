package window

import (
	"fmt"
	"time"
)

// A Quota is at most Limit per window. Of Window and Calendar exactly one is
// given.
type Quota struct {
	Limit    int64          // at least 1
	Window   time.Duration  // positive, or 0 with a Calendar
	Calendar Calendar       // for counters only
	Location *time.Location // of the Calendar; nil means UTC
}

// String returns q as "300 per 20s" or "5000 per day in Europe/Berlin".
func (q Quota) String() string {
	if q.Calendar == 0 {
		return fmt.Sprintf("%d per %v", q.Limit, q.Window)
	}
	return fmt.Sprintf("%d per %v in %v", q.Limit, q.Calendar, q.Location) // a nil Location prints as UTC
}

// Check returns an error unless q is possible for a [Fixed]; for a [Sliding] it
// must not have a Calendar either.
func (q Quota) Check() error {
	if err := checkLimit(q.Limit); err != nil {
		return err
	}
	switch {
	case q.Calendar < 0 || q.Calendar > Month:
		return fmt.Errorf("window: no such calendar: %d", int(q.Calendar))
	case q.Calendar == 0 && q.Window <= 0:
		return fmt.Errorf("window: quota of %v: the window must be positive", q)
	case q.Calendar != 0 && q.Window != 0:
		return fmt.Errorf("window: quota of %v: window of %v beside a calendar", q, q.Window)
	case q.Calendar == 0 && q.Location != nil:
		return fmt.Errorf("window: quota of %v: a location needs a calendar", q)
	}
	return nil
}

// checkLog is Check for a log.
func (q Quota) checkLog() error {
	if q.Calendar != 0 {
		return fmt.Errorf("window: quota of %v: a log has no calendar", q)
	}
	return q.Check()
}

func checkLimit(limit int64) error {
	if limit <= 0 {
		return fmt.Errorf("window: limit of %d: it must be positive", limit)
	}
	return nil
}

// must panics where a check of literals returned an error.
func must(err error) {
	if err != nil {
		panic(err.Error())
	}
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("window: n < 0: %d", n))
	}
}
