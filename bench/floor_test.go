package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/semaphore"
)

// The benchmarks of this file are the cheapest programs that do what those of the same names
// must, for goals that are not reached: they are what remains if all decisions cost nothing.

// floorTransport counts calls in flight until their bodies are read or closed, keeps a list of
// them and looks at each field of a header.
type floorTransport struct {
	base     http.RoundTripper
	inFlight atomic.Int64
	next     atomic.Int64
	mu       sync.Mutex
	held     floorBody
	epoch    time.Time
}

type floorBody struct {
	io.ReadCloser
	t          *floorTransport
	since      time.Time
	over       atomic.Bool
	prev, next *floorBody
}

func (f *floorTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	now := int64(time.Since(f.epoch))
	f.inFlight.Add(1)
	for slot := f.next.Load(); !f.next.CompareAndSwap(slot, now); slot = f.next.Load() {
	}
	resp, err := f.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if n, _ := floorWalk(resp.Header); n > 0 {
		return nil, http.ErrHandlerTimeout
	}
	b := &floorBody{ReadCloser: resp.Body, t: f, since: time.Now()}
	f.mu.Lock()
	b.prev, b.next = f.held.prev, &f.held
	b.prev.next, f.held.prev = b, b
	f.mu.Unlock()
	resp.Body = b
	return resp, nil
}

func (b *floorBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.over.CompareAndSwap(false, true) {
		b.t.mu.Lock()
		b.prev.next, b.next.prev = b.next, b.prev
		b.t.mu.Unlock()
		b.t.inFlight.Add(-1)
	}
	return n, err
}

func BenchmarkFloorTransportBare(b *testing.B) {
	f := &floorTransport{base: inMemory{ordinary}, epoch: time.Now()}
	f.held.prev, f.held.next = &f.held, &f.held
	b.Run("client", func(b *testing.B) { roundTrips(b, (&http.Client{Transport: f.base}).Do) })
	b.Run("floor", func(b *testing.B) { roundTrips(b, (&http.Client{Transport: f}).Do) })
}

// floorWalk returns the number of fields that begin like one about limits, and the sum of their numbers.
func floorWalk(header http.Header) (n int, sum int64) {
	for key, values := range header {
		if len(key) < 9 || key[0] != 'X' || key[2] != 'R' || key[4] != 't' {
			continue
		}
		n++
		if c := values[0][0]; '0' <= c && c <= '9' { // an error would be allocated
			v, _ := strconv.ParseInt(values[0], 10, 64)
			sum += v
		}
	}
	return n, sum
}

// floorLimit is as large as what Parse returns for a limit.
type floorLimit struct {
	names [4]string
	times [2]time.Time
	rest  [10]int64
}

func BenchmarkFloorParse(b *testing.B) {
	header := ordinaryHeader()
	for name, value := range map[string]string{"Limit": "5000", "Remaining": "4999", "Used": "1", "Reset": "1795264200", "Resource": "core"} {
		header.Set("X-RateLimit-"+name, value)
	}
	var kept *floorLimit
	b.ReportAllocs()
	for b.Loop() {
		n, sum := floorWalk(header)
		date := floorDate(header["Date"][0])
		if n != 5 || date.Year() != 2026 {
			b.Fatal(n, date)
		}
		kept = &floorLimit{names: [4]string{"core"}, times: [2]time.Time{date}, rest: [10]int64{sum}}
	}
	sink.Store(kept.rest[0])
}

// floorDate reads "Sat, 21 Nov 2026 12:00:00 GMT" and checks nothing.
func floorDate(s string) time.Time {
	two := func(i int) int { return 10*int(s[i]-'0') + int(s[i+1]-'0') }
	return time.Date(100*two(12)+two(14), time.November, two(5), two(17), two(20), two(23), 0, time.UTC)
}

// BenchmarkFloorSemaphorePair is the floor of SemaphorePair in two functions that are called,
// one of which looks at a context.
func BenchmarkFloorSemaphorePair(b *testing.B) {
	f, ctx := new(floorSemaphore), context.Background()
	for b.Loop() {
		if !f.acquireCtx(ctx) || !f.releaseCalled() {
			b.Fatal("refused")
		}
	}
}

//go:noinline
func (f *floorSemaphore) acquireCtx(ctx context.Context) bool {
	return ctx.Err() == nil && f.acquire()
}

//go:noinline
func (f *floorSemaphore) releaseCalled() bool { return f.release() }

// floorCrowd is a semaphore of one permit that counts those that wait and wakes one of them
// with each release. It serves in order and forgets nobody, unless a context ends.
type floorCrowd struct {
	free atomic.Int64
	room chan struct{}
}

func (f *floorCrowd) Acquire(ctx context.Context, _ int64) error {
	if f.free.Add(-1) >= 0 {
		return nil
	}
	select {
	case <-f.room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *floorCrowd) TryAcquire(int64) bool { return f.free.CompareAndSwap(1, 0) }

func (f *floorCrowd) Release(int64) {
	if f.free.Add(1) <= 0 {
		f.room <- struct{}{}
	}
}

func BenchmarkFloorSemaphoreCrowd(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, g := range []int{64, 4096, 16_384} {
		b.Run(fmt.Sprint(g), func(b *testing.B) {
			b.Run("floor", func(b *testing.B) {
				f := &floorCrowd{room: make(chan struct{}, 8)}
				f.free.Store(1)
				pairs(b, g, ctx, f)
			})
			b.Run("sluice", func(b *testing.B) { pairs(b, g, ctx, semaphore.NewWeighted(1)) })
			b.Run("chan+ctx", func(b *testing.B) { contendChanCtx(b, g, ctx) })
		})
	}
}
