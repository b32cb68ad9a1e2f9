package synclog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A recorder is a testing.TB that notes whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// A helper that compares must be able to fail.
func TestWantCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.Call(1, func() error { time.Sleep(time.Second); return nil })
		l.Call(2, func() error { return context.Canceled })
		time.Sleep(time.Minute)
		right := []Left{{1, time.Second, nil}, {2, 0, context.Canceled}}
		for name, c := range map[string]struct {
			want []Left
			ok   bool
		}{
			"right":          {right, true},
			"other caller":   {[]Left{{3, time.Second, nil}, right[1]}, false},
			"other instant":  {[]Left{{1, time.Second + 1, nil}, right[1]}, false},
			"other error":    {[]Left{right[0], {2, 0, errors.New("context canceled")}}, false},
			"error, not nil": {[]Left{right[0], {2, 0, nil}}, false},
			"nil, not error": {[]Left{{1, time.Second, context.Canceled}, right[1]}, false},
			"one too many":   {append([]Left{{1, 0, nil}}, right...), false},
			"one is missing": {right[:1], false},
			"nothing at all": {nil, false},
		} {
			r := &recorder{TB: t}
			l.Want(r, c.want...)
			if r.failed == c.ok {
				t.Errorf("%s: failed = %v", name, r.failed)
			}
		}
	})
}
