package sluicehttp_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// lender lends permits that it can lose.
type lender struct {
	mu       sync.Mutex
	lent     []chan struct{}
	released int
}

func (l *lender) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := make(chan struct{})
	l.lent = append(l.lent, lost)
	return lease{l, lost}, nil
}

type lease struct {
	l    *lender
	lost chan struct{}
}

func (l lease) Lost() <-chan struct{} { return l.lost }

func (l lease) Release() {
	l.l.mu.Lock()
	defer l.l.mu.Unlock()
	l.l.released++
}

// A permit that another machine has lent and lost ends its attempt, which is then
// made again, and the reading of an answer.
func TestTransport_LostLease(t *testing.T) {
	l := new(lender)
	lose := func(i int) func() {
		return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			close(l.lent[i])
		}
	}
	cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Semaphore: l}}
	faults := layers(sluicetest.On(1, sluicetest.Delay(limits.Never)), sluicetest.Stall(2, limits.Never), sluicetest.Reply(200, "hello"))
	inWorld(t, cfg, faults, func(w *world) {
		time.AfterFunc(10*time.Second, lose(0))
		time.AfterFunc(20*time.Second, lose(1))
		ctx, report := sluicehttp.WithReport(bg)
		resp, err := w.client.Do(request(t, ctx, "GET", "http://a.test/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if first := report.Last().Attempts[0]; !errors.Is(first.Err, limits.ErrLeaseLost) || first.Took != 10*time.Second {
			t.Errorf("the first attempt ended with %v after %v", first.Err, first.Took)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != "he" || err == nil || w.now() != 20*time.Second {
			t.Errorf("read %q, %v at %v", got, err, w.now())
		}
		resp.Body.Close()
		if l.released != 2 || inFlight(w.rt) != 0 {
			t.Errorf("%d leases were released, %d are in flight", l.released, inFlight(w.rt))
		}
		// One that is not lost leaves no goroutine behind that waits for that.
		w.client.CloseIdleConnections()
		synctest.Wait()
		before := runtime.NumGoroutine()
		resp, err = w.client.Get("http://b.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines more than before", after-before)
		}
	})
}
