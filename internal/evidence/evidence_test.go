package evidence

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// A server answers a call at now, when that many others are in flight.
type server func(now time.Duration, inFlight int, rng *rand.Rand) (granted bool)

// honest fails calls at random, however many there are.
func honest(share float64) server {
	return func(_ time.Duration, _ int, rng *rand.Rand) bool { return rng.Float64() >= share }
}

// bucket grants rate calls a second, and a burst.
func bucket(rate, burst float64) server {
	level, last := 0., time.Duration(0)
	return func(now time.Duration, _ int, _ *rand.Rand) bool {
		level, last = max(0, level-rate*(now-last).Seconds()), now
		if level+1 > burst {
			return false
		}
		level++
		return true
	}
}

// A run is what came of the calls of a client that halves its pace at a Refusal, and starts slowly
// when it is Crowded.
type run struct {
	Judge
	crowded, refusals, mistaken int
	failures                    int
	pace                        float64
}

// play makes n calls, a pace of them each second. Each takes 20 ms, or 5 if it is not granted.
func play(s server, n int, pace float64, rng *rand.Rand) *run {
	type answer struct {
		at, left time.Duration
		granted  bool
	}
	r := &run{pace: pace}
	var flying []answer
	now, next := time.Second, time.Second
	answered := 0
	for n > 0 || len(flying) > 0 {
		first := -1
		for i, a := range flying {
			if first < 0 || a.at < flying[first].at {
				first = i
			}
		}
		if n > 0 && (first < 0 || next < flying[first].at) {
			now = next
			granted := s(now, len(flying), rng)
			took := 5*ms + time.Duration(rng.Int64N(int64(ms)))
			if granted {
				took += 15 * ms
			}
			flying = append(flying, answer{now + took, now, granted})
			next = now + time.Duration(float64(time.Second)/r.pace)
			n--
			continue
		}
		a := flying[first]
		flying = append(flying[:first], flying[first+1:]...)
		now = a.at
		answered++
		if a.granted {
			r.Granted(now, a.left)
			r.pace = min(pace, r.pace*1.02)
			continue
		}
		switch v, _ := r.Unclear(now, a.left, answered <= 64); v {
		case Crowded:
			r.crowded++
			r.pace = max(.2, r.pace/1.5)
		case Refusal:
			r.refusals++
			r.pace = max(.2, r.pace/1.5)
		case Mistaken:
			r.mistaken++
			r.pace = pace
		default:
			r.failures++
		}
	}
	return r
}

// A limit is recognized, and stays so.
func TestJudge_Limits(t *testing.T) {
	for name, c := range map[string]struct {
		server func() server
		pace   float64
	}{
		"20/s, burst 20": {func() server { return bucket(20, 20) }, 200},
		"20/s, burst 1":  {func() server { return bucket(20, 1) }, 200},
		"20/s at 40/s":   {func() server { return bucket(20, 5) }, 40},
		"200/s":          {func() server { return bucket(200, 20) }, 2000},
		"2/s":            {func() server { return bucket(2, 4) }, 50},
		"4 in flight": {func() server {
			return func(_ time.Duration, inFlight int, _ *rand.Rand) bool { return inFlight < 4 }
		}, 1000},
	} {
		for seed := range uint64(20) {
			r := play(c.server(), 2000, c.pace, rand.New(rand.NewPCG(seed, 1)))
			if r.state == watching || r.mistaken > 0 {
				t.Errorf("%s, seed %d: state %d, mistaken %d times", name, seed, r.state, r.mistaken)
			}
			if r.failures+r.crowded > 40 {
				t.Errorf("%s, seed %d: %d answers were taken for failures before", name, seed, r.failures+r.crowded)
			}
		}
	}
}

// Accidents are none, however many calls there are.
func TestJudge_Accidents(t *testing.T) {
	for _, share := range []float64{.001, .01, .02, .05} {
		for seed := range uint64(100) {
			r := play(honest(share), 200_000, 500, rand.New(rand.NewPCG(seed, uint64(share*1000))))
			if r.refusals > 0 || r.crowded > 10 {
				t.Errorf("seed %d: of %v of the calls that failed %d were refused, %d crowded", seed, share, r.refusals, r.crowded)
			}
		}
	}
}

// Calls that fail after they were worked on, 32 at the same time, are answered in another order than they left.
// Eight that were accepted between two failures had then left within microseconds, and a rate of 400,000/s made all others
// slow: a server that failed one call in 20 was taken for one with a limit, and asked 1.5 times a second, in one run of
// 75 with 87,000 calls.
func TestJudge_RateIsThatOfLeaving(t *testing.T) {
	var test test
	test.measure(1000*ms, 1)
	test.from, test.got = 1000*ms, 0
	for i := range 8 {
		test.measure(time.Duration(1100+100*i)*ms, 0) // ten a second
	}
	test.measure(1001*ms, 1) // it left right after the first
	if test.best < 9.9 || test.best > 10.1 {
		t.Errorf("8 calls accepted in 0.8 s: a rate of %v", test.best)
	}
}

// Three calls in a row that are rejected although they are not more frequent than others show a cap that is
// exceeded by one, or a lower limit, and no failures: of 200 others 2 were unclear.
func TestJudge_SlowCallsFailMore(t *testing.T) {
	var test test
	test.fast = sample{all: 200, unclear: 2}
	test.slow = sample{all: 3, unclear: 3}
	if !test.changed() {
		t.Error("3 of 3 slow calls fail as often as 2 of 200 others")
	}
	for _, s := range []sample{{all: 50, unclear: 4}, {all: 0, unclear: 0}, {all: 8, unclear: 1}} {
		test.fast, test.slow = sample{all: 200, unclear: 10}, s
		if test.changed() {
			t.Errorf("%v slow calls fail more often than 10 of 200 others", s)
		}
	}
}

// Of a server of which a large share fails, some are thought to be refusals for a moment. That is
// found out, and the next time is long after.
func TestJudge_ManyFailures(t *testing.T) {
	for _, share := range []float64{.1, .2, .3, .5, .7} {
		worst, believed := 0, 0
		for seed := range uint64(50) {
			r := play(honest(share), 5000, 500, rand.New(rand.NewPCG(seed, uint64(share*1000))))
			worst = max(worst, r.refusals)
			if r.state == certain {
				believed++
			}
		}
		t.Logf("%v: at most %d refusals of 5000 calls, believed at the end in %d of 50 runs", share, worst, believed)
		if worst > 300 || believed > 2 {
			t.Errorf("%v: up to %d refusals, %d of 50 servers are still believed", share, worst, believed)
		}
	}
}

// A server that is down refuses nothing, whether it was well before or not, and one with a limit
// that goes down, too.
func TestJudge_Down(t *testing.T) {
	down := func(from, to time.Duration, s server) server {
		return func(now time.Duration, inFlight int, rng *rand.Rand) bool {
			return (now < from || now >= to) && s(now, inFlight, rng)
		}
	}
	for name, c := range map[string]struct {
		server   server
		refusals int // at most
		limit    bool
	}{
		"from the beginning":       {down(0, time.Hour, honest(0)), 0, false},
		"later":                    {down(10*time.Second, time.Hour, honest(.001)), 0, false},
		"for ten seconds":          {down(10*time.Second, 20*time.Second, honest(.001)), 0, false},
		"a limit, from 20 s on":    {down(20*time.Second, time.Hour, bucket(20, 5)), 400, true},
		"a limit, for ten seconds": {down(20*time.Second, 30*time.Second, bucket(20, 5)), 800, true},
	} {
		r := play(c.server, 2000, 50, rand.New(rand.NewPCG(3, 4)))
		if r.refusals > c.refusals || (r.state != watching) != c.limit {
			t.Errorf("%s: %d refusals, state %d", name, r.refusals, r.state)
		}
	}
}

// What is believed is not any more after an hour without a sign of it.
func TestJudge_Forgets(t *testing.T) {
	r := play(bucket(20, 5), 1000, 200, rand.New(rand.NewPCG(1, 1)))
	now := r.last + asleep
	if v, _ := r.Unclear(now, now-ms, false); v != Refusal {
		t.Errorf("after an hour: %d", v)
	}
	now += asleep + 1
	if v, _ := r.Unclear(now, now-ms, false); v != Failure {
		t.Errorf("after more than an hour: %d", v)
	}
}

// A burst of 40 is a crowd: the calls of it that are told later are together with the first, and
// some were granted, which is known only then.
func TestJudge_Together(t *testing.T) {
	var j Judge
	for i := range 30 {
		v, together := j.Unclear(5*ms, 0, true)
		if together != (i > 0) {
			t.Errorf("answer %d: together %v", i, together)
		}
		if want := i >= few-1; (v == Crowded) != want {
			t.Errorf("answer %d: %d", i, v)
		}
	}
	if j.Grants() {
		t.Error("none was granted yet")
	}
	for range 10 {
		j.Granted(20*ms, 0)
	}
	if !j.Grants() {
		t.Error("ten were granted")
	}
	if _, together := j.Unclear(40*ms, 30*ms, true); together {
		t.Error("it left later")
	}
}

// Whatever happens, a refusal needs calls that were granted, and none follows a mistake soon.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("00110011111111111111"))
	f.Add([]byte{0, 1, 2, 3, 255, 254, 7, 9, 200, 130})
	f.Fuzz(func(t *testing.T, script []byte) {
		var j Judge
		now, grants, deaf := time.Duration(0), 0, time.Duration(-1)
		for i, b := range script {
			now += time.Duration(b>>3) * time.Duration(b>>3) * ms
			since := max(0, now-time.Duration(b&6)*10*ms)
			if b&1 == 0 {
				j.Granted(now, since)
				grants++
				continue
			}
			v, _ := j.Unclear(now, since, b&2 == 0)
			name := fmt.Sprintf("answer %d at %v", i, now)
			switch {
			case v == Refusal && grants < several:
				t.Errorf("%s: a refusal after %d grants", name, grants)
			case v != Failure && now < deaf:
				t.Errorf("%s: %d although deaf until %v", name, v, deaf)
			case v == Mistaken && j.deaf > now:
				deaf = j.deaf
			}
			if odds := j.test.odds(); odds != odds {
				t.Fatalf("%s: the odds are no number", name)
			}
		}
	})
}

// A server that answers all calls unclearly soon after it clearly rejected some has banned the client.
func TestJudge_Ban(t *testing.T) {
	const s = time.Second
	unclear := func(j *Judge, now time.Duration) Verdict {
		v, _ := j.Unclear(now, now-10*ms, false)
		return v
	}
	var j Judge
	j.Granted(9*s, 9*s-20*ms)
	j.Rejected(10 * s)
	for now := 11 * s; now <= 71*s; now += 10 * s {
		if v := unclear(&j, now); v != Refusal {
			t.Errorf("%v after the rejection: %v", now-10*s, v)
		}
	}
	if v := unclear(&j, 72*s); v == Refusal {
		t.Error("after more than a minute it is still a ban")
	}
	j.Granted(73*s, 73*s-20*ms)
	if v := unclear(&j, 74*s); v == Refusal {
		t.Error("a call that fails after another one was accepted is banned")
	}

	j = Judge{}
	for now := range 3 {
		unclear(&j, time.Duration(now+1)*s)
	}
	j.Rejected(20 * s)
	if v := unclear(&j, 21*s); v == Refusal {
		t.Error("what began long before a rejection is a ban because of it")
	}

	for _, tt := range []struct {
		name     string
		rejected time.Duration // 0: never
		granted  time.Duration // when a call left that is accepted later
		want     [3]bool       // whether the next ones, from 20 s on, are rejections
	}{
		{"no rejection", 0, 0, [3]bool{}},
		{"long ago", 14 * s, 0, [3]bool{}},
		{"just now", 19 * s, 0, [3]bool{true, true, true}},
		{"another was accepted since", 18 * s, 19 * s, [3]bool{false, true, true}},
	} {
		var j Judge
		if tt.rejected > 0 {
			j.Rejected(tt.rejected)
		}
		if tt.granted > 0 {
			j.Granted(tt.granted+20*ms, tt.granted)
		}
		for i, want := range tt.want {
			if got := unclear(&j, 20*s+time.Duration(i)*100*ms) == Refusal; got != want {
				t.Errorf("%s: answer %d: %v, want %v", tt.name, i, got, want)
			}
		}
	}
}

// A finding that was wrong says nothing of a ban: a Judge that is deaf hears it, and only it.
func TestJudge_BanWhileDeaf(t *testing.T) {
	const s = time.Second
	unclear := func(j *Judge, now time.Duration) Verdict {
		v, _ := j.Unclear(now, now-10*ms, false)
		return v
	}
	var j Judge
	j.refute(10 * s)
	if v := unclear(&j, 12*s); v != Failure {
		t.Errorf("an unclear answer: %d", v)
	}
	if j.Quiet() {
		t.Error("it does not hear that another call was accepted")
	}
	j.Granted(13*s, 13*s-20*ms)
	j.Rejected(20 * s)
	for now := 20 * s; now < 30*s; now += s {
		if v := unclear(&j, now); v != Refusal {
			t.Errorf("%v after the rejection: %d", now-20*s, v)
		}
	}
	j.Granted(31*s, 31*s-20*ms)
	if v := unclear(&j, 32*s); v != Failure {
		t.Errorf("after the ban: %d", v)
	}
}

// After a burst of unclear answers that ended at once, because calls started slowly, a few more are no accident.
func TestJudge_BurstAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		lasts time.Duration
		later time.Duration
		want  Verdict
	}{
		{"soon", 150 * ms, 3 * time.Second, Refusal},
		{"late", 150 * ms, 11 * time.Second, Failure},
		{"a long burst", 1500 * ms, 3 * time.Second, Failure},
	} {
		var j Judge
		for range 20 {
			j.Unclear(5*ms, 0, true)
		}
		for range 10 {
			j.Granted(80*ms, 0)
		}
		j.Unclear(c.lasts, c.lasts-10*ms, true) // and then calls start slowly
		for i := range time.Duration(40) {
			j.Granted(1600*ms+40*ms*i, 1590*ms+40*ms*i)
		}
		v := Failure
		for i := range time.Duration(few) {
			v, _ = j.Unclear(c.later+i*10*ms, c.later+i*10*ms-5*ms, false)
		}
		if v != c.want {
			t.Errorf("%s: %d, want %d", c.name, v, c.want)
		}
	}
}
