package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
)

// A priced work is one of which it matters what it costs, or whether the rate is
// delivered although the machine is not ours alone.
type priced struct {
	name                    string
	limiters, callers, rate int
	load                    string
	dur                     time.Duration
}

// The loads.
const (
	busy   = "busy"   // two processes next to, which never sleep
	stalls = "stalls" // the process is stopped for up to 40 ms, on average twice a second
)

var works = []priced{
	{"50 limiters, 1,000/s each", 50, 1, 1000, "", time.Second},
	{"50 limiters, 100/s each", 50, 1, 100, "", 3 * time.Second},
	{"64 callers, 5,000/s", 1, 64, 5000, "", time.Second},
	{"1 caller, 200/s", 1, 1, 200, "", 3 * time.Second},
	{"1 caller, 1,000/s", 1, 1, 1000, "", time.Second},
	{"1 caller, 20,000/s", 1, 1, 20_000, "", time.Second},
	{"1 caller, 100,000/s", 1, 1, 100_000, "", time.Second},
	{"64 callers, 100,000/s", 1, 64, 100_000, "", time.Second},
	{"busy: 64 callers, 1,000/s", 1, 64, 1000, busy, 3 * time.Second},
	{"busy: 1 caller, 1,000/s", 1, 1, 1000, busy, 3 * time.Second},
	{"stalls: 1 caller, 200/s", 1, 1, 200, stalls, 5 * time.Second},
	{"stalls: 1 caller, 1,000/s", 1, 1, 1000, stalls, 5 * time.Second},
	{"stalls: 64 callers, 1,000/s", 1, 64, 1000, stalls, 5 * time.Second},
}

// priced returns the works of one run, each for all libraries.
func (o *options) priced() (all []order) {
	for _, w := range works {
		if !strings.Contains(w.name, o.works) {
			continue
		}
		for _, library := range o.libs {
			all = append(all, order{Work: w.name, Library: library, Callers: w.callers, Rate: w.rate, Dur: w.dur, Limiters: w.limiters, Load: w.load})
		}
	}
	return all
}

// A priceGoal is what should be so of the default of sluice in a priced work, next to the
// other libraries in the same run.
type priceGoal struct {
	name  string
	calm  bool // only runs of both in which the machine did not stall show it, see stalled
	at    func(c results.Cell) bool
	least func(c results.Cell, rivals []results.Cell) (got string, reached bool)
}

func isPriced(c results.Cell) bool { return c.Work != "" }

func (g priceGoal) judge(c results.Cell, cells []results.Cell) (got string, reached, judged bool) {
	if c.Library != "sluice" || !isPriced(c) || !g.at(c) {
		return "", false, false
	}
	got, reached = g.least(c, othersAt(c, cells))
	return got, reached, true
}

// othersAt returns the cells of other libraries at the work of c.
func othersAt(c results.Cell, cells []results.Cell) (others []results.Cell) {
	for _, r := range cells {
		if r.Work == c.Work && !strings.HasPrefix(r.Library, "sluice") {
			others = append(others, r)
		}
	}
	return others
}

func loaded(c results.Cell) bool { return strings.Contains(c.Work, ":") }

// rival returns the cell of a library, or the zero Cell.
func rival(name string, rivals []results.Cell) results.Cell {
	for _, r := range rivals {
		if r.Library == name {
			return r
		}
	}
	return results.Cell{}
}

var priceGoals = []priceGoal{
	{"delivers as much as the best rival, less 0.5 %", false, func(results.Cell) bool { return true }, func(c results.Cell, rivals []results.Cell) (string, bool) {
		best := 0.0
		for _, r := range rivals {
			best = max(best, r.Ratio())
		}
		best = min(best, 1)
		return fmt.Sprintf("%.2f %%, the best %.2f %%", 100*c.Ratio(), 100*best), c.Ratio() >= best-0.005
	}},
	{"delivers 99.5 %", false, loaded, func(c results.Cell, _ []results.Cell) (string, bool) {
		return fmt.Sprintf("%.2f %%", 100*c.Ratio()), c.Ratio() >= 0.995
	}},
	{"takes at most 1.1 × the processor time of xtime, or 15 % if that delivers less than 90 %", true, func(c results.Cell) bool { return !loaded(c) }, func(c results.Cell, rivals []results.Cell) (string, bool) {
		x := rival("xtime", rivals)
		most := 1.1 * x.CPU
		if x.Ratio() < 0.9 {
			most = 0.15
		}
		return fmt.Sprintf("%.1f %%, of xtime %.1f %%", 100*c.CPU, 100*x.CPU), c.CPU <= most
	}},
	{"takes at most 10 % of a processor", true, func(c results.Cell) bool { return c.Limiters == 50 }, func(c results.Cell, _ []results.Cell) (string, bool) {
		return fmt.Sprintf("%.1f %%", 100*c.CPU), c.CPU <= 0.1
	}},
	{"is as even as xtime: error p90 ≤ 1.1 ×", true, func(c results.Cell) bool { return !loaded(c) }, func(c results.Cell, rivals []results.Cell) (string, bool) {
		x := rival("xtime", rivals)
		return fmt.Sprintf("%.0f µs, of xtime %.0f µs", c.ErrP90, x.ErrP90), c.ErrP90 <= 1.1*x.ErrP90
	}},
}

// priceTable shows the priced works.
func priceTable(b *strings.Builder, cells []results.Cell) {
	b.WriteString("| work | library | delivered ÷ allowed | CPU | error p50 | p90 | p99, µs | ahead, ms | refused: 1 s | 10 s | bucket | quiet runs | stall, ms |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range cells {
		if isPriced(c) {
			fmt.Fprintf(b, "| %s | %s | %.1f %% | %.1f %% | %s | %s | %s | %.1f | %.2f %% | %.2f %% | %.2f %% | %d of %d | %.0f |\n",
				c.Work, c.Library, 100*c.Ratio(), 100*c.CPU, number(c.ErrP50), number(c.ErrP90), number(c.ErrP99), c.Ahead/1000,
				100*c.Refused.Second, 100*c.Refused.Ten, 100*c.Refused.Bucket, c.Quiet, c.Runs, c.Stall)
		}
	}
}

// refused returns how many of the calls at t servers would reject whose limit is rate ÷
// 0.99: calls at exactly equal intervals are never rejected.
func refused(t []time.Duration, rate int) results.Refused {
	if len(t) == 0 {
		return results.Refused{}
	}
	limit := float64(rate) / 0.99
	share := func(n int) float64 { return float64(n) / float64(len(t)) }
	return results.Refused{
		Second: share(refusedByWindow(t, int(limit), time.Second)),
		Ten:    share(refusedByWindow(t, int(10*limit), 10*time.Second)),
		Bucket: share(refusedByBucket(t, 10, time.Duration(float64(time.Second)/limit))),
	}
}

// refusedByWindow is for a server that takes at most limit calls in any window.
func refusedByWindow(t []time.Duration, limit int, window time.Duration) (refused int) {
	var taken []time.Duration
	for _, at := range t {
		if n := len(taken); n >= limit && at-taken[n-limit] < window {
			refused++
			continue
		}
		taken = append(taken, at)
	}
	return refused
}

// refusedByBucket is for a server with a bucket that leaks a call in each interval.
func refusedByBucket(t []time.Duration, capacity int, interval time.Duration) (refused int) {
	var empty time.Duration // when the bucket will be
	for _, at := range t {
		if empty = max(empty, at); empty-at > time.Duration(capacity-1)*interval {
			refused++
			continue
		}
		empty += interval
	}
	return refused
}

// neighbor as the first argument makes this a process that never sleeps.
const neighbor = "busy-neighbor"

func spin() {
	for parent := os.Getppid(); os.Getppid() == parent; {
		for range 1 << 20 {
		}
	}
}

// load begins what else the machine does during o, and returns how to end that. The
// stalls of a run are the same for all libraries.
func (h *hand) load(o order, run int) (end func() error, err error) {
	switch o.Load {
	case busy:
		return neighbors(2)
	case stalls:
		done, failed := make(chan struct{}), make(chan error, 1)
		go func() { failed <- h.stall(rand.New(rand.NewPCG(uint64(run), 15)), done) }()
		return sync.OnceValue(func() error { close(done); return <-failed }), nil
	}
	return func() error { return nil }, nil
}

// stall stops the process now and then, until done.
func (h *hand) stall(r *rand.Rand, done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		case <-time.After(time.Duration(r.Int64N(int64(time.Second)))):
		}
		if err := machine.Stop(h.cmd.Process, time.Duration(r.Int64N(int64(40*time.Millisecond)))); err != nil {
			return err
		}
	}
}

// neighbors starts n processes that never sleep.
func neighbors(n int) (end func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var started []*exec.Cmd
	end = func() error {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return nil
	}
	for range n {
		cmd := exec.Command(program, neighbor)
		if err := cmd.Start(); err != nil {
			_ = end()
			return nil, err
		}
		started = append(started, cmd)
	}
	return end, nil
}
