package sluicegrpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicegrpc"
)

type tenantKey struct{}

// byTenant returns the claimant that a context names: users of weight 15, or one of a batch.
func byTenant(ctx context.Context, _, _ string) sluice.Claimant {
	name, _ := ctx.Value(tenantKey{}).(string)
	if name == "user" {
		return sluice.Claimant{Class: "users", ClassWeight: 15}
	}
	return sluice.Claimant{Name: name, Class: "batch"}
}

// A call of a user waits for at most two intervals behind 600 of a batch, and a throttled call pauses the
// gate of the target.
func TestConfig_Claimant(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Gate: tenth, Claimant: byTenant, Idempotent: idempotent}, func(w *world) {
		var all sync.WaitGroup
		for i := range 600 {
			ctx := context.WithValue(w.Context(), tenantKey{}, fmt.Sprint("tenant", i%7))
			all.Go(func() {
				if err := w.call(ctx); err != nil {
					w.Error(err)
				}
			})
		}
		for range 20 {
			time.Sleep(333 * time.Millisecond)
			came := time.Now()
			if err := w.call(context.WithValue(w.Context(), tenantKey{}, "user")); err != nil || time.Since(came) > 200*time.Millisecond {
				w.Errorf("%v after %v", err, time.Since(came))
			}
		}
		all.Wait()
		if s := w.stats(); s.Admitted != 620 {
			w.Errorf("%v", s)
		}
	})
}

func TestConfig_Claimant_Refused(t *testing.T) {
	inWorld(t, sluicegrpc.Config{Claimant: byTenant}, func(w *world) {
		w.unary = failing(1, failure(codes.ResourceExhausted, after(30*time.Second)))
		if err := w.call(context.WithValue(w.Context(), tenantKey{}, "a")); err != nil || time.Since(w.start) < 30*time.Second {
			w.Errorf("%v after %v", err, time.Since(w.start))
		}
		if s := w.stats(); s.Admitted != 2 || s.Learned == nil {
			w.Errorf("%v", s)
		}
	})
}

// A shared is a semaphore that nobody uses.
type shared struct{ limits.Semaphore }

func TestConfig_Claimant_Invalid(t *testing.T) {
	if _, err := sluicegrpc.New(sluicegrpc.Config{Claimant: byTenant, Gate: sluice.Config{Semaphore: shared{}}}); err == nil {
		t.Error("no error for a Claimant and a Semaphore")
	}
}
