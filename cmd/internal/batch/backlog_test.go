package batch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// No call begins while too many results wait, and each that is printed lets one begin.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backlog{most: 2}
		began := 0
		begin := func() {
			if b.wait(t.Context()) == nil {
				began++
				b.add() // at once
			}
		}
		for range 4 {
			go func() { begin() }()
			synctest.Wait()
		}
		for want := 2; want <= 4; want++ {
			if began != want {
				t.Errorf("%d began, want %d", began, want)
			}
			b.done()
			synctest.Wait()
		}
		cause := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		b = backlog{most: 1, n: 1}
		cancel(cause)
		if err := b.wait(ctx); err != cause {
			t.Error(err)
		}
	})
	var none backlog
	none.add()
	if err := none.wait(t.Context()); err != nil {
		t.Error(err)
	}
}
