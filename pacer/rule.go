package pacer

import (
	"time"

	"github.com/sluice-go/sluice/internal/queue"
)

// rule is a Pacer as its queue sees it.
type rule Pacer

var _ interface {
	queue.Rule
	queue.Latch
	queue.HasUnit
} = (*rule)(nil)

// Admit implements queue.Rule.
func (r *rule) Admit(now, due time.Duration, n int64) time.Duration {
	return r.schedule.Admit(now, due, n)
}

// Forecast implements queue.Rule.
func (r *rule) Forecast(now time.Duration, ahead int64) time.Duration {
	return r.schedule.Wait(now, ahead)
}

// Unit implements queue.HasUnit.
func (r *rule) Unit() float64 { return r.schedule.Unit() }

// Close implements queue.Latch.
func (r *rule) Close() (asleep int) {
	if next, used := r.lane.Close(); used {
		r.schedule.Took(next)
	}
	return 0
}

// Open implements queue.Latch.
func (r *rule) Open(int) bool {
	next, interval, ok := r.schedule.Plain()
	return ok && r.lane.Open(next, interval, 0)
}
