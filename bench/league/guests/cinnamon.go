package guests

import (
	"math"
	"slices"
	"time"
)

func init() {
	Enter("cinnamon", "after the auto-tuner of Uber's Cinnamon: calls in flight by Vegas, with a covariance; backoff", func(w World) Strategy {
		return &cinnamon{World: w, limit: 20}
	})
}

// cinnamon limits calls in flight after "Cinnamon Auto-Tuner: Adaptive Concurrency in the Wild" by
// Vladimir Gavrilenko, Jakob Holdgaard Thomsen, Jesper Lindstrom Nielsen and Timothy Smyth (Uber
// Engineering, 7 December 2023). Uber's code is not public, so this is not a port. From the article:
//
//   - TCP Vegas: the limit follows the difference between the latency and a target latency, and
//     tolerates the more the lower the limit is (figure 4).
//   - Latencies are aggregated over an interval, and smoothed (figure 5).
//   - The target is measured again now and then. Done at a high limit both would drift upwards (figure
//     6). So the limit is lowered then if in-flight calls and throughput have a negative covariance
//     (figures 7 and 8): here also if they have none.
//
// Its numbers are not from the article: the constants below, the half to which the
// limit is lowered, and the thresholds 3·log10(limit) and
// 6·log10(limit), which are those of Netflix' VegasLimit. Cinnamon sheds load at a server, by
// priority. Here it is at the client, callers wait, and a throttled call is not a sample.
type cinnamon struct {
	World
	limit   float64
	target  float64   // seconds; 0: not measured
	smooth  float64   // the latency
	timings []float64 // of this interval
	began   time.Duration
	most    int // in flight in this interval

	inFlight, throughput []float64 // of the intervals since the target was measured
}

const (
	cinnamonInterval = time.Second // at least
	cinnamonSamples  = 20          // at least, in an interval
	cinnamonEpoch    = 30          // intervals between two measurements of the target
	cinnamonWeight   = .3          // of the latest interval in the smoothed latency
	cinnamonMost     = 1000        // the limit
)

func (c *cinnamon) Leave(now time.Duration, inFlight int, _ float64) time.Duration {
	if inFlight >= int(c.limit) {
		return Never
	}
	return now
}

func (c *cinnamon) Retry(n int, r Reply) time.Duration { return Backoff(c.Rand, n, r) }

func (c *cinnamon) Done(call Call) {
	if !call.Reply.OK {
		return
	}
	c.timings = append(c.timings, (call.Ended - call.Left).Seconds())
	c.most = max(c.most, call.InFlight+1)
	if took := call.Ended - c.began; took >= cinnamonInterval && len(c.timings) >= cinnamonSamples {
		c.update(took.Seconds())
		c.began, c.most, c.timings = call.Ended, 0, c.timings[:0]
	}
}

// update ends an interval that took so many seconds.
func (c *cinnamon) update(took float64) {
	slices.Sort(c.timings)
	median := c.timings[len(c.timings)/2]
	if c.smooth == 0 {
		c.smooth = median
	}
	c.smooth += cinnamonWeight * (median - c.smooth)
	if c.target == 0 || c.smooth < c.target {
		c.target = c.smooth
	}
	c.inFlight = append(c.inFlight, float64(c.most))
	c.throughput = append(c.throughput, float64(len(c.timings))/took)

	queue := c.limit * (1 - c.target/c.smooth)
	step := math.Max(1, math.Log10(c.limit))
	switch {
	case queue > 6*step:
		c.limit -= step
	case queue < 3*step && float64(c.most) >= c.limit/2: // otherwise it is not the limit that holds calls up
		c.limit += step
	}
	if len(c.inFlight) >= cinnamonEpoch {
		if covariance(c.inFlight, c.throughput) <= 1e-9 { // more in flight brought no more throughput
			c.limit /= 2
		}
		c.target, c.inFlight, c.throughput = c.smooth, nil, nil
	}
	c.limit = math.Max(1, math.Min(cinnamonMost, c.limit))
}

func covariance(x, y []float64) (sum float64) {
	meanX, meanY := mean(x), mean(y)
	for i := range x {
		sum += (x[i] - meanX) * (y[i] - meanY)
	}
	return sum / float64(len(x))
}

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
