package bench

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// BenchmarkGateObserver is BenchmarkGateDo with an observer: none, a counter, and a log
// in which these events are not wanted.
func BenchmarkGateObserver(b *testing.B) {
	log := observe.NewLogger(slog.New(slog.DiscardHandler))
	var events atomic.Int64
	ctx := context.Background()
	call := func(context.Context) error { return nil }
	for _, o := range []struct {
		name     string
		observer func(sluice.Event)
	}{
		{"none", nil},
		{"counter", func(sluice.Event) { events.Add(1) }},
		{"log", log},
	} {
		b.Run(o.name, func(b *testing.B) {
			g, err := sluice.New(sluice.Config{
				Concurrency: 1024, Rate: sluice.Rate{Count: perNano, Per: time.Second}, Observer: o.observer,
			})
			if err != nil {
				b.Fatal(err)
			}
			each(b, func(n int) {
				got := 0
				for range n {
					if g.Do(ctx, call) == nil {
						got++
					}
				}
				grants(b, got, n)
			})
		})
	}
}
