package limits

import (
	"errors"
	"testing"
)

func TestResult(t *testing.T) {
	for name, v := range map[string]struct {
		res     Result
		allowed bool
		err     error
	}{
		"zero":          {Result{}, false, nil},
		"allowed":       {Result{Limit: 3, Remaining: 2, ResetAfter: 1}, true, nil},
		"refused":       {Result{Limit: 3, RetryAfter: 5, ResetAfter: 7}, false, nil},
		"too large":     {Result{Limit: 3, RetryAfter: Never}, false, ErrTooLarge},
		"too many keys": {Result{RetryAfter: Never}, false, ErrTooManyKeys},
	} {
		if v.res.Allowed() != v.allowed || v.res.Err() != v.err {
			t.Errorf("%s: Allowed() = %v, Err() = %v", name, v.res.Allowed(), v.res.Err())
		}
	}
}

func TestMust(t *testing.T) {
	if got := Must(7, nil); got != 7 {
		t.Errorf("Must(7, nil) = %v", got)
	}
	defer func() {
		if r := recover(); r != "no" {
			t.Errorf("panic %v", r)
		}
	}()
	Must(7, errors.New("no"))
}
