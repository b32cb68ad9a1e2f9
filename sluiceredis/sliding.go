package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// Sliding returns the sliding windows called name: at most limit units in any window from t up to
// but not including t + window, exactly and by the server's clock. It returns an error if name is
// empty, limit or window is not positive, or limit is more than 100,000. A window is rounded up to a
// microsecond. The same name with another limit or window means the same windows: used units stay
// used. For onOutage see [Store.Bucket].
//
// Each unit that is allowed takes about 100 bytes. One call takes at most 10,000; beyond that use
// [Store.Fixed] or Bucket. Returned units are the newest that are as old as the call.
//
// While machines use different windows for one key, a call must fit all of them; with the same
// window the largest limit applies. Values that no machine uses any more apply for another 1 to 1¼
// of their windows.
func (s *Store) Sliding(name string, limit int64, window time.Duration, onOutage ...OutagePolicy) (*Counter, error) {
	if err := checkWindow(name, limit, window, kinds.MostSliding); err != nil {
		return nil, err
	}
	w := new(Counter)
	if err := w.init(s, "log1", name, kinds.NewSliding(limit, window), policyOf(onOutage)); err != nil {
		return nil, err
	}
	return w, nil
}
