package adaptive

import "math"

// cycles finds the rate that explains the last two cycles. A cycle lasts from one empty
// point to the next.
//
// # What do two cycles say?
//
// Take a bucket that gets r per second and holds b. It is empty at the end of a cycle. If
// it was full before, b more were accepted from then on than r × the time. So for each r
// there is one b: the most that any last part of the cycle was accepted above r × its time.
// Two cycles at different paces have r and b in common.
//
// Without this, the rate was taken to be in the middle between the rejected pace and the rate
// granted in the cycle. If the server asks for a pause after each rejection, that is far off:
// at 50/s with a burst of 5, a second of pause and a second of calls were accepted 28/s.
type cycles struct {
	points  [cyclePoints]point // of this cycle: when calls started, every stride-th of them
	n       int
	stride  int
	skip    int     // calls until the next point
	begun   bool    // with an empty point: the bucket of the first cycle is full
	looking float64 // when a look of a group began; 0: there is none
	past    [2]cycle
	next    int // of past
	found   fit // by the last cycle
}

const (
	cyclePoints = 24
	fitError    = .1 // of a rate that is used
)

// A cycle is its last parts: from a point of it to its end.
type cycle struct {
	parts [cyclePoints]part
	n     int
	full  bool    // the bucket was full when it began
	look  float64 // how long a look of a group took at its end; 0: it had none
}

type part struct{ took, granted float64 }

// A fit is a rate that explains two cycles.
type fit struct {
	rate  float64
	error float64 // as a share of rate
}

// good reports whether there is a rate, and whether it is known well enough.
func (f fit) good() bool { return f.rate > 0 && f.error < fitError }

// begin begins a cycle at a point.
func (k *cycles) begin(p point) {
	k.points[0] = p
	k.n, k.stride, k.skip = 1, 1, 0
}

// full begins a cycle at a point at which the bucket is full.
func (k *cycles) full(p point) {
	k.begun = false
	k.begin(p)
}

// look begins a look of a group at a point. A few points before it stay: the calls before a look are many, and
// what was accepted of them says more of the rate than the look does, in which the calls of others are blurred.
func (k *cycles) look(p point) {
	n := 0
	for i := max(0, k.n-2*pointsBefore); i < k.n; i += 2 {
		k.points[n] = k.points[i]
		n++
	}
	k.points[n] = p
	k.n, k.stride, k.skip, k.begun = n+1, 1, 0, false
	k.looking = p.at
}

// pointsBefore is how many points before a look stay.
const pointsBefore = 6

// burst returns what a bucket of rate holds if it was full in the last cycle.
func (k *cycles) burst(rate float64) float64 { return k.last().burst(rate) }

// last returns the last cycle that has ended.
func (k *cycles) last() *cycle { return &k.past[1-k.next] }

// faster returns the rate, at most most, at which a bucket that holds burst explains the last cycle.
func (k *cycles) faster(burst, most float64) float64 {
	return bisect(most, func(rate float64) bool { return k.burst(rate) > burst })
}

// bisect returns the lowest rate, at most most, that is not too low.
func bisect(most float64, tooLow func(rate float64) bool) float64 {
	low, high := 0., most
	for range 24 {
		if rate := (low + high) / 2; tooLow(rate) {
			low = rate
		} else {
			high = rate
		}
	}
	return high
}

// unlike is how many times longer one of two looks must be to tell the rate from the burst.
const unlike = 1.5

// both returns the rate, from low to high, at which one bucket explains the last two looks of a group, if one
// of them is much longer than the other. It returns 0 if there is none.
func (k *cycles) both(low, high, meanCost float64) float64 {
	short, long := &k.past[0], &k.past[1]
	if short.look > long.look {
		short, long = long, short
	}
	differ := func(rate float64) float64 { return long.burst(rate) - short.burst(rate) - meanCost/2 }
	if short.look == 0 || long.look < unlike*short.look || high <= low || differ(low) <= 0 || differ(high) >= 0 {
		return 0
	}
	// Above the rate they differ by chance, so the first rate at which they agree is the one.
	ratio := math.Pow(high/low, 1./bothSteps)
	for i := 0; i < bothSteps && differ(low*ratio) > 0; i++ {
		low *= ratio
	}
	return low
}

// bothSteps is how many rates are tried: over a factor of two they are 0.7 % apart.
const bothSteps = 96

// again begins the cycle again if p is later: it was rejected, too.
func (k *cycles) again(p point) {
	if p.at > k.points[0].at {
		k.begin(p)
	}
}

// started notes that a call starts at t.
func (k *cycles) started(t float64, l *ledger) {
	if k.skip > 0 {
		k.skip--
		return
	}
	if k.n == len(k.points) {
		k.n = 2 // the beginning, and the first call after the pause
		for i := 3; i < len(k.points); i += 2 {
			k.points[k.n] = k.points[i]
			k.n++
		}
		k.stride *= 2
	}
	k.points[k.n] = l.now(t)
	k.n++
	k.skip = k.stride - 1
}

// without corrects the points by a call that was rejected.
func (k *cycles) without(call Call) {
	for i := range k.points[:k.n] {
		k.points[i].without(call)
	}
}

// end ends a cycle at an empty point, and begins another. The rate is less than most.
func (k *cycles) end(p point, most, meanCost float64) {
	now := cycle{full: !k.begun}
	if k.looking > 0 {
		now.look = p.at - k.looking
	}
	for _, from := range k.points[:k.n] {
		if from.at < p.at {
			now.parts[now.n] = part{p.at - from.at, p.granted - from.granted}
			now.n++
		}
	}
	k.found = fit{}
	if now.n > 1 {
		for i := range k.past {
			if f := common(&now, &k.past[i], most, meanCost); f.rate > 0 && (k.found.rate == 0 || f.error < k.found.error) {
				k.found = f
			}
		}
		k.past[k.next] = now
		k.next = 1 - k.next
	}
	k.begun, k.looking = true, 0
	k.begin(p)
}

// window returns the rate of a window that was used up at the end of the last cycle, and ended so
// many seconds later: what the last part of the cycle was accepted in its time and the silence. The
// part that has the most is the window. A longer one has earlier windows in which calls came too
// slowly to use them up, or the slow beginning of a search: as a whole, a cycle of a search was
// accepted half of what the server grants.
func (k *cycles) window(silent float64) float64 {
	rate := 0.
	last := k.last()
	for _, p := range last.parts[:last.n] {
		rate = max(rate, p.granted/(p.took+silent))
	}
	return rate
}

// correct corrects what was accepted in the last cycle, shortly before its end.
func (k *cycles) correct(wrong float64) {
	c := k.last()
	for i := range c.parts[:c.n] {
		c.parts[i].granted = max(0, c.parts[i].granted+wrong)
	}
}

// mean returns what was accepted per second. No rate is less.
func (c *cycle) mean() float64 {
	if c.full {
		return 0
	}
	return c.parts[0].granted / c.parts[0].took
}

// burst returns what a bucket of rate holds if it was full in c.
func (c *cycle) burst(rate float64) float64 {
	most := math.Inf(-1)
	for _, p := range c.parts[:c.n] {
		most = max(most, p.granted-rate*p.took)
	}
	return most
}

// longest returns how long those calls took that say what the bucket holds.
func (c *cycle) longest(rate float64) (took float64) {
	most := c.burst(rate)
	for _, p := range c.parts[:c.n] {
		if p.granted-rate*p.took == most {
			took = max(took, p.took)
		}
	}
	return took
}

// common returns the rate, less than most, at which a bucket must hold the same for both
// cycles. The one with the higher mean is first: at that rate it needs the larger bucket, or
// else its bucket was never full, and nothing is known. Windows look like that.
func common(first, second *cycle, most, meanCost float64) fit {
	if first.n == 0 || second.n == 0 {
		return fit{}
	}
	if first.mean() < second.mean() {
		first, second = second, first
	}
	least := first.mean()
	if !(least > 0 && least < most) {
		return fit{}
	}
	// Calls come in units, and the network moves them: a difference of two means nothing.
	const steps, blur = 48, 2.
	ratio := math.Pow(most/least, 1./steps)
	low, high := 0., 0.
	for i, rate := 0, least; i <= steps; i, rate = i+1, rate*ratio {
		differ := (first.burst(rate) - second.burst(rate)) / meanCost
		if math.Abs(differ) <= blur {
			if low == 0 {
				low = rate
			}
			high = rate
			continue
		}
		if low == 0 && differ < 0 && i > 0 {
			low, high = rate/ratio, rate
		}
		if low > 0 || differ < 0 {
			break
		}
	}
	if low == 0 {
		return fit{}
	}
	rate := (low + high) / 2
	return fit{rate, max((high-low)/2/rate, (ratio-1)/2)}
}
