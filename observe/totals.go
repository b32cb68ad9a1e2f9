package observe

import (
	"iter"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// Totals is the state of gates at one moment, added up, for exporters of metrics.
type Totals struct {
	Gates     int
	InFlight  int64 // calls in flight
	Waiting   int64 // calls that wait
	LimitedBy map[limits.Cause]int

	OldestWait time.Duration // of the call that has waited longest

	Rate        float64 // that applies, per second; 0 if no gate has one
	Concurrency int64   // that applies; 0 if no gate has one

	Paused      int           // gates that are paused
	PauseLeft   time.Duration // until the longest pause ends
	RetryTokens int64

	// Learned has the learned limits of each unit, sluice.Calls if the gates know of no other, with
	// their numbers added up. Share is 0 if no gate shares its limit; otherwise, Peers is 0 if none
	// of them can reach the others. Learning is the number of gates that have learned something,
	// and Blocked the number of those whose server accepts nothing.
	Learning, Blocked int
	Learned           map[sluice.Unit]*sluice.Learned
}

// Sum adds up gates that have the same label, such as the name under which [ByName] counts
// them. Totals.LimitedBy has, for each cause, the number of gates with callers that wait for it.
func Sum(gates iter.Seq[sluice.Stats], label func(name string) string) map[string]*Totals {
	sums := make(map[string]*Totals)
	now := time.Now()
	for s := range gates {
		name := label(s.Name)
		sum := sums[name]
		if sum == nil {
			sum = &Totals{LimitedBy: make(map[limits.Cause]int), Learned: make(map[sluice.Unit]*sluice.Learned)}
			sums[name] = sum
		}
		sum.add(s, now)
	}
	return sums
}

func (t *Totals) add(s sluice.Stats, now time.Time) {
	t.Gates++
	t.InFlight += s.InFlight
	t.Waiting += s.Pacing + s.Waiting
	t.OldestWait = max(t.OldestWait, s.OldestWait)
	if s.LimitedBy != "" {
		t.LimitedBy[s.LimitedBy]++
	}
	if s.Rate.Count > 0 {
		t.Rate += float64(s.Rate.Count) / s.Rate.Per.Seconds()
	}
	t.Concurrency += s.Concurrency
	if !s.PausedUntil.IsZero() {
		t.Paused++
		t.PauseLeft = max(t.PauseLeft, s.PausedUntil.Sub(now))
	}
	t.RetryTokens += int64(s.RetryTokens)
	if s.Learned != nil {
		t.addLearned(*s.Learned)
	}
}

func (t *Totals) addLearned(l sluice.Learned) {
	t.Learning++
	if l.Blocked {
		t.Blocked++
	}
	if len(l.Units) == 0 {
		l.Units = []sluice.Learned{l}
	}
	for _, of := range l.Units {
		if of.Unit == "" {
			of.Unit = sluice.Calls
		}
		sum := t.Learned[of.Unit]
		if sum == nil {
			sum = new(sluice.Learned)
			t.Learned[of.Unit] = sum
		}
		sum.Pace += of.Pace
		sum.Rate += of.Rate
		sum.AcceptedRate += of.AcceptedRate
		sum.ThrottledRate += of.ThrottledRate
		sum.Share += of.Share
		sum.Peers += of.Peers
		sum.Concurrency += of.Concurrency
		sum.Throttled += of.Throttled
	}
}
