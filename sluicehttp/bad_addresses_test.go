package sluicehttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A batch is work of eight workers on the addresses of a server without a limit, some of which are always
// throttled.
type batch struct {
	bad    []int64 // all are, if nil
	all    int64
	status int
	header []string

	last        time.Duration // when the last good one was answered
	lost, asked int           // good ones that were not, requests
	errs        []error
}

func (b *batch) run(t *testing.T) {
	isBad := func(n int64) bool { return b.bad == nil || slices.Contains(b.bad, n) }
	throttles := sluicetest.When(func(_ int, r *http.Request) bool {
		var n int64
		_, err := fmt.Sscanf(r.URL.Path, "/%d", &n)
		return err == nil && isBad(n)
	}, sluicetest.Status(b.status, b.header...))
	cfg := sluicehttp.Config{
		Key:   func(r *http.Request) string { return r.URL.Host },
		Retry: sluice.RetryPolicy{Attempts: 4, MaxElapsed: -1},
	}
	inWorld(t, cfg, layers(throttles, sluicetest.Delay(50*ms)), func(w *world) {
		var workers sync.WaitGroup
		var next, last, lost atomic.Int64
		var mu sync.Mutex
		for range 8 {
			workers.Go(func() {
				for n := next.Add(1) - 1; n < b.all; n = next.Add(1) - 1 {
					status, _, err := w.get(bg, fmt.Sprint("https://a.test/", n))
					switch {
					case isBad(n):
					case status != http.StatusOK || err != nil:
						lost.Add(1)
					default:
						last.Store(int64(w.now()))
					}
					if err != nil {
						mu.Lock()
						b.errs = append(b.errs, err)
						mu.Unlock()
					}
				}
			})
		}
		workers.Wait()
		b.last, b.lost, b.asked = time.Duration(last.Load()), int(lost.Load()), len(w.srv.Record().Requests)
	})
}

func row(from, n int64) (row []int64) {
	for i := range n {
		row = append(row, from+i)
	}
	return row
}

// Addresses that are always throttled cost a batch no others, also if they come together, so that at first
// they are all that the server is asked for. If there are as many as workers, the server is asked for
// nothing else until the first of them has given up.
func TestTransport_BadAddresses(t *testing.T) {
	const patience = 5 * time.Minute
	for _, c := range []struct {
		title string
		bad   []int64
		most  time.Duration
	}{
		{"one", []int64{2}, 20 * time.Second},
		{"five apart", []int64{10, 50, 90, 130, 170}, time.Minute},
		{"five in a row", row(0, 5), 3 * time.Minute},
		{"five in a row, later", row(20, 5), 3 * time.Minute},
		{"sixteen mixed", []int64{3, 7, 19, 20, 38, 51, 52, 60, 77, 91, 104, 130, 131, 151, 180, 199}, 2 * time.Minute},
		{"as many as workers", row(0, 8), patience + time.Minute},
		{"twice as many as workers", row(0, 16), patience + time.Minute},
	} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			for _, header := range [][]string{nil, {"Retry-After: 1"}} {
				t.Run(fmt.Sprint(c.title, ": ", status, header), func(t *testing.T) {
					b := batch{bad: c.bad, all: 200 + int64(len(c.bad)), status: status, header: header}
					b.run(t)
					t.Logf("%d of 200 are lost, and the last one came after %v", b.lost, b.last)
					if b.lost > 0 || b.last > c.most {
						t.Errorf("%d of 200 are lost, and the last one came after %v", b.lost, b.last)
					}
				})
			}
		}
	}
}

// A batch ends at a server that throttles everybody, soon after the first calls have given up.
func TestTransport_AllAddressesAreBad(t *testing.T) {
	b := batch{all: 200, status: http.StatusTooManyRequests, header: []string{"Retry-After: 1"}}
	b.run(t)
	for _, err := range b.errs {
		if !errors.Is(err, sluice.ErrServerWait) {
			t.Errorf("%v", err)
		}
	}
	t.Logf("%d requests", b.asked)
	if b.asked > 40 {
		t.Errorf("%d requests", b.asked)
	}
}
