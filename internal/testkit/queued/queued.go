// Package queued makes callers of tests wait, in order, for a limit that does not wait itself.
package queued

import (
	"context"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A Queue is a gate whose calls end immediately.
type Queue struct{ gate *sluice.Gate }

// For returns a gate with the only limit l.
func For(l limits.Limiter) Queue {
	return Queue{limits.Must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: l}}}))}
}

func (q Queue) Acquire(ctx context.Context, n int64) error {
	return q.AcquireWithin(ctx, n, limits.Never)
}

func (q Queue) AcquireWithin(ctx context.Context, n int64, longest time.Duration) error {
	p, err := q.gate.AcquireWithin(ctx, n, longest)
	p.Release()
	return err
}

func (q Queue) Wait(ctx context.Context) error { return q.gate.Wait(ctx) }

func (q Queue) TryAcquire(n int64) bool {
	p, ok := q.gate.TryAcquire(n)
	p.Release()
	return ok
}

// Waiting returns how many callers wait.
func (q Queue) Waiting() int { s := q.gate.Stats(); return int(s.Pacing + s.Waiting) }
