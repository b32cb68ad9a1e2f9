package main

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
)

const (
	discarded = 100
	catchUp   = 50 * time.Millisecond  // of a pacer by default
	noticing  = 100 * time.Microsecond // see the package comment
)

// measure measures one run of one cell.
func measure(o order) results.Cell {
	limiters := max(1, o.Limiters)
	acquire := make([]func(), limiters)
	for i := range acquire {
		var stop func()
		acquire[i], stop = libraries[o.Library](o.Rate)
		defer stop()
	}
	// Enough for one caller of many, and for a caller that gets all;
	// append catches up on the rest.
	room := int(o.Dur.Seconds()*float64(o.Rate))*5/4 + 2*discarded
	if o.Callers > 1 {
		room = room*4/o.Callers + discarded
	}
	instants := make([][]time.Duration, o.Callers*limiters)
	for i := range instants {
		instants[i] = make([]time.Duration, 0, room)
	}
	runtime.GC()

	cpu, start := machine.CPUTime(), time.Now()
	var done sync.WaitGroup
	for i := range instants {
		done.Go(func() {
			mine, acquire := instants[i], acquire[i/o.Callers]
			for {
				acquire()
				now := time.Since(start)
				if now > o.Dur {
					break
				}
				mine = append(mine, now)
			}
			instants[i] = mine
		})
	}
	done.Wait()
	wall := time.Since(start)
	cpu = machine.CPUTime() - cpu

	first := slices.Sorted(slices.Values(slices.Concat(instants[:o.Callers]...)))
	c := judge(first, o.Rate)
	if o.Work != "" {
		c.Refused = refused(first, o.Rate)
	}
	if limiters > 1 { // of all of them; the rest is that of the first
		c.Delivered = 0
		for of := range slices.Chunk(instants, o.Callers) {
			c.Delivered += judge(slices.Sorted(slices.Values(slices.Concat(of...))), o.Rate).Delivered
		}
		c.DeliveredMax = c.Delivered
	}
	c.Work, c.Limiters = o.Work, limiters
	c.Library, c.Callers, c.Asked = o.Library, o.Callers, float64(o.Rate)
	c.Frozen, c.Runs = ms(o.Freeze), 1
	c.CPU = cpu.Seconds() / wall.Seconds()
	return c
}

// judge computes what the package comment defines from instants in order.
func judge(t []time.Duration, rate int) (c results.Cell) {
	c.Ahead, c.Early = ahead(t, rate)
	t = t[min(discarded, len(t)):]
	if len(t) < 2 {
		return c
	}
	c.Delivered = float64(len(t)-1) / (t[len(t)-1] - t[0]).Seconds()
	c.DeliveredMax = c.Delivered
	interval := float64(time.Second) / float64(rate)
	gaps := make([]float64, len(t)-1)
	errs := make([]float64, len(t)-1)
	for i := range gaps {
		gap := float64(t[i+1] - t[i])
		gaps[i] = gap / 1000
		errs[i] = math.Abs(gap-interval) / 1000
	}
	slices.Sort(gaps)
	slices.Sort(errs)
	c.ErrP50, c.ErrP90, c.ErrP99 = rank(errs, 50), rank(errs, 90), rank(errs, 99)
	c.ErrMax = errs[len(errs)-1]
	for p := range 101 {
		c.Gaps = append(c.Gaps, math.Round(rank(gaps, float64(p))*10)/10)
	}
	return c
}

// rank returns the p-th percentile of sorted values by nearest rank.
func rank(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// ahead returns by how much calls came ahead of even spacing, in µs, and how
// many by more than catchUp and noticing. With x[i] = t[i] − i·T, call j is ahead of call i
// by x[i] − x[j], and most so of the one with the largest x before it.
func ahead(t []time.Duration, rate int) (most float64, early int) {
	var worst time.Duration
	latest := time.Duration(math.MinInt64)
	for i, at := range t {
		// Rounded up, so that rounding makes no call early; a rate is at most
		// 10⁹, and i that of a few seconds.
		slot := (int64(i)*int64(time.Second) + int64(rate) - 1) / int64(rate)
		x := at - time.Duration(slot)
		if i > 0 {
			worst = max(worst, latest-x)
			if latest-x > catchUp+noticing {
				early++
			}
		}
		latest = max(latest, x)
	}
	return us(worst), early
}
