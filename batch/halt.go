package batch

import "fmt"

// A Halt ends a batch when one of its numbers is reached. Skipped items do not count.
type Halt struct {
	// Now cancels the attempts in flight. Otherwise they are finished, but not retried.
	Now bool

	Fails     int64 // items that failed; 0 means no such condition
	Successes int64 // items that are ok; 0 means no such condition

	// FailPercent is the share of failed items among those that are ok or failed, at most 100. It
	// applies once there are AtLeast of them. 0 means no such condition.
	FailPercent float64
	AtLeast     int64 // 0 means 10
}

// atLeast is the default of AtLeast: a first item that fails is 100 %.
const atLeast = 10

func (h Halt) check() error {
	switch {
	case h.Fails < 0:
		return fmt.Errorf("batch: negative Fails %d", h.Fails)
	case h.Successes < 0:
		return fmt.Errorf("batch: negative Successes %d", h.Successes)
	case h.AtLeast < 0:
		return fmt.Errorf("batch: negative AtLeast %d", h.AtLeast)
	case !(h.FailPercent >= 0 && h.FailPercent <= 100): // written so that NaN is an error
		return fmt.Errorf("batch: FailPercent %v is not from 0 to 100", h.FailPercent)
	}
	return nil
}

// reached returns the error that ends a batch after so many items, or nil.
func (h Halt) reached(ok, failed int64) error {
	finished := ok + failed
	least := h.AtLeast
	if least == 0 {
		least = atLeast
	}
	switch {
	case h.Fails > 0 && failed >= h.Fails,
		h.FailPercent > 0 && finished >= least && 100*float64(failed) >= h.FailPercent*float64(finished):
		return fmt.Errorf("%w: %d of %d items failed", ErrHalted, failed, finished)
	case h.Successes > 0 && ok >= h.Successes:
		if ok == 1 {
			return fmt.Errorf("%w: 1 item is ok", ErrHalted)
		}
		return fmt.Errorf("%w: %d items are ok", ErrHalted, ok)
	}
	return nil
}
