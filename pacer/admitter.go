package pacer

import (
	"time"

	"github.com/sluice-go/sluice/internal/queue"
)

// admitter is a Pacer as its queue sees it.
type admitter Pacer

var _ interface {
	queue.Admitter
	queue.Latch
	queue.HasUnitTime
} = (*admitter)(nil)

// Admit implements queue.Admitter.
func (r *admitter) Admit(now, due time.Duration, n int64) time.Duration {
	return r.schedule.Admit(now, due, n)
}

// Forecast implements queue.Admitter.
func (r *admitter) Forecast(now time.Duration, ahead int64) time.Duration {
	return r.schedule.Wait(now, ahead)
}

// UnitTime implements queue.HasUnitTime.
func (r *admitter) UnitTime() float64 { return r.schedule.UnitTime() }

// Close implements queue.Latch.
func (r *admitter) Close() (asleep int) {
	if next, used := r.lane.Close(); used {
		r.schedule.Took(next)
	}
	return 0
}

// Open implements queue.Latch.
func (r *admitter) Open(int) bool {
	next, interval, ok := r.schedule.Plain()
	return ok && r.lane.Open(next, interval, 0)
}
