package batch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/batch"
)

// parseHalt parses a Halt in the notation of GNU parallel: soon or now, a comma, and fail=3, fail=10%
// or success=100. "never" is the zero Halt.
func parseHalt(s string) (batch.Halt, error) {
	h, err := haltOf(s)
	if err != nil {
		return batch.Halt{}, fmt.Errorf("halt %q: want never, or soon or now with fail=3, fail=10%% or success=100, such as soon,fail=10%%: %w", s, err)
	}
	return h, nil
}

func haltOf(s string) (h batch.Halt, err error) {
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
	switch {
	case err != nil:
	case h.Fails <= 0 && h.Successes <= 0 && !(h.FailPercent > 0): // so that NaN is an error
		err = errors.New("the number must be positive")
	case h.FailPercent > 100:
		err = errors.New("more than 100%")
	}
	return h, err
}
