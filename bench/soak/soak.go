package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A part is one thing that soaks.
type part struct {
	name, about string
	real        bool // it has processes and sockets, and is not in a bubble
	run         func(s *soak, t *tally)
}

var parts = []part{
	{"gates", "two gates of one parent: Do, Wait, Acquire and TryAcquire, canceled, while rate, concurrency and pauses change", false, soakGates},
	{"rate", "one gate at a steady rate", false, soakRate},
	{"transport", "`sluicehttp` at a server that throttles, fails, stalls and cuts connections", false, soakTransport},
	{"peers", "three gates that share a limit that none of them knows", false, soakPeers},
	{"batch", "batches that are stopped and resumed from their logs", false, soakBatch},
	{"redis", "a bucket and a semaphore in a Redis, for two programs, whose connections are cut", true, soakRedis},
	{"proxy", "`sluice proxy` in front of such a server", true, soakProxy},
}

// A soak is one run of some parts.
type soak struct {
	seed   uint64
	lasts  time.Duration
	bubble bool
	dir    string // for files
	proxy  string // the program
	began  time.Time
	took   time.Duration
	rows   []*tally
	heaps  []uint64 // in use, while it ran
}

// A tally is what has happened in one part.
type tally struct {
	part                        part
	calls, ok, failed, canceled atomic.Int64
	mu                          sync.Mutex
	broken                      map[string]int // guarantees, and how often
	notes                       []string
	skipped                     string
	last                        atomic.Int64 // when a call last started
	longest                     atomic.Int64 // between two starts
	soak                        *soak
}

// break records that a guarantee was broken.
func (t *tally) breaks(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = map[string]int{}
	}
	if len(t.broken) < 20 {
		t.broken[fmt.Sprintf(format, args...)]++
	}
}

// notes a figure for the table.
func (t *tally) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// ended counts a call by its result.
func (t *tally) ended(err error) {
	t.calls.Add(1)
	switch {
	case err == nil:
		t.ok.Add(1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		t.canceled.Add(1)
	default:
		t.failed.Add(1)
	}
}

// started notes that a call starts, for the longest standstill.
func (t *tally) started() {
	now := int64(time.Since(t.soak.began))
	gap := now - t.last.Swap(now)
	for {
		longest := t.longest.Load()
		if gap <= longest || t.longest.CompareAndSwap(longest, gap) {
			return
		}
	}
}

// over reports whether the time has passed.
func (s *soak) over() bool { return time.Since(s.began) >= s.lasts }

// sleep sleeps for d, but not beyond the end.
func (s *soak) sleep(d time.Duration) { time.Sleep(min(d, max(0, s.lasts-time.Since(s.began)))) }

// dice returns the random numbers of one goroutine.
func (s *soak) dice(which uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, which)) }

// scale returns a time that is short on the real clock, and long in a bubble, in which a day passes.
func (s *soak) scale(d time.Duration) time.Duration {
	if s.bubble {
		return 100 * d
	}
	return d
}

// run runs the parts at the same time, and measures meanwhile.
func (s *soak) run(chosen []part) {
	s.began = time.Now()
	var all sync.WaitGroup
	for _, p := range chosen {
		t := &tally{part: p, soak: s}
		s.rows = append(s.rows, t)
		if p.real && s.bubble {
			t.skipped = "needs real sockets"
			continue
		}
		all.Go(func() { p.run(s, t) })
	}
	all.Go(func() {
		for range 10 {
			s.sleep(s.lasts / 10)
			s.heaps = append(s.heaps, measure().heap)
		}
	})
	all.Wait()
	s.took = time.Since(s.began)
}

// workers runs f in n goroutines until they return.
func (s *soak) workers(n int, first uint64, f func(r *rand.Rand)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(s.dice(first + uint64(i))) })
	}
	all.Wait()
}

// Use is what a process holds.
type use struct {
	heap              uint64
	goroutines, files int
}

func measure() use {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := use{heap: m.HeapAlloc, goroutines: runtime.NumGoroutine()}
	list, _ := os.ReadDir("/proc/self/fd")
	for _, file := range list {
		// Timers of package internal/alarm are kept: as many as were in use at the same time.
		if is, _ := os.Readlink("/proc/self/fd/" + file.Name()); is != "anon_inode:[timerfd]" {
			u.files++
		}
	}
	return u
}

// settle measures once goroutines that were ended are gone, for at most 10 s.
func settle(before use) (after use) {
	for range 100 {
		if after = measure(); after.within(before) == "" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return after
}

// spare is how much more memory may be in use at the end: what packages keep for good.
const spare = 8 << 20

// within returns what u has more than before, "" if nothing.
func (u use) within(before use) string {
	switch {
	case u.goroutines > before.goroutines:
		return fmt.Sprintf("%d goroutines, %d before", u.goroutines, before.goroutines)
	case u.files > before.files+2: // the poller's: epoll and eventfd
		return fmt.Sprintf("%d files, %d before", u.files, before.files)
	case u.heap > before.heap+spare:
		return fmt.Sprintf("%d KiB in use, %d before", u.heap>>10, before.heap>>10)
	}
	return ""
}

// print prints the table and reports whether all was well.
func (s *soak) print(out io.Writer, before, after use) (ok bool) {
	ok = true
	fmt.Fprintf(out, "| part | calls | ok | failed by the server | canceled or too late | longest standstill | broken | |\n| --- | --: | --: | --: | --: | --: | --: | --- |\n")
	for _, t := range s.rows {
		if t.skipped != "" {
			fmt.Fprintf(out, "| %s | – | | | | | | left out: %s |\n", t.part.name, t.skipped)
			continue
		}
		broken := 0
		for _, n := range t.broken {
			broken += n
		}
		ok = ok && broken == 0 && t.calls.Load() > 0
		slices.Sort(t.notes)
		note := t.part.about
		for _, n := range t.notes {
			note += "; " + n
		}
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %v | %d | %s |\n", t.part.name, t.calls.Load(), t.ok.Load(), t.failed.Load(),
			t.canceled.Load(), time.Duration(t.longest.Load()).Round(time.Millisecond), broken, note)
	}
	kind := "on the real clock"
	if s.bubble {
		kind = "simulated"
	}
	fmt.Fprintf(out, "\n%v %s, seed %d. Before and after: %d and %d KiB of memory, %d and %d goroutines, %d and %d files. Memory at each tenth, in KiB:", s.took.Round(time.Second), kind, s.seed,
		before.heap>>10, after.heap>>10, before.goroutines, after.goroutines, before.files, after.files)
	for _, h := range s.heaps {
		fmt.Fprintf(out, " %d", h>>10)
	}
	fmt.Fprintln(out)
	for _, t := range s.rows {
		for what, n := range t.broken {
			fmt.Fprintf(out, "BROKEN: %s: %s (%d times)\n", t.part.name, what, n)
		}
	}
	if more := after.within(before); more != "" {
		ok = false
		fmt.Fprintln(out, "LEFT OVER:", more)
	}
	return ok
}
