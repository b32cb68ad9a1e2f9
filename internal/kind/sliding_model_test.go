package kind

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// slidingModel is a sliding window that is slow and obvious: the time of each single call,
// recounted at each question.
type slidingModel struct {
	calls []time.Duration
	last  time.Duration
	merge bool // a new time beyond as many as the limit makes one of the oldest two
}

func (m *slidingModel) at(now time.Duration, r Sliding) time.Duration {
	m.last = max(m.last, now)
	m.calls = slices.DeleteFunc(m.calls, func(at time.Duration) bool { return at+r.Window <= m.last })
	return m.last
}

func (m *slidingModel) take(now time.Duration, r Sliding, n int64) limits.Result {
	now = m.at(now, r)
	res := limits.Result{Limit: r.Limit}
	used := func(at time.Duration) (sum int64) {
		for _, call := range m.calls {
			if call+r.Window > at {
				sum++
			}
		}
		return sum
	}
	switch {
	case n > r.Limit:
		res.RetryAfter = limits.Never
	case n == 0 || used(now)+n <= r.Limit:
		m.add(now, r.Limit, n)
	default:
		for _, call := range m.calls { // room comes when a call starts, and only then
			if used(call+r.Window)+n <= r.Limit {
				res.RetryAfter = min(call+r.Window-now, limits.Never-1)
				break
			}
		}
	}
	res.Remaining = max(0, r.Limit-used(now))
	for _, call := range m.calls {
		res.ResetAfter = max(res.ResetAfter, call+r.Window-now)
	}
	return res
}

func (m *slidingModel) add(now time.Duration, limit, n int64) {
	instants := slices.Compact(slices.Clone(m.calls))
	full := m.merge && int64(len(instants)) >= limit && !slices.Contains(instants, now)
	for range n {
		m.calls = append(m.calls, now)
	}
	if full && n > 0 {
		oldest := m.calls[0]
		next := m.calls[slices.IndexFunc(m.calls, func(at time.Duration) bool { return at > oldest })]
		for i := range m.calls {
			m.calls[i] = max(m.calls[i], next)
		}
	}
}

func (m *slidingModel) adjust(now time.Duration, r Sliding, delta int64, age time.Duration) {
	now = m.at(now, r)
	if delta > 0 {
		m.add(now, r.Limit, delta)
		return
	}
	for i := len(m.calls) - 1; i >= 0 && delta < 0; i-- {
		if m.calls[i] <= now-age {
			m.calls = slices.Delete(m.calls, i, i+1)
			delta++
		}
	}
}

// FuzzSliding runs a random history against a sliding window and its model and compares
// every answer; then it counts what was let through in every window.
func FuzzSliding(f *testing.F) {
	f.Add([]byte{3, 2, 0, 1, 0, 1, 0, 1, 4, 2, 0, 1, 4, 9, 0, 1})
	f.Add([]byte{1, 0, 3, 2, 4, 0, 3, 1, 4, 0, 3, 3, 0, 1, 2, 4, 0, 1, 4, 4, 0, 1})                     // debt of many runs
	f.Add([]byte{5, 3, 0, 5, 4, 200, 5, 3, 0, 1, 5, 255, 0, 2, 6, 1, 0, 1})                             // steps back, new limits
	f.Add([]byte{2, 0, 0, 1, 4, 3, 0, 1, 4, 3, 0, 1, 2, 0, 20, 1, 0, 1, 4, 5, 0, 1, 2, 0, 30, 0, 0, 2}) // settled
	f.Add([]byte{4, 1, 0, 1, 4, 0, 0, 1, 4, 0, 0, 2, 2, 3, 0, 1, 2, 1, 7, 0, 0, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			t.Skip("long enough")
		}
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		limits := []int64{1, 2, 3, 5, 17, 100}
		windows := []time.Duration{10, 100, 1, 1000}
		r := Sliding{limits[next(len(limits))], windows[next(len(windows))]}
		var h SlidingState
		m := slidingModel{merge: true}
		var now time.Duration
		var granted []time.Duration // under the present rule, and used
		returned := false
		most := r.Limit
		for len(data) > 0 {
			op := next(8)
			name := fmt.Sprintf("%d per %d, at %d: op %d", r.Limit, int(r.Window), int(now), op)
			switch op {
			case 0, 1:
				n := int64(next(7))
				got, want := r.Take(&h, now, n), m.take(now, r, n)
				if got != want {
					t.Fatalf("%s: take %d: %+v, model says %+v", name, n, got, want)
				}
				if got.Allowed() {
					granted = append(granted, slices.Repeat([]time.Duration{h.last}, int(n))...)
				}
			case 2:
				// What one of those admitted did not use, or any call anything.
				n, age := int64(next(9)), time.Duration(next(40))
				if i := len(granted) - 1 - next(10); age >= 20 && i >= 0 {
					age, n = h.last-granted[i], 1
					granted = slices.Delete(granted, i, i+1)
				} else if n > 0 {
					returned = true
				}
				r.Adjust(&h, now, -n, age)
				m.adjust(now, r, -n, age)
			case 3:
				n := int64(next(9))
				r.Adjust(&h, now, n, 0)
				m.adjust(now, r, n, 0)
			case 4:
				now += time.Duration(next(20))
			case 5:
				now += time.Duration(next(256) - 100) // back, perhaps
			case 6:
				r.Advance(&h, now)
				m.at(now, r)
				r.Limit = limits[next(len(limits))]
				r.Window = windows[next(len(windows))]
				most = max(most, r.Limit)
				granted, returned = nil, false
			case 7:
				h.clear()
				m.calls = nil
				granted, returned = nil, false
			}
			if h.n > int(most) || len(h.ring) > max(int(most), minRing) {
				t.Fatalf("%s: %d runs in %d places", name, h.n, len(h.ring))
			}
			if got, want := r.Take(&h, now, 0), m.take(now, r, 0); got != want {
				t.Fatalf("%s: peek %+v, model says %+v", name, got, want)
			}
		}
		if !returned {
			atMost(t, granted, r)
		}
	})
}
