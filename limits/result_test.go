package limits

import (
	"errors"
	"testing"
	"time"
)

func TestResult(t *testing.T) {
	for name, v := range map[string]struct {
		res     Result
		allowed bool
		wait    time.Duration
		err     error
	}{
		"zero":          {Result{}, false, 0, nil},
		"allowed":       {Result{Limit: 3, Remaining: 2, ResetAfter: 1}, true, 0, nil},
		"refused":       {Result{Limit: 3, RetryAfter: 5, ResetAfter: 7}, false, 5, nil},
		"too large":     {Result{Limit: 3, RetryAfter: Never}, false, 0, ErrTooLarge},
		"too many keys": {Result{RetryAfter: Never}, false, 0, ErrTooManyKeys},
	} {
		wait, err := v.res.Wait()
		if v.res.Allowed() != v.allowed || v.res.Err() != v.err || wait != v.wait || err != v.err {
			t.Errorf("%s: Allowed() = %v, Err() = %v, Wait() = %v, %v", name, v.res.Allowed(), v.res.Err(), wait, err)
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
