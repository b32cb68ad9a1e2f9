package batch

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// starts tells a batch when an attempt starts, and when it has failed.
type starts struct{ base http.RoundTripper }

func (s starts) RoundTrip(req *http.Request) (*http.Response, error) {
	arrive := batch.StartAttempt(req.Context())
	resp, err := s.base.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		arrive()
	}
	return resp, err
}

// getBeside gets 205 addresses of a server without a limit, eight at once, through the gates of a job of requests. The
// bad ones answer 429 with a second to wait, and the others after 50 ms. It returns when the last of these came, and
// how many were lost.
func getBeside(t *testing.T, bad []int) (last time.Duration, lost int) {
	throttles := sluicetest.When(func(_ int, r *http.Request) bool {
		return slices.ContainsFunc(bad, func(n int) bool { return r.URL.Path == fmt.Sprint("/", n) })
	}, sluicetest.Delay(time.Millisecond), sluicetest.Status(http.StatusTooManyRequests, "Retry-After: 1"))
	srv := sluicetest.NewServer(throttles, sluicetest.Delay(50*time.Millisecond))
	defer srv.Close()
	base := srv.Transport()
	defer base.CloseIdleConnections()
	gate := limits.Must(sluice.New(sluice.Config{Concurrency: 8}))
	rt := limits.Must(sluicehttp.New(starts{base}, sluicehttp.Config{
		Gate:  sluice.Config{Parent: gate},
		Key:   func(r *http.Request) string { return r.URL.Host },
		Retry: sluice.RetryPolicy{Attempts: 4, MaxElapsed: -1},
	}))
	items := func(yield func(int) bool) {
		for n := 0; n < 205 && yield(n); n++ {
		}
	}
	began := time.Now()
	for r := range batch.Map(t.Context(), gate, items, func(ctx context.Context, n int) (time.Duration, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint("https://a.test/", n), nil)
		if err != nil {
			return 0, err
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return time.Since(began), err
	}, batch.Config[int]{ExternalGate: true, Group: func(int) string { return "a.test" }}) {
		switch {
		case r.Err != nil && slices.Contains(bad, r.In):
		case r.Err != nil:
			lost++
		default:
			last = max(last, r.Out)
		}
	}
	return last, lost
}

// Without a bad address it takes 1.3 s. It took 12.5 s with five in a row, 138 s if they came after 30 good ones, and
// 4.6 s in the mean of 50 orders: each paused the others again and again.
func TestJob_BadAddresses(t *testing.T) {
	take := func(bad []int) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			last, lost := getBeside(t, bad)
			if took = last; lost > 0 {
				t.Errorf("bad %v: %d of 200 are lost", bad, lost)
			}
		})
		return took
	}
	for _, c := range []struct {
		bad  []int
		most time.Duration
	}{
		{nil, 1400 * time.Millisecond},
		{[]int{2}, 3 * time.Second},
		{[]int{0, 2, 4, 6, 8}, 5 * time.Second},
		{[]int{20, 21, 22, 23, 24}, 5 * time.Second},
		{[]int{30, 31, 32, 33, 34}, 9 * time.Second},
		{[]int{2, 43, 84, 125, 166}, 3 * time.Second},
	} {
		if took := take(c.bad); took > c.most {
			t.Errorf("bad %v: the last of 200 came after %v, want at most %v", c.bad, took, c.most)
		}
	}
	const orders = 50
	var sum, longest time.Duration
	for seed := range uint64(orders) {
		took := take(rand.New(rand.NewPCG(seed, 1)).Perm(205)[:5])
		sum, longest = sum+took, max(longest, took)
	}
	t.Logf("%d orders: the last of 200 came after %v in the mean and %v at most", orders, sum/orders, longest)
	if sum/orders > 3500*time.Millisecond || longest > 8*time.Second {
		t.Errorf("%d orders: the last of 200 came after %v in the mean, want at most 3.5 s, and %v at most, want 8 s", orders, sum/orders, longest)
	}
}
