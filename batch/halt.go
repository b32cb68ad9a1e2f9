package batch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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

// ParseHalt parses a Halt in the notation of GNU parallel: soon or now, a comma, and
// fail=3, fail=10% or success=100. "never" is the zero Halt. AtLeast is 0.
func ParseHalt(s string) (Halt, error) {
	h, err := parseHalt(s)
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return Halt{}, fmt.Errorf("batch: halt %q: want never, or soon or now with fail=3, fail=10%% or success=100, such as soon,fail=10%%: %w", s, err)
	}
	return h, nil
}

func parseHalt(s string) (h Halt, err error) {
	if s == "never" {
		return h, nil
	}
	when, why, _ := strings.Cut(s, ",")
	switch when {
	case "soon":
	case "now":
		h.Now = true
	default:
		return h, fmt.Errorf("%q is neither soon nor now", when)
	}
	what, number, _ := strings.Cut(why, "=")
	share, percent := strings.CutSuffix(number, "%")
	switch {
	case what == "fail" && percent:
		h.FailPercent, err = strconv.ParseFloat(share, 64)
	case what == "fail":
		h.Fails, err = strconv.ParseInt(number, 10, 64)
	case what == "success":
		h.Successes, err = strconv.ParseInt(number, 10, 64)
	default:
		return h, fmt.Errorf("%q is neither fail= nor success=", why)
	}
	if err == nil && h.Fails == 0 && h.Successes == 0 && h.FailPercent == 0 {
		err = errors.New("the number must not be 0")
	}
	return h, err
}

// String returns the notation that ParseHalt reads if h has one number; several are
// joined by " or ".
func (h Halt) String() string {
	when := "soon"
	if h.Now {
		when = "now"
	}
	var all []string
	if h.Fails > 0 {
		all = append(all, fmt.Sprintf("%s,fail=%d", when, h.Fails))
	}
	if h.FailPercent > 0 {
		all = append(all, fmt.Sprintf("%s,fail=%s%%", when, strconv.FormatFloat(h.FailPercent, 'g', -1, 64)))
	}
	if h.Successes > 0 {
		all = append(all, fmt.Sprintf("%s,success=%d", when, h.Successes))
	}
	if len(all) == 0 {
		return "never"
	}
	return strings.Join(all, " or ")
}
