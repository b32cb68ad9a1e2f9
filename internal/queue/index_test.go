package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

var errImpatient = errors.New("impatient")

func (r *every) UnitTime() float64 { return float64(r.interval) }

// far is every, but for more ahead than a duration can count.
type far struct{ every }

func (r *far) Forecast(now time.Duration, ahead int64) time.Duration {
	if ahead > 1<<32 {
		return Forever
	}
	return r.every.Forecast(now, ahead)
}

// An indexed is a queue whose entries no goroutine waits for.
type indexed struct {
	Queue
	admitter far
	pause    time.Duration // for longer than which no patience lasts
	all      []*Waiter
	now      time.Duration
	rand     *rand.Rand
	stuck    bool // the first never leaves
}

func newIndexed(seed uint64) *indexed {
	q := &indexed{stuck: seed%3 == 0, admitter: far{every{interval: ms}}, rand: rand.New(rand.NewPCG(seed, 0))}
	q.Init(&q.admitter, Config{Exact: true, GiveUp: func(_, patience time.Duration) error {
		if q.pause > patience {
			return errImpatient
		}
		return nil
	}})
	return q
}

// join has an entry join: one in three has a deadline, a longest wait, a patience, or is a
// reservation, which is attended later.
func (q *indexed) join() {
	w := q.newcomer()
	q.push(w)
	q.all = append(q.all, w)
}

// joinBehind has an entry join behind another that waits, and returns how many waits that ends. The
// error says that these are not the ones that are hopeless now.
func (q *indexed) joinBehind(p *Waiter) (ended int, err error) {
	w := q.newcomer()
	if w.wake == nil || p == q.back {
		return 0, nil
	}
	all := q.waiting()
	i := slices.Index(all, p) + 1
	want := q.hopelessOf(slices.Insert(all, i, w))
	q.pushBehind(q.now, p, w)
	q.all = append(q.all, w)
	for _, w := range q.all {
		if (w.state == failed) != slices.Contains(want, w) {
			return 0, fmt.Errorf("one joined: an entry has failed: %v", w.state == failed)
		}
	}
	q.all = q.waiting()
	return len(want), nil
}

// letOthersAsk marks the head and one in three of those near it as rejected, and lets others go before
// them. The error says that these do not have the order that a walk finds, or that others have ended.
func (q *indexed) letOthersAsk() (ended int, err error) {
	all := q.waiting()
	n := 1 + q.rand.IntN(3)
	var others, rest []*Waiter
	for i, w := range all {
		if i < 40 && (i == 0 || q.rand.IntN(3) == 0) {
			w.more().refused = 1
		}
		switch {
		case i == 0:
		case len(others) < n && i <= mostAgain && !w.again() && w.wake != nil:
			others = append(others, w)
		default:
			rest = append(rest, w)
		}
	}
	order := slices.Concat(all[:1], others, rest)
	var want []*Waiter
	if !slices.Equal(order, all) {
		want = q.hopelessOf(order)
	}
	q.Queue.letOthersAsk(q.now, n)
	for _, w := range all {
		if (w.state == failed) != slices.Contains(want, w) {
			return 0, fmt.Errorf("others went before: an entry has failed: %v", w.state == failed)
		}
	}
	q.all = q.waiting()
	if left := slices.DeleteFunc(order, func(w *Waiter) bool { return w.state == failed }); !slices.Equal(left, q.all) {
		return 0, errors.New("others went before in another order")
	}
	return len(want), nil
}

func (q *indexed) newcomer() *Waiter {
	w := &Waiter{n: 1 + q.rand.Int64N(3)}
	w.until = Forever
	if q.rand.IntN(50) == 0 {
		w.n = 1 << 62 // two of them are more than an int64
	}
	if kind := q.rand.IntN(12); kind > 0 {
		w.attend(nil)
		q.bindOne(w, kind)
	}
	return w
}

func (q *indexed) bindOne(w *Waiter, kind int) {
	wait := time.Duration(q.rand.Int64N(int64(10 * time.Second)))
	switch kind {
	case 1:
		w.more().ctxAt = q.now + wait
	case 2:
		w.more().maxAt = q.now + wait
	case 3:
		w.more().patience = wait
	}
}

// waiting returns the entries in the order of the queue.
func (q *indexed) waiting() (all []*Waiter) {
	for w := q.front; w != nil; w = w.next {
		all = append(all, w)
	}
	return all
}

// step does what may happen to a queue.
func (q *indexed) step() {
	all := q.waiting()
	switch what := q.rand.IntN(10); {
	case what == 0 && len(all) > 0: // one cancels
		q.remove(all[q.rand.IntN(len(all))])
	case what == 1 && len(all) > 0: // a reservation is attended
		if w := all[q.rand.IntN(len(all))]; w.wake == nil {
			w.attend(nil)
			q.bindOne(w, 1)
			q.boundLater(w)
		}
	case what < 5 && len(all) > 1 && q.stuck: // another than the first cancels
		q.remove(all[1+q.rand.IntN(len(all)-1)])
	case what < 5 && len(all) > 0: // the first leaves
		q.remove(all[0])
	default:
		q.join()
	}
	q.now += time.Duration(q.rand.Int64N(int64(ms)))
}

// walk returns which are hopeless, found by looking at each.
func (q *indexed) walk() (hopeless []*Waiter) { return q.hopelessOf(q.waiting()) }

// hopelessOf is walk if all were waiting.
func (q *indexed) hopelessOf(all []*Waiter) (hopeless []*Waiter) {
	var ahead total
	for _, w := range all {
		if q.hopeless(q.now, w, ahead.value()) != nil {
			hopeless = append(hopeless, w)
		} else {
			ahead.add(w.n)
		}
	}
	return hopeless
}

// check compares what the index says with what is so.
func (q *indexed) check() error {
	var ahead total
	soonest, listed := time.Duration(Forever), 0
	var sum total // of the gaps of the slots before number
	number := uint64(0)
	if q.bounds != nil && q.bounds.index != nil {
		number = q.bounds.index.first
	}
	for _, w := range q.waiting() {
		soonest = min(soonest, w.bound())
		if w.listed {
			listed++
		}
		if !w.listed || w.early {
			ahead.add(w.n)
			continue
		}
		if x := q.bounds.index; x != nil {
			own := x.behind(w) - 1
			if x.slot(own).w != w {
				return fmt.Errorf("the slot of an entry is another's")
			}
			for ; number <= own; number++ {
				sum.plus(x.slot(number).gap)
			}
			if got := sum.beyond(x.gone); got != ahead.value() {
				return fmt.Errorf("%d are ahead, the index says %d", ahead.value(), got)
			}
			for level := range x.nodes {
				if n := x.node(level, own); n.bound > w.bound() || n.patience > w.patience() {
					return fmt.Errorf("level %d does not know of a bound", level)
				}
			}
		}
		ahead.add(w.n)
	}
	switch b := q.bounds; {
	case b == nil:
	case b.n != listed:
		return fmt.Errorf("%d are listed, not %d", listed, b.n)
	case b.index == nil && listed > 0 && len(q.waiting()) >= indexFrom:
		return fmt.Errorf("%d wait without an index", len(q.waiting()))
	}
	if q.bounds != nil && q.bounds.index != nil {
		if err := q.bounds.index.checkSums(); err != nil {
			return err
		}
	}
	for _, t := range []time.Duration{soonest, q.now} {
		if got := q.endsBefore(t); got != (soonest < t) {
			return fmt.Errorf("ends before %v: %v, and the soonest is %v", t, got, soonest)
		}
	}
	if soonest != Forever && !q.endsBefore(soonest+1) {
		return fmt.Errorf("does not end before %v, and the soonest is %v", soonest+1, soonest)
	}
	return nil
}

// checkSums compares the sum of each node with those below it.
func (x *index) checkSums() error {
	for level := range x.nodes {
		for i := range x.nodes[level] {
			var sum total
			if level == 0 {
				for _, s := range x.chunks[i] {
					sum.plus(s.gap)
				}
			} else {
				for j, to := x.below(level, i); j < to; j++ {
					sum.plus(x.nodes[level-1][j].sum)
				}
			}
			if sum != x.nodes[level][i].sum {
				return fmt.Errorf("level %d: a node has %v, those below %v", level, x.nodes[level][i].sum, sum)
			}
		}
	}
	return nil
}

// The index finds what a walk through the whole queue finds, whatever comes and leaves.
func TestQueue_Change_EndsThoseThatAWalkWouldEnd(t *testing.T) {
	for seed := range uint64(15) {
		q := newIndexed(seed)
		if seed == 0 { // so many that there are several nodes in the second level
			for range 20_000 {
				q.join()
			}
			for range 14_000 {
				q.remove(q.front)
			}
		}
		ended := 0
		for i := range 3000 {
			if all := q.waiting(); seed%2 == 1 && i%7 == 0 && len(all) > 0 {
				n, err := q.joinBehind(all[q.rand.IntN(min(len(all), 40))])
				if err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
				ended += n
			}
			if len(q.waiting()) > 0 && seed%2 == 1 && i%11 == 0 {
				n, err := q.letOthersAsk()
				if err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
				ended += n
			}
			if q.step(); i%100 == 0 {
				if err := q.check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
			if i%250 > 0 {
				continue
			}
			q.admitter.next = q.now + time.Duration(q.rand.Int64N(int64(3*time.Second)))
			q.admitter.interval = ms + time.Duration(q.rand.Int64N(int64(4*ms)))
			q.pause = time.Duration(q.rand.Int64N(int64(time.Second)))
			want := q.walk()
			q.failHopeless(q.now)
			var got []*Waiter
			for _, w := range q.all {
				if w.state == failed {
					got = append(got, w)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: ended %d, want %d of %d", seed, i, len(got), len(want), q.length)
			}
			if err := q.check(); err != nil {
				t.Fatalf("seed %d, step %d, after a change: %v", seed, i, err)
			}
			ended += len(got)
			q.all = q.waiting()
		}
		if ended == 0 {
			t.Errorf("seed %d: none was ended", seed)
		}
		for q.front != nil {
			q.remove(q.front)
		}
		if b := q.bounds; b.n != 0 || b.index != nil || b.soonest != Forever {
			t.Errorf("seed %d: an empty queue has %+v", seed, b)
		}
	}
}

// The same of entries that are hardly in time, and of changes that hardly move them.
func TestQueue_Change_EndsThoseThatAWalkWouldEnd_OfWaitsHardlyInTime(t *testing.T) {
	for seed := range uint64(5) {
		q := newIndexed(seed)
		q.admitter.next = time.Second
		join := func() {
			w := &Waiter{n: 1}
			w.attend(nil)
			w.more().maxAt = q.admitter.Forecast(0, q.weight.value()) + time.Duration(q.rand.Int64N(int64(2*ms)))
			q.push(w)
		}
		ended := 0
		for range 4500 {
			join()
		}
		for round := range 80 {
			switch q.rand.IntN(6) {
			case 0:
				q.admitter.interval += time.Duration(q.rand.Int64N(200)) // a fifth of a millisecond for a thousand
			case 1:
				q.admitter.interval -= time.Duration(q.rand.Int64N(200))
			case 2:
				for range 100 {
					all := q.waiting()
					q.remove(all[q.rand.IntN(len(all))])
				}
			case 3:
				for range 100 {
					q.remove(q.front)
					q.admitter.next += q.admitter.interval
				}
			case 4:
				for range 150 {
					join()
				}
			default:
				q.admitter.next += time.Duration(q.rand.Int64N(int64(ms))) - ms/4
			}
			all, want := q.waiting(), q.walk()
			q.failHopeless(0)
			var got []*Waiter
			for _, w := range all {
				if w.state == failed {
					got = append(got, w)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, round %d: ended %d, want %d of %d", seed, round, len(got), len(want), len(all))
			}
			ended += len(got)
		}
		if ended == 0 {
			t.Errorf("seed %d: none was ended", seed)
		}
	}
}

// counting is an admitter that counts how often it is asked.
type counting struct {
	every
	forecasts int
}

func (r *counting) Forecast(now time.Duration, ahead int64) time.Duration {
	r.forecasts++
	return r.every.Forecast(now, ahead)
}

// long returns a queue in which n wait, each until bound, or for ever.
func long(n int, bound func(i int) time.Duration) (*Queue, *counting) {
	q, r := new(Queue), &counting{every: every{interval: ms, next: ms}}
	q.Init(r, Config{Exact: true})
	for i := range n {
		w := &Waiter{n: 1}
		w.attend(nil)
		if d := bound(i); d != Forever {
			w.more().maxAt = d
		}
		q.push(w)
	}
	return q, r
}

// justInTime returns bounds up to a millisecond later than slots that a change delays by 300 ms,
// but for one.
func justInTime(but int) func(i int) time.Duration {
	return func(i int) time.Duration {
		slot := 301*ms + time.Duration(i)*ms
		if i == but {
			return slot - 1
		}
		return slot + 10*time.Microsecond + time.Duration(i*i%990)*time.Microsecond
	}
}

// A change asks for a few forecasts, however many wait, and for some more for each wait that
// it ends.
func TestQueue_Change_AsksForFewForecasts(t *testing.T) {
	const n = 20_000
	for name, c := range map[string]struct {
		bound       func(i int) time.Duration
		ends, asked int
	}{
		"unbounded":  {func(int) time.Duration { return Forever }, 0, 0},
		"far bounds": {func(int) time.Duration { return time.Hour }, 0, 1},
		"one is near": {func(i int) time.Duration {
			if i == n/2 {
				return 10 * time.Second
			}
			return time.Hour
		}, 1, 200},
		"each is just in time": {justInTime(-1), 0, 5},
		"each but one is":      {justInTime(n / 2), 1, 400},
		"each by a second":     {func(i int) time.Duration { return time.Duration(i)*ms + time.Second }, 0, 400},
	} {
		q, r := long(n, c.bound)
		before := q.length
		r.next += 300 * ms
		r.forecasts = 0
		q.failHopeless(0)
		if ended := int(before - q.length); ended != c.ends || r.forecasts > c.asked {
			t.Errorf("%s: ended %d with %d forecasts, want %d with %d", name, ended, r.forecasts, c.ends, c.asked)
		}
		q.Close(limits.ErrClosed)
	}
}

// What an index keeps does not grow with the number of those that have come and left, while
// one waits at the front for as long as it likes or all leave in turn.
func TestQueue_Push_IndexDoesNotGrow(t *testing.T) {
	for _, front := range []bool{true, false} {
		q, _ := long(100, func(int) time.Duration { return time.Hour })
		for range 100_000 {
			w := &Waiter{n: 1}
			w.attend(nil)
			w.more().maxAt = time.Hour
			if q.push(w); front {
				q.remove(q.front)
			} else {
				q.remove(w)
			}
		}
		if slots := len(q.bounds.index.chunks) * fan; slots > 10*fan {
			t.Errorf("front leaves %v: %d slots for 100 entries", front, slots)
		}
	}
}

// A change that makes calls slower leaves some chunks unlooked at, because all of their bounds are
// later. The next change must not trust what was known of them at the faster pace.
func TestQueue_Change_AfterASlowerPace(t *testing.T) {
	q, r := long(2*fan, func(i int) time.Duration {
		switch {
		case i == 0:
			return 50 * ms // ends at the first change, so that its chunk is looked at
		case i < fan:
			return 10 * time.Second
		}
		return time.Second
	})
	r.interval, r.next = 4*ms, 60*ms
	q.failHopeless(0)
	if n := q.Len(); n != 2*fan-1 {
		t.Fatalf("%d wait, of which one should have ended", n)
	}
	r.next = 600 * ms // those with more than 100 ahead leave after 1 s
	q.failHopeless(0)
	if n := q.Len(); n != 101 {
		t.Errorf("%d wait, want 101", n)
	}
}
