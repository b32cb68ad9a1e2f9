package window

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
)

// A Quota is at most Limit units per window. Exactly one of Window and Calendar is
// given.
type Quota struct {
	Limit    int64          // at least 1
	Window   time.Duration  // positive, or 0 with a Calendar
	Per      Calendar       // not for a sliding window
	Location *time.Location // of the Calendar; nil means UTC
}

// text returns q as "300 per 20s" or "5000 per day in Europe/Berlin".
func (q Quota) text() string {
	if q.Per == "" {
		return fmt.Sprintf("%d per %v", q.Limit, q.Window)
	}
	return fmt.Sprintf("%d per %v in %v", q.Limit, q.Per, q.Location) // a nil Location prints as UTC
}

// fixed returns the algorithm of fixed windows, or an error if q is impossible.
func (q Quota) fixed() (kind.Fixed, error) {
	r := kind.Fixed{Limit: q.Limit, Window: q.Window}
	switch {
	case q.Limit <= 0:
		return r, fmt.Errorf("window: quota of %v: the limit must be positive", q.text())
	case q.Per != "" && !q.Per.valid():
		return r, fmt.Errorf("window: no such calendar: %q", string(q.Per))
	case q.Per == "" && q.Window <= 0:
		return r, fmt.Errorf("window: quota of %v: the window must be positive", q.text())
	case q.Per != "" && q.Window != 0:
		return r, fmt.Errorf("window: quota of %v: window of %v besides a calendar", q.text(), q.Window)
	case q.Per == "" && q.Location != nil:
		return r, fmt.Errorf("window: quota of %v: a location needs a calendar", q.text())
	case q.Per != "":
		r.Edges = func(at int64) (start, end int64) { return q.Per.bounds(at, q.Location) }
	}
	return r, nil
}

// sliding returns the algorithm of sliding windows, or an error if q is impossible.
func (q Quota) sliding() (kind.Sliding, error) {
	if q.Per != "" {
		return kind.Sliding{}, fmt.Errorf("window: quota of %v: a sliding window has no calendar", q.text())
	}
	_, err := q.fixed()
	return kind.Sliding{Limit: q.Limit, Window: q.Window}, err
}

// sameWindows returns an error unless q has the windows of o.
func (q Quota) sameWindows(o Quota) error {
	// Locations are compared by name: the same one may have been loaded twice, and nil is UTC.
	if q.Window != o.Window || q.Per != o.Per || q.Location.String() != o.Location.String() {
		return fmt.Errorf("window: quota of %v: only the limit of %v can change", q.text(), o.text())
	}
	return nil
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("window: n < 0: %d", n))
	}
}
