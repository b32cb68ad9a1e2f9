package leaky

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/limits"
)

// # Calls that cannot be rejected

// insist returns what Take would have returned.
func TestBucket_Insist_IsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 5})), limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 5}))
		r := rand.New(rand.NewPCG(1, 2))
		refused := 0
		for range 500 {
			time.Sleep(time.Duration(r.Int64N(int64(3 * sec))))
			n := 1 + r.Int64N(6)
			got, want := a.insist(n), b.Take(n)
			if got != want {
				t.Fatalf("%d: %+v, Take says %+v", n, got, want)
			}
			if !got.Allowed() {
				refused++
			}
		}
		if refused < 100 || refused > 400 {
			t.Errorf("%d of 500 were refused", refused)
		}
	})
}

// While some calls insist, others take, return and change the rate, and nothing is
// lost: neither what they took nor the rate.
func TestBucket_Insist_LosesNothing(t *testing.T) {
	b := limits.Must(New(limits.Rate{Count: 1, Per: 24 * time.Hour, Burst: 20}))
	var held, most atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			take := b.Take
			if i%2 == 0 {
				take = b.insist
			}
			for k := range 20_000 {
				if i == 7 && k%100 == 0 {
					if err := b.SetRate(limits.Rate{Count: 1 + int64(k/100%2), Per: 24 * time.Hour * time.Duration(1+k/100%2), Burst: 20}); err != nil {
						t.Error(err)
					}
				}
				if !take(5).Allowed() {
					continue
				}
				for h, m := held.Add(5), int64(0); h > m; {
					if m = most.Load(); most.CompareAndSwap(m, h) {
						break
					}
				}
				held.Add(-5)
				b.Adjust(context.Background(), -5, 0)
			}
		})
	}
	callers.Wait()
	if n := most.Load(); n > 20 || n < 5 {
		t.Errorf("%d of 20 were held at once", n)
	}
	if got := b.Take(0); got.Remaining != 20 || got.ResetAfter != 0 {
		t.Errorf("afterwards %+v", got)
	}
	if got := b.Rate().Per; got != 48*time.Hour {
		t.Errorf("the rate is per %v", got)
	}
}

// A call that is delayed between its clock and the bucket is not rejected by the
// clock that it has read.
func TestBucket_Take_OldClockRefusesNoCall(t *testing.T) {
	b := limits.Must(New(limits.Rate{Count: 1, Per: 2 * time.Millisecond, Burst: 1}))
	b.setting.Lock() // the state is closed, and calls must wait
	s := b.state.Load()
	s.tat.Store(closed)
	began, res := make(chan bool), make(chan limits.Result)
	go func() {
		began <- true
		res <- b.Take(1)
	}()
	<-began
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
		runtime.Gosched() // it has read its clock by now, or nothing is shown
	}
	s.tat.Store(int64(time.Since(b.epoch))) // empty from now on
	b.setting.Unlock()
	if r := <-res; !r.Allowed() {
		t.Errorf("%+v", r)
	}
}

// What the last call got makes no difference to the next.
func TestBucket_FullIsOnlyAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 3})), limits.Must(New(limits.Rate{Count: 1, Per: sec, Burst: 3}))
		r := rand.New(rand.NewPCG(3, 4))
		for range 1000 {
			time.Sleep(time.Duration(r.Int64N(int64(2 * sec))))
			n := 1 + r.Int64N(4)
			a.full.Store(r.IntN(2) == 0)
			b.full.Store(r.IntN(2) == 0)
			if got, want := a.Take(n), b.Take(n); got != want || a.full.Load() == got.Allowed() {
				t.Fatalf("%+v and %+v, and then it is full: %v", got, want, a.full.Load())
			}
		}
	})
}

// # Textbooks
//
// Each test here is a history in which a version from the textbooks and
// tutorials goes wrong, and is named after what is wrong with it.

// funnel is that textbook version, faults included: it shows that the
// histories below are ones in which they matter.
type funnel struct {
	capacity, left int32
	rate           float32 // per millisecond
	last           int64   // in milliseconds
}

func (f *funnel) watering(nowMillis int64, n int32) bool {
	elapsed := nowMillis - f.last
	leaked := int32(float32(elapsed) * f.rate)
	if leaked < 0 {
		f.left, f.last = f.capacity, nowMillis
	} else if leaked >= 1 {
		f.left, f.last = min(f.capacity, f.left+leaked), nowMillis
	}
	if f.left < n {
		return false
	}
	f.left -= n
	return true
}

// visits asks f for one unit at a time until it rejects, each step, for a
// minute, and returns how many it got.
func visits(step time.Duration, ask func(now time.Duration) bool) (n int64) {
	for now := time.Duration(0); now <= time.Minute; now += step {
		for ask(now) {
			n++
		}
	}
	return n
}

func TestTextbook_FunnelThatDropsTheFractionAtEachVisit(t *testing.T) {
	for _, v := range []struct {
		step       time.Duration
		mine, them int64
	}{
		{100 * time.Millisecond, 610, 610}, // ten at first, then 10 per second for a minute
		{150 * time.Millisecond, 610, 410},
		{199 * time.Millisecond, 608, 311},
	} {
		r, tat := mustRule(limits.Rate{Count: 10, Per: sec, Burst: 10}), time.Duration(0)
		mine := visits(v.step, func(now time.Duration) bool {
			var res limits.Result
			res, tat = decide(tat, now, &r, 1)
			return res.Allowed()
		})
		f := funnel{10, 10, 0.01, 0}
		them := visits(v.step, func(now time.Duration) bool { return f.watering(now.Milliseconds(), 1) })
		if mine != v.mine || them != v.them {
			t.Errorf("visited each %v: %d and the textbook's %d, want %d and %d", v.step, mine, them, v.mine, v.them)
		}
	}
}

// A float32 has 24 bits: after 4.7 hours it cannot count milliseconds. After
// a year a bucket still knows what a nanosecond is.
func TestTextbook_FloatRates(t *testing.T) {
	const year = 365 * 24 * time.Hour
	// Idle for 16,777,217 ms, the textbook's funnel of one per ms has leaked one
	// less.
	const idle = 1<<24 + 1
	f := funnel{capacity: math.MaxInt32, rate: 1}
	b, empty := mustRule(limits.Rate{Count: 1000, Per: sec, Burst: idle}), time.Duration(idle)*time.Millisecond
	if res, _ := decide(empty, empty, &b, idle); !res.Allowed() || f.watering(idle, idle) {
		t.Errorf("after %d ms: %+v, and the textbook's funnel has %d", idle, res, f.left)
	}
	// A double that is added up has not got a whole token after ten visits, each
	// of which brought a tenth.
	tenth, tokens := 10*time.Millisecond, 0.0
	for range 10 {
		tokens += 0.1
	}
	one := mustRule(limits.Rate{Count: 10, Per: sec, Burst: 1})
	if res, _ := decide(10*tenth, 10*tenth, &one, 1); !res.Allowed() || tokens >= 1 {
		t.Errorf("after 100 ms: %+v, and the textbook's double is %v", res, tokens)
	}

	r := mustRule(limits.Rate{Count: 3, Per: sec, Burst: 1_000_000})
	tat := year + 333_333_333
	for _, v := range []struct {
		now  time.Duration
		want bool
	}{
		{year - 1, false}, {year, true},
	} {
		full := mustRule(limits.Rate{Count: 3, Per: sec, Burst: 1})
		if res, _ := decide(tat-333_333_333, v.now, &full, 1); res.Allowed() != v.want {
			t.Errorf("at %d: %+v", v.now, res)
		}
	}
	// One at a time or all together: the same time, to the nanosecond.
	single, all := year, year
	for range 1_000_000 {
		_, single = decide(single, year, &r, 1)
	}
	if _, all = decide(all, year, &r, 1_000_000); single != all {
		t.Errorf("a million single units drain at %v, a million together at %v", single, all)
	}
}

// Setting the clock back 200 ms refilled the textbook's funnel; long idleness
// overflowed it and blocked it for days.
func TestTextbook_ClockThatStepsBack(t *testing.T) {
	r := mustRule(limits.Rate{Count: 10, Per: sec, Burst: 5})
	var tat time.Duration
	count := func(now time.Duration) (n int) {
		for {
			var res limits.Result
			if res, tat = decide(tat, now, &r, 1); !res.Allowed() {
				return n
			}
			n++
		}
	}
	const hour = time.Hour
	total := 0
	for _, v := range []struct {
		now  time.Duration
		want int
	}{
		{hour, 5},
		{hour - 200*time.Millisecond, 0}, // nothing minted
		{hour - time.Minute, 0},
		{hour, 0},
		{hour + 100*time.Millisecond, 1}, // nothing lost
		{hour - time.Minute, 0},
		{hour + 600*time.Millisecond, 5},
		{100 * 365 * 24 * hour, 5}, // idle for a century: full, not more, not less
	} {
		n := count(v.now)
		if n != v.want {
			t.Errorf("at %v: %d, want %d", v.now, n, v.want)
		}
		total += n
	}
	if total != 16 {
		t.Errorf("%d in all, want 16", total)
	}
	f := funnel{5, 0, 0.01, 3_600_000}
	if !f.watering(3_600_000-200, 5) {
		t.Error("the textbook's funnel has become better")
	}
}

// The clock is monotonic and read again at each attempt; but even decisions by
// stale clocks allow no more: x/time/rate let 40,000 through for 1,010
// (golang/go#71360).
func TestTextbook_StaleClocksAddNoUnits(t *testing.T) {
	r := mustRule(limits.Rate{Count: 1000, Per: sec, Burst: 10})
	var tat time.Duration
	var n int64
	for now := time.Duration(0); now <= sec; now += 25 * time.Microsecond {
		for _, stale := range []time.Duration{0, 20 * time.Millisecond} {
			var res limits.Result
			if res, tat = decide(tat, max(0, now-stale), &r, 1); res.Allowed() {
				n++
			}
		}
	}
	if n != 1010 {
		t.Errorf("%d, want 1010", n)
	}
}

// One tutorial looks its funnels up by action and stores them by user and
// action: each call finds none and gets a new one, and nothing is limited.
func TestTextbook_MapLookedUpByOneKeyAndStoredUnderAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type userAction struct{ user, action string }
		k := newKeyed[userAction](t, limits.Rate{Count: 1, Per: time.Hour, Burst: 3}, limits.KeyedConfig{})
		tutorial, theirs := make(map[string]*Bucket), 0
		for _, user := range []string{"ann", "bob"} {
			for i := range 10 {
				if r := k.Take(userAction{user, "reply"}, 1); r.Allowed() != (i < 3) {
					t.Errorf("%s, call %d: %+v", user, i, r)
				}
				b := tutorial["reply"]
				if b == nil {
					b = limits.Must(New(limits.Rate{Count: 1, Per: time.Hour, Burst: 3}))
					tutorial[user+":reply"] = b
				}
				if b.Take(1).Allowed() {
					theirs++
				}
			}
		}
		if theirs != 20 {
			t.Errorf("the tutorial let only %d of 20 through", theirs)
		}
		if k.Len() != 2 {
			t.Errorf("%d keys, want 2", k.Len())
		}
	})
}

// Get, and put if there was none: two first callers each make a bucket, and one
// of the two is lost with what it allowed.
func TestTextbook_GetThenPutLetsTwoFirstCallersIn(t *testing.T) {
	buckets := make(map[int]*Bucket)
	first, second := buckets[1], buckets[1] // both look before either puts
	for _, b := range []*Bucket{first, second} {
		if b == nil {
			b = limits.Must(New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1}))
			buckets[1] = b
		}
		if !b.Take(1).Allowed() {
			t.Error("get and put have become better")
		}
	}

	k := newKeyed[int](t, limits.Rate{Count: 1, Per: time.Hour, Burst: 1}, limits.KeyedConfig{})
	for key := range 2000 {
		var in atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if k.Take(key, 1).Allowed() {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Fatalf("key %d: %d first callers got in", key, in.Load())
		}
	}
}

// A fixed expiry of a day made a bucket of one per week free again on the next.
func TestTextbook_ExpiryShorterThanTheDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const week = 7 * 24 * time.Hour
		k := newKeyed[int](t, limits.Rate{Count: 1, Per: week, Burst: 2}, limits.KeyedConfig{})
		k.Take(-1, 2)
		var theirs int64
		var expiring *Bucket
		var expires time.Time
		fixedExpiry := func() {
			if !time.Now().Before(expires) {
				expiring, expires = limits.Must(New(limits.Rate{Count: 1, Per: week, Burst: 2})), time.Now().Add(24*time.Hour)
			}
			if expiring.Take(2).Allowed() {
				theirs += 2
			}
		}
		fixedExpiry()
		for day := 1; day <= 14; day++ {
			time.Sleep(24 * time.Hour)
			for other := range 1000 { // they come and go, so that much is discarded
				k.TakeRate(other, limits.Rate{Count: 1, Per: sec, Burst: 1}, 1)
			}
			time.Sleep(sec)
			for other := range 1000 {
				k.TakeRate(10_000*day+other, limits.Rate{Count: 1, Per: sec, Burst: 1}, 1)
			}
			if r := k.Take(-1, 2); r.Allowed() != (day == 14) {
				t.Errorf("day %d: %+v", day, r)
			}
			fixedExpiry()
		}
		if theirs != 30 {
			t.Errorf("with a fixed expiry of a day %d in two weeks, want 30 where 4 are due", theirs)
		}
		if k.Len() > 2001 {
			t.Errorf("%d keys are remembered, nothing is forgotten", k.Len())
		}
	})
}

// A token bucket that counts whole seconds is refilled at each edge of one: ten
// at 0.999 and ten more a millisecond later.
func TestTextbook_SecondSizedClockLetsTwiceThroughAtAnEdge(t *testing.T) {
	r, tat := mustRule(limits.Rate{Count: 10, Per: sec, Burst: 10}), time.Duration(0)
	seconds, tatS := mustRule(limits.Rate{Count: 10, Per: sec, Burst: 10}), time.Duration(0)
	var mine, theirs int
	for _, now := range []time.Duration{999 * time.Millisecond, 1000 * time.Millisecond} {
		for range 10 {
			var res limits.Result
			if res, tat = decide(tat, now, &r, 1); res.Allowed() {
				mine++
			}
			if res, tatS = decide(tatS, now.Truncate(sec), &seconds, 1); res.Allowed() {
				theirs++
			}
		}
	}
	if mine != 10 || theirs != 20 {
		t.Errorf("%d, and by the second %d; want 10 and 20", mine, theirs)
	}
}

// In any window the bucket keeps to capacity + W/T, here over all pairs of
// admits of a greedy caller.
func TestBucket_BoundOfAnyWindow(t *testing.T) {
	r, tat := mustRule(limits.Rate{Count: 3, Per: 100 * time.Millisecond, Burst: 7}), time.Duration(0)
	var grants []time.Duration
	for now := time.Duration(0); now < 3*sec; now += 777 * time.Microsecond {
		var res limits.Result
		if res, tat = decide(tat, now, &r, 1); res.Allowed() {
			grants = append(grants, now)
		}
	}
	tight := false
	for i := range grants {
		for j := i; j < len(grants); j++ {
			bound := 7 + int((grants[j]-grants[i])/r.Interval())
			if j-i+1 > bound {
				t.Fatalf("%d grants within %v", j-i+1, grants[j]-grants[i])
			}
			tight = tight || j-i+1 == bound
		}
	}
	if !tight || len(grants) < 95 || len(grants) > 97 {
		t.Errorf("%d grants, bound reached: %v", len(grants), tight)
	}
}

func newKeyed[K comparable](t testing.TB, rate limits.Rate, cfg limits.KeyedConfig) *Keyed[K] {
	t.Helper()
	k, err := NewKeyed[K](rate, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// # Recordings of others

// A taker is what a recording is replayed on: at is never earlier than in the
// call before.
type taker func(at time.Duration, n int64) limits.Result

const sec = time.Second

func mustRule(rate limits.Rate) kind.Bucket { return limits.Must(newRule(rate)) }

// decide is the rule, without a clock.
func decide(tat, now time.Duration, r *kind.Bucket, n int64) (limits.Result, time.Duration) {
	tat, res := r.Take(tat, now, n)
	return res, tat
}

// pure is decide, with a state.
func pure(q limits.Rate) taker {
	r := mustRule(q)
	var tat time.Duration
	return func(at time.Duration, n int64) (res limits.Result) {
		res, tat = decide(tat, at, &r, n)
		return res
	}
}

// real is a Bucket, in a bubble.
func real(q limits.Rate) taker {
	b, start := limits.Must(New(q)), time.Now()
	return func(at time.Duration, n int64) limits.Result {
		time.Sleep(at - time.Since(start))
		return b.Take(n)
	}
}

// oneKey is one key of a Keyed that is used with a rate of the call's own.
func oneKey(q limits.Rate) taker {
	k, err := NewKeyed[string](limits.Rate{Count: 1, Per: time.Hour, Burst: 1})
	if err != nil {
		panic(err)
	}
	start := time.Now()
	return func(at time.Duration, n int64) limits.Result {
		time.Sleep(at - time.Since(start))
		return k.TakeRate("key", q, n)
	}
}

var takers = map[string]func(limits.Rate) taker{"decide": pure, "Bucket": real, "Keyed": oneKey}

type throttleTrace struct {
	MaxBurst int64 `json:"max_burst"`
	Count    int64 `json:"count"`
	PeriodS  int64 `json:"period_s"`
	Ops      []struct {
		At         int64    `json:"at_ns"`
		N          int64    `json:"n"`
		Limited    bool     `json:"limited"`
		Limit      int64    `json:"limit"`
		Remaining  int64    `json:"remaining"`
		RetryAfter int64    `json:"retry_after_ns"`
		ResetAfter int64    `json:"reset_after_ns"`
		Cell       [5]int64 `json:"cell"`
	} `json:"ops"`
}

func replayThrottle(line []byte, on func(limits.Rate) taker) error {
	var trace throttleTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	take := on(limits.Rate{Count: trace.Count, Per: time.Duration(trace.PeriodS) * time.Second, Burst: trace.MaxBurst + 1})
	for i, op := range trace.Ops {
		got := take(time.Duration(op.At), op.N)
		want := limits.Result{Limit: op.Limit, Remaining: op.Remaining, RetryAfter: time.Duration(op.RetryAfter), ResetAfter: time.Duration(op.ResetAfter)}
		switch { // redis-cell says -1 for both
		case !op.Limited:
			want.RetryAfter++
		case op.RetryAfter == -1:
			want.RetryAfter = limits.Never
		}
		if got != want || got.Allowed() == op.Limited {
			return fmt.Errorf("op %d: %d at %d: got %+v, recorded %+v", i, op.N, op.At, got, want)
		}
		if cell := oracle.Cell(got); cell != op.Cell {
			return fmt.Errorf("op %d: %d at %d: cell %v, recorded %v", i, op.N, op.At, cell, op.Cell)
		}
	}
	return nil
}

type springTrace struct {
	RatePerS int64 `json:"rate_per_s"`
	Capacity int64 `json:"capacity"`
	Ops      []struct {
		At        int64 `json:"at_s"`
		N         int64 `json:"n"`
		Allowed   bool  `json:"allowed"`
		Remaining int64 `json:"remaining"`
	} `json:"ops"`
}

func replaySpring(line []byte, on func(limits.Rate) taker) error {
	var trace springTrace
	if err := oracle.Decode(line, &trace); err != nil {
		return err
	}
	if len(trace.Ops) == 0 {
		return fmt.Errorf("no operations")
	}
	take := on(limits.Rate{Count: trace.RatePerS, Per: time.Second, Burst: trace.Capacity})
	for i, op := range trace.Ops {
		got := take(time.Duration(op.At)*time.Second, op.N)
		if got.Allowed() != op.Allowed || got.Remaining != op.Remaining {
			return fmt.Errorf("op %d: %d at %d: got %+v, recorded %+v", i, op.N, op.At, got, op)
		}
	}
	return nil
}

// What redis-cell and Spring Cloud Gateway answered is what one function
// answers: CL.THROTTLE and the token bucket are the same arithmetic.

func TestOracle_CLThrottle(t *testing.T) {
	replayAll(t, "cl_throttle.jsonl", replayThrottle)
}

func TestOracle_Spring(t *testing.T) {
	replayAll(t, "spring_token_bucket.jsonl", replaySpring)
}

func replayAll(t *testing.T, name string, replay func([]byte, func(limits.Rate) taker) error) {
	for taker, on := range takers {
		t.Run(taker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, line := range oracle.Lines(t, name) {
					if err := replay(line, on); err != nil {
						t.Errorf("%s:%d: %v", name, i+1, err)
					}
				}
			})
		})
	}
}

// A replay that would accept a wrong answer is worth nothing.

func TestOracle_CLThrottle_FindsEachCorruptedField(t *testing.T) {
	corruptAll(t, "cl_throttle.jsonl", replayThrottle,
		"limited", "limit", "remaining", "retry_after_ns", "reset_after_ns",
		"cell 0", "cell 1", "cell 2", "cell 3", "cell 4", "unheard of")
}

func TestOracle_Spring_FindsEachCorruptedField(t *testing.T) {
	corruptAll(t, "spring_token_bucket.jsonl", replaySpring, "allowed", "remaining", "unheard of")
}

// corruptAll falsifies each field of one operation of each fifth trace, and
// wants each of the answers to be found out. What was asked matters not always:
// a rejected call may come a nanosecond later and be rejected.
func corruptAll(t *testing.T, name string, replay func([]byte, func(limits.Rate) taker) error, answers ...string) {
	found := map[string]int{}
	traces := 0
	for i, line := range oracle.Lines(t, name) {
		if i%5 != 0 {
			continue
		}
		traces++
		for _, c := range oracle.Corruptions(t, line, i) {
			if replay(c.Line, pure) != nil {
				found[c.What]++
			}
		}
	}
	for _, field := range answers {
		if found[field] != traces {
			t.Errorf("falsified %s: found in %d of %d traces", field, found[field], traces)
		}
	}
	if found["n"] == 0 {
		t.Error("falsified n: never found")
	}
}
