package sluiceredis

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// longest is the longest time in nanoseconds that scripts compute with: 104
// days, one second less than 2^53 ns, because the fraction of the present
// second is added to it.
const longest = 1<<53 - 1 - int64(time.Second)

// # Who decides, the script or the program?
//
// The script decides how many of the requests that arrive together are granted,
// for only it sees the bucket. But who they are, what remained for each and how
// long each refused one must wait follows from the level it found and the
// requests, by the arithmetic of package leaky. The script therefore replies
// that level, and decide computes the rest, with 64-bit integers. That the two
// agree on how many is checked on every reply.

// A cell is a bucket and how it is asked: which key, by which quota.
type cell struct {
	key      string
	capacity int64 // L, in units
	interval int64 // E: how many nanoseconds one unit takes to leak
	of       mark
	away     OutagePolicy
}

// A mark is the rate that a bucket is of, which is in its value. A share of a cell
// has the mark of the whole. The zero mark is of no bucket.
type mark struct{ interval, capacity int64 }

// newCell returns the cell of a rate, without a key.
func newCell(rate limits.Rate) (cell, error) {
	if err := rate.Check(); err != nil {
		return cell{}, fmt.Errorf("sluiceredis: %w", err)
	}
	c := cell{capacity: max(1, rate.Burst), interval: int64(rate.Per) / rate.Count}
	if c.capacity > longest/c.interval {
		return cell{}, fmt.Errorf("sluiceredis: rate of %v: a full bucket takes longer than 104 days to drain", rate)
	}
	c.of = mark{c.interval, c.capacity}
	return c, nil
}

// depth returns D: how long a full bucket takes to drain, in nanoseconds.
func (c *cell) depth() int64 { return c.interval * c.capacity }

// args returns what the scripts want to know of the bucket.
func (c *cell) args() []string {
	text := append(make([]byte, 0, 40), ' ')
	text = append(strconv.AppendInt(text, c.of.capacity, 10), '@')
	text = strconv.AppendInt(text, c.of.interval, 10)
	return append(make([]string, 0, 4), format(c.depth()), string(text)) // with room for one run
}

// decide is what becomes of a request for n units, n ≥ 0, at a bucket of that
// level: what is answered, and the level after it.
func (c *cell) decide(level, n int64) (limits.Result, int64) {
	res := limits.Result{Limit: c.capacity}
	switch {
	case n > c.capacity: // and the cost may overflow
		res.RetryAfter = limits.Never
	case n == 0: // nothing is always granted
	case level+n*c.interval > c.depth():
		res.RetryAfter = time.Duration(level + n*c.interval - c.depth())
	default:
		level += n * c.interval
	}
	res.Remaining = max(0, c.depth()-level) / c.interval
	res.ResetAfter = time.Duration(level)
	return res, level
}

// bounded returns a correction by so many units as time, no more than any debt may
// be.
func (c *cell) bounded(units int64) int64 {
	if units < 0 {
		return units * c.interval
	}
	ns, _ := c.nanoseconds(units)
	return min(ns, longest)
}

// nanoseconds returns n units as time, or false if that is longer than any debt
// may be.
func (c *cell) nanoseconds(n int64) (int64, bool) {
	if n > longest/c.interval {
		return math.MaxInt64, false
	}
	return n * c.interval, true
}
