package contend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
)

func TestLost_Counts(t *testing.T) {
	losses := 0
	for range contend.Enough {
		before := losses
		if losses = contend.Lost(losses); losses != before+1 {
			t.Errorf("%d after %d", losses, before)
		}
	}
}

// In a bubble time stands still while a goroutine reads the clock: to wait for the clock
// to move would be for ever.
func TestLost_InABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for losses := 0; losses < contend.Enough; losses = contend.Lost(losses) {
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}
