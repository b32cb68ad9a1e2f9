package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # The last call of a short window
//
// Where a window begins with a call, and calls start at the rate of the limit, the call after the last one comes
// a moment too early or too late. The response to the last call, which says that nothing remains, is often still on
// its way then:
//
//	sent       48     49     50     51
//	answered       46    48   47     49  50      2 remain, 1 remains, nothing remains
//
// So earlier responses say which call takes the last unit, and the gate pauses when that is sent. Most servers ask
// for a whole second after a call that they throttle, and 3,000 calls at 50 per second took 63.8 s instead of 61.8.
// To wait from the response on that leaves less than one call for certain wasted one call in each window.

// A lastCall is the call that takes the last unit of a window.
type lastCall struct {
	number uint32 // of those that state.sent counts
	until  time.Time
	source string
}

// noteLast notes which call takes the last unit of a window, as the limits in said show. The first one counts. A response
// that was not granted, or shows no limit, changes nothing: the window goes on.
func (st *state) noteLast(said *ratelimit.Info, found *findings) {
	var last *lastCall
	if st.published == nil && !st.t.cfg.Published.Disabled {
		for i := range min(len(said.Limits), len(found)) {
			l := &found[i].last
			if !l.until.IsZero() && (last == nil || int32(l.number-last.number) < 0) {
				l.source = said.Limits[i].Source
				last = l
			}
		}
	}
	granted := len(said.Limits) > 0 && !said.Throttled && said.Status < 400
	switch {
	case last != nil:
		c := *last // without the other findings of the response
		st.last.Store(&c)
	case granted && st.last.Load() != nil:
		st.last.Store(nil)
	}
}

// pauseAfter pauses the gate if the call of that number, which is sent now, takes the last unit of a window.
func (st *state) pauseAfter(number uint32) {
	last := st.last.Load()
	if last == nil || int32(number-last.number) < 0 || !st.last.CompareAndSwap(last, nil) {
		return
	}
	usedup.Pause(st.gate, st.t.later(last.until, time.Now()), last.source+": nothing remains")
}
