package engine

import (
	"math"
	"slices"
	"strings"
	"time"
)

// A Picture is what a page draws of a story.
type Picture struct {
	Seconds  float64
	Bin      float64 // seconds of a bar
	Limit    []Step  // what the server accepts; none: everything
	Closed   [2]float64
	Lanes    []Lane
	Table    []Row
	Verdicts []string // of each lane, in a sentence
}

// A Row is a line of the table: a number of each lane.
type Row struct {
	Label  string
	Values []string
}

// A Lane is what became of the calls of one client.
type Lane struct {
	Name    string
	Summary Summary

	// Of each bar: calls that started in it and were served, or are still under way, and
	// those that were rejected; the average number of calls in flight and of waiting
	// callers; and the pace that a gate has learned by its end, 0 for none.
	Served, Refused         []int
	InFlight, Waiting, Pace []float64

	// Each call that started, in µs, and what became of it: a 1 or, if it was rejected, a
	// 2. Empty if there are too many to be seen.
	Left    []int64
	Outcome string
}

// A Summary is a lane in numbers.
type Summary struct {
	Left     int // calls that started, every attempt counted
	Served   int
	Refused  int
	GaveUp   int // callers that canceled
	Waiting  int // callers that still waited at the end, or whose call was under way
	InFlight int // the most calls under way at the same time

	Busiest  int     // the most calls that started within any second
	After    int     // likewise, after the server was closed
	Evenness float64 // see evenness; negative: too few calls to say
	Longest  float64 // the longest wait before a call started, in seconds
	Patient  float64 // the longest wait of those that came when others had given up
}

// mostTicks is the number of calls that are drawn one by one.
const mostTicks = 5000

// binWidth returns the length of a bar in seconds: one, or a sixtieth of a long time. A
// shorter bar would show an even rate as uneven.
func (s *Scenario) binWidth() float64 { return max(1, s.Seconds/60) }

// Play computes the picture of a story. in calls a function in a testing/synctest bubble
// and returns when that has ended; each lane has its own bubble.
func (s *Story) Play(values map[string]float64, in func(f func())) (*Picture, error) {
	w, err := s.Scenario(values)
	if err != nil {
		return nil, err
	}
	p := &Picture{Seconds: w.Seconds, Bin: w.binWidth(), Limit: w.Server.Limit, Closed: w.Server.Closed}
	for _, c := range s.clients {
		in(func() { p.Lanes = append(p.Lanes, w.lane(c)) })
	}
	p.tell(s.verdict)
	return p, nil
}

// lane plays one client. It must be called in a bubble.
func (s *Scenario) lane(c client) Lane {
	r := s.play(c)
	bars := len(r.inFlight)
	l := Lane{
		Name: c.name, Summary: s.summary(r), InFlight: round(r.inFlight), Waiting: round(r.waiting), Pace: round(r.paces),
		Served: make([]int, bars), Refused: make([]int, bars),
	}
	for _, a := range r.attempts {
		bar := min(bars-1, int(a.left/seconds(s.binWidth())))
		if a.outcome == refused {
			l.Refused[bar]++
		} else {
			l.Served[bar]++
		}
	}
	if len(r.attempts) <= mostTicks {
		var outcomes strings.Builder
		for _, a := range r.attempts {
			l.Left = append(l.Left, a.left.Microseconds())
			outcomes.WriteByte("112"[a.outcome])
		}
		l.Outcome = outcomes.String()
	}
	return l
}

// round rounds numbers to what can be seen of them.
func round(all []float64) []float64 {
	for i, x := range all {
		all[i] = math.Round(x*100) / 100
	}
	return all
}

func (s *Scenario) summary(r *record) Summary {
	var lefts, after []time.Duration
	sum := Summary{Left: len(r.attempts), InFlight: r.most}
	for _, a := range r.attempts {
		lefts = append(lefts, a.left)
		if end := s.Server.Closed[1]; end > 0 && a.left >= seconds(end) {
			after = append(after, a.left)
		}
		switch a.outcome {
		case served:
			sum.Served++
		case refused:
			sum.Refused++
		}
	}
	for _, c := range r.callers {
		switch {
		case c.gaveUp:
			sum.GaveUp++
			continue
		case !c.served:
			sum.Waiting++
		}
		left := c.first
		if left < 0 {
			left = seconds(s.Seconds)
		}
		wait := (left - c.arrived).Seconds()
		sum.Longest = max(sum.Longest, wait)
		if c.patient {
			sum.Patient = max(sum.Patient, wait)
		}
	}
	sum.Busiest, sum.After, sum.Evenness = busiest(lefts), busiest(after), evenness(lefts)
	return sum
}

// busiest returns the largest number of times within any second, its end not included. They are in
// order.
func busiest(at []time.Duration) (most int) {
	first := 0
	for i, t := range at {
		for t-at[first] >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// evenness returns the share of the gaps that are between half and twice the mean gap,
// for times in order: 1 if they are all alike, 0 if they come in clumps. The longest
// twentieth of the gaps does not count for the mean, because a pause is not uneven.
func evenness(at []time.Duration) float64 {
	var gaps []time.Duration
	for i := range at[min(1, len(at)):] {
		gaps = append(gaps, at[i+1]-at[i])
	}
	if len(gaps) < 2 {
		return -1
	}
	slices.Sort(gaps)
	counted := gaps[:len(gaps)-len(gaps)/20]
	var sum time.Duration
	for _, g := range counted {
		sum += g
	}
	mean := sum / time.Duration(len(counted))
	even := 0
	for _, g := range gaps {
		if g > 0 && g >= mean/2 && g <= 2*mean {
			even++
		}
	}
	return float64(even) / float64(len(gaps))
}
