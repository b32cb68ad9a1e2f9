package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live"
)

// BenchmarkLive is one second of the page of observe/live: 1,000 gates, of which 500 have
// admitted calls and 100 have callers that wait, sampled and sent to 10 viewers. core-% is the
// processor time, as a share of one core at the default of one sample per second; the viewers,
// which do nothing but read, are in the same process and count. With queries each
// viewer searches for something else, so nothing is shared but the sample. Without viewers
// there is no goroutine and nothing is sampled: TestHandler_Events.
func BenchmarkLive(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	var gates []*sluice.Gate
	for i := range 1000 {
		g := limits.Must(sluice.New(sluice.Config{
			Name: fmt.Sprintf("https://host-%03d.example.com", i), Concurrency: 8, Rate: sluice.Rate{Count: perNano, Per: time.Second},
		}))
		gates = append(gates, g)
		for range i % 2 * 10 {
			_ = g.Do(ctx, func(context.Context) error { return nil })
		}
		if i%10 == 0 {
			g.PauseUntil(time.Now().Add(time.Hour), "429 Too Many Requests")
			for range 3 {
				callers.Go(func() { _ = g.Wait(ctx) })
			}
		}
	}
	defer callers.Wait()
	defer cancel()
	for _, queries := range []bool{false, true} {
		name := "viewers=10"
		if queries {
			name += ",queries=10"
		}
		b.Run(name, func(b *testing.B) { watchLive(b, gates, queries) })
	}
}

func watchLive(b *testing.B, gates []*sluice.Gate, queries bool) {
	const every = 100 * time.Millisecond // ten times as often, to measure for less long
	page := live.New(live.FromGates(gates...))
	page.Every = every
	s := httptest.NewServer(page)
	defer s.Close()
	var from []*bufio.Reader
	var size int
	for i := range 10 {
		address := s.URL + "?events=1"
		if queries {
			address += fmt.Sprintf("&q=%d", i)
		}
		resp, err := http.Get(address)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		from = append(from, bufio.NewReaderSize(resp.Body, 256<<10))
	}
	next := func() {
		for _, r := range from {
			line, err := r.ReadSlice('\n')
			if err != nil || !bytes.HasPrefix(line, []byte("data: ")) {
				b.Fatalf("%.100q: %v", line, err)
			}
			size += len(line)
			if _, err := r.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
	next() // what each gets when it comes
	size = 0
	before := machine.CPUTime()
	n := 0
	for b.Loop() {
		next()
		n++
	}
	used := machine.CPUTime() - before
	b.ReportMetric(100*used.Seconds()/float64(n), "core-%")
	b.ReportMetric(float64(size)/float64(n)/10/1000, "kB/viewer")
}
