package kind

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

func TestAdmitted(t *testing.T) {
	for name, v := range map[string]struct {
		res  limits.Result
		wait time.Duration
		err  error
	}{
		"allowed":       {limits.Result{Limit: 3, Remaining: 2, ResetAfter: 1}, 0, nil},
		"refused":       {limits.Result{Limit: 3, RetryAfter: 5, ResetAfter: 7}, 5, nil},
		"too large":     {limits.Result{Limit: 3, RetryAfter: limits.Never}, 0, limits.ErrTooLarge},
		"too many keys": {limits.Result{RetryAfter: limits.Never}, 0, limits.ErrTooManyKeys},
	} {
		if wait, err := Admitted(v.res); wait != v.wait || err != v.err {
			t.Errorf("%s: %v, %v, want %v, %v", name, wait, err, v.wait, v.err)
		}
	}
}
