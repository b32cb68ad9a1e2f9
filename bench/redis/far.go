package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	root "github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/bench/internal/server"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// # What does a gate lose because its Redis is far away?
//
// 512 callers of one limit of 5,000 a second, with a burst of 500, on a server behind a way that takes
// a time. The first row asks without a gate, all callers at the same time; the others ask through one,
// which asks in the order of its queue. Calls of the semaphore hold its 512 permits for 100 ms, and
// there are 1,024 callers.

// farCallers is the number of callers; farFor how long they call.
const (
	farCallers = 512
	farFor     = 3 * time.Second
)

// A farRow is one way to be limited: open returns a call, or an error.
type farRow struct {
	name    string
	most    float64 // calls a second
	callers int
	open    func(s *sluiceredis.Store) (call func(ctx context.Context) error, err error)
}

var farRate = limits.Rate{Count: 5000, Per: time.Second, Burst: 500}

var farRows = []farRow{
	{"Bucket.Take, no gate", 5000, farCallers, func(s *sluiceredis.Store) (func(context.Context) error, error) {
		b, err := s.Bucket("x/b", farRate)
		return func(ctx context.Context) error {
			for {
				r, err := b.Take(ctx, "k", 1)
				if err != nil || r.Allowed() {
					return err
				}
				if err := sleep(ctx, r.RetryAfter); err != nil {
					return err
				}
			}
		}, err
	}},
	{"gate, Bucket", 5000, farCallers, farGate(func(s *sluiceredis.Store) (limits.Limiter, error) {
		b, err := s.Bucket("x/b", farRate)
		return b.On("k"), err
	})},
	{"gate, Sliding", 5000, farCallers, farGate(func(s *sluiceredis.Store) (limits.Limiter, error) {
		w, err := s.Sliding("x/s", 500, 100*time.Millisecond)
		return w.On("k"), err
	})},
	{"gate, Fixed", 5000, farCallers, farGate(func(s *sluiceredis.Store) (limits.Limiter, error) {
		w, err := s.Fixed("x/f", sluiceredis.FixedConfig{Limit: 500, Window: 100 * time.Millisecond})
		return w.On("k"), err
	})},
	{"gate, Pacer", 5000, farCallers, farGate(func(s *sluiceredis.Store) (limits.Limiter, error) {
		return s.Pacer("p", limits.Rate{Count: 5000, Per: time.Second}, sluiceredis.PacerConfig{})
	})},
	{"gate, Pacer, Prefetch of 100 ms", 5000, farCallers, farGate(func(s *sluiceredis.Store) (limits.Limiter, error) {
		return s.Pacer("p", limits.Rate{Count: 5000, Per: time.Second}, sluiceredis.PacerConfig{Prefetch: 100 * time.Millisecond})
	})},
	{"gate, Semaphore of 512", 5120, 2 * farCallers, func(s *sluiceredis.Store) (func(context.Context) error, error) {
		m, err := s.Semaphore("m", 512, sluiceredis.SemaphoreConfig{})
		if err != nil {
			return nil, err
		}
		g, err := root.New(root.Config{Semaphore: m})
		return func(ctx context.Context) error {
			return g.Do(ctx, func(ctx context.Context) error { return sleep(ctx, 100*time.Millisecond) })
		}, err
	}},
}

// farGate returns how a gate with one limit is opened.
func farGate(open func(s *sluiceredis.Store) (limits.Limiter, error)) func(*sluiceredis.Store) (func(context.Context) error, error) {
	return func(s *sluiceredis.Store) (func(context.Context) error, error) {
		l, err := open(s)
		if err != nil {
			return nil, err
		}
		g, err := root.New(root.Config{Limits: []root.Limit{{Limiter: l}}})
		if err != nil {
			return nil, err
		}
		return g.Wait, nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// far measures all rows on a server of its own, and prints a table.
func far(ctx context.Context, w io.Writer) error {
	s, err := server.Start()
	if err != nil {
		return err
	}
	defer s.Stop()
	fmt.Fprintf(w, "| limit | round trip | calls/s | of the limit | server per call |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, trip := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
		addr, stop, err := delay(s.Addr, trip/2)
		if err != nil {
			return err
		}
		for _, row := range farRows {
			rate, cpu, err := row.measure(ctx, s, addr)
			if err != nil {
				stop()
				return fmt.Errorf("%s: %w", row.name, err)
			}
			fmt.Fprintf(w, "| %s | +%v | %.0f | %.0f %% | %.2f µs |\n", row.name, trip, rate, 100*rate/row.most, cpu)
		}
		stop()
	}
	return nil
}

// measure returns the rate of the calls that began, and the server's time for each, in µs.
func (r farRow) measure(ctx context.Context, s *server.Server, addr string) (rate, cpu float64, err error) {
	if err := s.Admin.FlushAll(ctx).Err(); err != nil {
		return 0, 0, err
	}
	client := goRedis(addr)
	defer client.Close()
	adapter, err := sluiceredis.NewGoRedis(client)
	if err != nil {
		return 0, 0, err
	}
	store, err := sluiceredis.New(adapter, sluiceredis.Config{})
	if err != nil {
		return 0, 0, err
	}
	call, err := r.open(store)
	if err != nil {
		return 0, 0, err
	}
	before, err := s.CPU(ctx)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, farFor)
	defer cancel()
	var n atomic.Int64
	var wg sync.WaitGroup
	for range r.callers {
		wg.Go(func() {
			for call(ctx) == nil {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	after, err := s.CPU(context.Background())
	calls := max(1, float64(n.Load()))
	return calls / farFor.Seconds(), (after - before).Seconds() * 1e6 / calls, err
}

// delay listens, and passes on what comes, d later, to addr and back, until stop is called.
func delay(addr string, d time.Duration) (listens string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", addr)
			if err != nil {
				a.Close()
				continue
			}
			go pass(a, b, d)
			go pass(b, a, d)
		}
	}()
	return l.Addr().String(), func() { l.Close() }, nil
}

// pass writes what comes from src to dst, d later.
func pass(dst, src net.Conn, d time.Duration) {
	type part struct {
		at   time.Time
		text []byte
	}
	parts := make(chan part, 4096)
	defer close(parts)
	go func() {
		defer dst.Close()
		for p := range parts {
			time.Sleep(time.Until(p.at))
			if _, err := dst.Write(p.text); err != nil {
				for range parts {
				}
				return
			}
		}
	}()
	for {
		text := make([]byte, 32<<10)
		n, err := src.Read(text)
		if err != nil {
			return
		}
		parts <- part{time.Now().Add(d), text[:n]}
	}
}
