package adaptive

import (
	"math"
	"reflect"
	"testing"
	"time"
)

const second = time.Second

// paced returns a rule that believes in 10 calls per second and has let one leave at 0.
func paced(t *testing.T) *Rule {
	t.Helper()
	r := New(Config{Max: 10})
	r.TakeOver(0, Past{Rate: 10})
	if at := r.Next(0, 0); at > 0 {
		t.Fatalf("the first call leaves at %v", at)
	}
	r.Leave(0, 1, 0)
	return r
}

// A gate with a rate begins to learn at that rate, a little below it.
func TestRule_TakeOver_AtARate(t *testing.T) {
	r := paced(t)
	b := r.Belief()
	if b.Phase != Tracking || b.Rate != 10 || b.Pace > 10 || b.Pace < 9.6 || r.Changes() != 0 {
		t.Errorf("%+v", b)
	}
}

// What left before is in the ledger: the first refusals tell how much was granted.
func TestRule_TakeOver_CountsThePast(t *testing.T) {
	r := New(Config{Unlimited: true})
	r.TakeOver(20*second, Past{Since: 0, Calls: 400, Cost: 400, Answer: second})
	c := r.Before(20*second, 1, 0)
	r.Done(20*second, c, Reply{Outcome: Refused})
	if b := r.Belief(); b.Pace < 5 || b.Pace > 20 || !b.Blocked {
		t.Errorf("20 calls per second were granted: %+v", b)
	}
}

// Wait changes nothing and agrees with Next.
func TestRule_Wait(t *testing.T) {
	r := paced(t)
	r.capacity.limit = 3
	for _, c := range []struct {
		now      time.Duration
		inFlight int
	}{{0, 0}, {0, 3}, {50 * time.Millisecond, 1}, {second, 2}} {
		before := *r
		got := r.Wait(c.now, c.inFlight)
		if !reflect.DeepEqual(before, *r) {
			t.Errorf("%v: Wait has changed the rule", c)
		}
		if want := r.Next(c.now, c.inFlight); got != want {
			t.Errorf("%v: Wait returns %v, Next %v", c, got, want)
		}
	}
}

// A call that is woken late costs the next one nothing.
func TestRule_Late(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{0: 222 * time.Millisecond, 20 * time.Millisecond: 203 * time.Millisecond} {
		r := paced(t)
		now := 120 * time.Millisecond // its slot came at 103 ms
		r.Late(late)
		r.Leave(now, 1, 0)
		next := r.Next(now, 0)
		if d := next - want; d < -5*time.Millisecond || d > 5*time.Millisecond {
			t.Errorf("late by %v: the next one leaves at %v, want about %v", late, next, want)
		}
	}
}

func TestRule_Settle(t *testing.T) {
	r := paced(t)
	before := r.Next(0, 0)
	r.Settle(0, 0, 1)
	if got := r.Next(0, 0) - before; got < 90*time.Millisecond || got > 110*time.Millisecond {
		t.Errorf("a call that cost 1 more holds the next one up for %v", got)
	}
	r.Settle(0, 0, -2)
	if got := r.Next(0, 0); got > 0 || r.ledger.sent != 0 {
		t.Errorf("a call that cost nothing holds the next one up until %v", got)
	}
}

func TestRule_Bound(t *testing.T) {
	r := paced(t)
	r.Bound(0, 2, 0)
	if b := r.Belief(); b.Pace != 2 {
		t.Errorf("%+v", b)
	}
	for _, none := range []float64{0, -1, math.NaN()} {
		if r.Bound(0, none, 0); !math.IsInf(r.cfg.Max, 1) {
			t.Errorf("%v: %v", none, r.cfg.Max)
		}
	}
}

// A maximum counts calls, of whatever they cost in the mean, or cost; of this process, while all
// that share the limit are paced together.
func TestRule_Most(t *testing.T) {
	for _, ofCost := range []bool{false, true} {
		r := New(Config{Max: 2, MaxCost: ofCost})
		r.TakeOver(0, Past{Rate: 1000, Calls: 10, Cost: 1000})
		r.Share(0, .25, 4)
		want := 4 * 2 * 100.
		if ofCost {
			want = 4 * 2
		}
		if b := r.Belief(); r.most() != want || b.Pace*4 > want*1.001 {
			t.Errorf("of cost %v: at most %v, want %v; %+v", ofCost, r.most(), want, b)
		}
	}
}

// A rate that was lowered for a while does not hold up calls after that: the pace is what was
// learned before, and the next call does not wait for its slot at the lower rate.
func TestRule_Bound_LowerForAWhile(t *testing.T) {
	for _, search := range []bool{false, true} {
		r := paced(t)
		if search {
			r = New(Config{Start: 10})
			r.Leave(0, 1, 0)
		}
		pace, next := r.Belief().Pace, r.Next(0, 0)
		r.Bound(0, 1./3600, 0)
		if at := r.Next(0, 0); at < time.Minute-time.Millisecond {
			t.Errorf("search %v: at a rate of 1/h the next call leaves at %v, want a minute, the least pace", search, at)
		}
		r.Bound(0, 100, 0)
		if b := r.Belief(); b.Pace < pace {
			t.Errorf("search %v: the pace is %v, and was %v", search, b.Pace, pace)
		}
		if at := r.Next(0, 0); at > next+time.Microsecond {
			t.Errorf("search %v: the next call leaves at %v, want %v", search, at, next)
		}
	}
}

// A configured bound of the calls in flight holds from now on, and what was learned of the
// server's is not lost while a lower one holds.
func TestRule_Bound_Concurrency(t *testing.T) {
	want := func(r *Rule, configured, want int) {
		t.Helper()
		r.Bound(0, 0, configured)
		if got := r.capacity.bound(); got != want {
			t.Errorf("%v: with %d configured, the bound is %d, want %d", r.phase, configured, got, want)
		}
	}
	r := paced(t)
	want(r, 2, 2)
	want(r, 10, 10)
	want(r, 0, math.MaxInt)
	want(r, 3, 3)
	if b := r.Belief(); b.Concurrency != 3 {
		t.Errorf("%+v", b)
	}
	for _, phase := range []Phase{Capped, Slowed} {
		r := paced(t)
		r.phase, r.capacity.limit = phase, 8
		want(r, 20, 8)
		want(r, 2, 2)
		want(r, 10, 8)
		want(r, 0, 8)
	}
	capped := paced(t)
	capped.phase, capped.capacity.limit = Capped, 8
	capped.Bound(0, 0, 2)
	if capped.capacity.move(capped, +1); capped.capacity.limit != 8 {
		t.Errorf("a bound that was not reached has moved to %v", capped.capacity.limit)
	}
	small := New(Config{MaxConcurrency: 2})
	if err := small.Restore(capped.Snapshot()); err != nil {
		t.Fatal(err)
	}
	want(small, 2, 2)
	want(small, 0, 8)
}

func TestRule_Resume(t *testing.T) {
	r := paced(t)
	c := r.Leave(second, 1, 0)
	r.Done(second, c, Reply{Outcome: Refused, RetryAfter: time.Hour})
	if at := r.Next(second, 0); at < time.Hour {
		t.Fatalf("asked for an hour, asks again at %v", at)
	}
	r.Resume(2 * second)
	if at := r.Next(2*second, 0); at > 2*second {
		t.Errorf("asks again at %v", at)
	}
}

func TestRule_AtMax(t *testing.T) {
	r := paced(t)
	now := time.Duration(0)
	for i := range 1000 {
		if i < 50 && r.AtMax() {
			t.Fatalf("after %d calls", i)
		}
		now = max(now, r.Next(now, 0))
		r.Done(now, r.Leave(now, 1, 0), Reply{})
	}
	if !r.AtMax() {
		t.Error("not after 1,000")
	}
}

func TestRule_Asleep(t *testing.T) {
	r := paced(t)
	if r.Asleep(59*second, time.Minute) || !r.Asleep(60*second, time.Minute) {
		t.Error("not a minute after the last call")
	}
	c := r.Leave(70*second, 1, 0)
	r.Done(70*second, c, Reply{Outcome: Refused, RetryAfter: time.Hour})
	if r.Asleep(time.Hour, time.Minute) {
		t.Error("while the server has asked for a pause")
	}
}
