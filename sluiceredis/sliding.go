package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A Sliding allows at most limit units in any window from t up to but not including t + window, for
// each key, on all machines together, exactly and by the server's clock.
//
// It records each unit that it allows, which takes about 100 bytes and 2 µs of the server. One call
// takes at most 10,000 units; beyond that use a [Fixed] or a [Bucket]. A rejected call is not
// recorded. Returned units are the newest that are as old as the call.
//
// Limit and window may be changed machine by machine. While machines use different windows for one
// key, a call must fit all of them; with the same window the largest limit applies. Values that no
// machine uses any more apply for another 1 to 1¼ of their windows.
type Sliding struct{ limiters }

// Sliding returns the sliding windows called name. It returns an error if name is empty, limit or
// window is not positive, or limit is more than 100,000. A window is rounded up to a microsecond.
// The same name with another limit or window means the same windows: used units stay used.
func (s *Store) Sliding(name string, limit int64, window time.Duration) (*Sliding, error) {
	if err := checkWindow(name, limit, window, kinds.MostSliding); err != nil {
		return nil, err
	}
	w := new(Sliding)
	w.init(s, "log1", name, kinds.NewSliding(limit, window), 0)
	return w, nil
}

// OnOutage returns the same windows with their own policy. It panics if p is unknown.
func (w *Sliding) OnOutage(p OutagePolicy) *Sliding {
	also := new(Sliding)
	also.initAs(&w.limiters, p)
	return also
}
