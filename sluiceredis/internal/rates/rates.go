// Package rates says which rates are possible.
package rates

import (
	"fmt"
	"time"
)

// Check returns an error unless count and per, of a limits.Rate, are positive, at most one per
// nanosecond, and burst is not negative.
func Check(count int64, per time.Duration, burst int64) error {
	switch {
	case count <= 0:
		return fmt.Errorf("rate of %d per %v: the count must be positive", count, per)
	case per <= 0:
		return fmt.Errorf("rate of %d per %v: the period must be positive", count, per)
	case count > int64(per):
		return fmt.Errorf("rate of %d per %v: more than one per nanosecond", count, per)
	case burst < 0:
		return fmt.Errorf("rate of %d per %v: the burst of %d is negative", count, per, burst)
	}
	return nil
}
