package programs_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// A rampModel is the slow start of a gate without a rate: all that ever happened,
// from which its state is worked out from the beginning each time.
type rampModel []rampEvent

type rampEvent struct {
	kind rampKind
	at   time.Duration
	left time.Duration // of a call that was answered: when it left; of a pause: how long it is
	room int64         // and how many may be in flight, 0 for any number
}

type rampKind int

const (
	rampPaused rampKind = iota
	rampLeft
	rampAnswered
)

// slot returns the earliest instant for the next call.
func (m rampModel) slot() time.Duration {
	type refusal struct {
		at    time.Duration
		taken int
	}
	var (
		refusals                   []refusal // since the start, oldest first; none: there is no slow start
		since, last                time.Duration
		left, answered, taken      int // the first two since the last refusal
		window, limit, gap, growth float64
	)
	for _, e := range m {
		switch {
		case e.kind == rampPaused && len(refusals) == 0:
			refusals = []refusal{{e.at, 0}}
			since, last, left, answered, taken = e.at+1, 0, 0, 0, 0
			window, limit, gap, growth = 1, 1e18, 0, 2
		case e.kind == rampPaused && left > 0:
			n := taken - refusals[0].taken
			growth = min(256, max(2, 4*float64(n)/float64(len(refusals))))
			refusals = append(refusals, refusal{e.at, taken})
			if n > 0 { // the best pace over 16 calls, or over all that there were
				gap = 1e10
			}
			for i, to := range refusals {
				// From the last refusal that is 16 calls before.
				for j := i - 1; j >= 0; j-- {
					from := refusals[j]
					if n := to.taken - from.taken; n >= 16 || j == 0 && n > 0 {
						gap = min(gap, float64(int64(to.at-from.at)/int64(n)))
						break
					}
				}
			}
			if n > 0 && e.left > 2*time.Second && float64(e.left) > 2*gap {
				gap = 0
			}
			if len(refusals) == 17 || len(refusals) > 2 && taken-refusals[1].taken >= 256 {
				refusals = refusals[1:]
			}
			since, limit, window, left, answered = e.at+1, max(1, window/2), 1, 0, 0
		case len(refusals) == 0:
		case e.kind == rampPaused: // the pause became longer
			if e.left > 2*time.Second && float64(e.left) > 2*gap {
				gap = 0
			}
		case e.kind == rampLeft:
			left, last = left+1, e.at
		case e.kind == rampAnswered && e.left >= since:
			answered++
			taken++
			switch {
			case window < limit && gap > 0:
				window = limit
			case window < limit:
				window++
			default:
				window += 1 / window
			}
			if gap -= float64(int64(gap / growth)); gap < 1e5 {
				gap = 0
			}
			if e.room > 0 && gap == 0 && left >= 256 && window >= float64(e.room) {
				refusals = nil
			}
		}
	}
	if len(refusals) == 0 {
		return 0
	}
	slot := max(since, last) + time.Duration(gap)
	if left-answered >= int(window) {
		slot = max(slot, last+10*time.Second)
	}
	return slot
}

// Long histories of pauses, calls and answers have the slots of the model. A call leaves at
// its slot, and not a nanosecond before.
func TestSlowStart_Model(t *testing.T) {
	built.SkipRaced(t)
	random := rand.New(rand.NewPCG(3, 4))
	held := 0 // calls that had to wait
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			type inFlight struct {
				permit *sluice.Permit
				left   time.Duration
			}
			var m rampModel
			var out []inFlight
			room := []int64{0, 4}[round%2]
			steps, often := 1200, 40 // in a thousand steps
			if round%4 < 2 {
				steps, often = 6000, 2 // so that 256 calls come between two refusals
			}
			g := mustGate(t, sluice.Config{Concurrency: room})
			start := time.Now()
			for range steps {
				time.Sleep(time.Duration(random.IntN(3)) * ms)
				now := time.Since(start)
				switch what := random.IntN(1000); {
				case what < often:
					d := time.Duration(1+random.IntN(3000)) * ms
					g.PauseUntil(time.Now().Add(d), "429")
					m = append(m, rampEvent{kind: rampPaused, at: now, left: d})
					time.Sleep(d)
				case len(out) > 0 && (what < 500 || len(out) == 4):
					i := random.IntN(len(out))
					out[i].permit.Release()
					m = append(m, rampEvent{rampAnswered, now, out[i].left, room})
					out = slices.Delete(out, i, i+1)
				default:
					if wait := m.slot() - now; wait > 0 {
						held++
						time.Sleep(wait - 1)
						if _, ok := g.TryAcquire(1); ok {
							t.Fatalf("round %d: a call left at %v, before its slot at %v", round, now+wait-1, now+wait)
						}
						time.Sleep(time.Nanosecond)
						now += wait
					}
					p, ok := g.TryAcquire(1)
					if !ok {
						t.Fatalf("round %d: no call left at its slot at %v", round, now)
					}
					m = append(m, rampEvent{kind: rampLeft, at: now})
					out = append(out, inFlight{p, now})
				}
			}
		})
	}
	if held < 1000 {
		t.Errorf("only %d calls had to wait", held)
	}
}
