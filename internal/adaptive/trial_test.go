package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A server that sheds a share of all calls at random, and says no time, has no limit: a search gets a good part of the 228
// calls per second that 32 callers get from it. With 5 % shed it ended at one.
func TestTrial_AShareOfAllCallsIsNoLimit(t *testing.T) {
	for share, want := range map[float64]float64{.03: 100, .05: 85, .08: 40} {
		const runs = 10
		mean := 0.
		for seed := range uint64(runs) {
			random := rand.New(rand.NewPCG(seed, 1))
			r := newRun(t, Config{}, server{
				take:    func(float64) bool { return random.Float64() >= share },
				service: func() float64 { return .1 },
			})
			r.callers = 32
			r.until(300)
			mean += float64(count(r.granted, 100, 300)) / 200 / runs
		}
		t.Logf("%.0f %% shed: %.0f/s of 228", 100*share, mean)
		if mean < want {
			t.Errorf("%.0f %% shed: %.0f calls per second of 228, want %.0f", 100*share, mean, want)
		}
	}
}

// A limit that falls for five minutes looks alike, lesson after lesson. To try twice its rate costs few calls.
func TestTrial_AFallingLimitIsOne(t *testing.T) {
	fall := func(t float64) float64 { return 100 * math.Exp2(-t/100) }
	r := newRun(t, Config{}, server{take: bucket(10, fall)})
	r.until(300)
	granted, refused := count(r.granted, 0, 300), count(r.refused, 0, 300)
	t.Logf("%d granted of 12,600, %d refused", granted, refused)
	if granted < 11000 || refused > 600 {
		t.Errorf("%d granted of 12,600, and %d refused", granted, refused)
	}
}

// A trial begins after six lessons before each of which less was accepted than ever before, though not by half, and none of
// which is of a rejection with a time.
func TestTrial_Begins(t *testing.T) {
	for _, c := range []struct {
		name   string
		rates  []float64
		told   int // the lesson of these that has a time; 0: none
		failed int
		on     bool
	}{
		{"six lower ones", []float64{20, 19, 18, 17, 16, 15, 14}, 0, 0, true},
		{"five", []float64{20, 19, 18, 17, 16, 15}, 0, 0, false},
		{"the same again", []float64{20, 19, 18, 18, 17, 16, 15, 14}, 0, 0, true},
		{"a little more once", []float64{20, 19, 18, 18.8, 17, 16, 15, 14}, 0, 0, true},
		{"more once", []float64{20, 19, 18, 19, 17, 16, 15, 14}, 0, 0, false},
		{"towards a limit", []float64{20, 19, 18.5, 18.2, 18, 17.9, 17.8, 17.7, 17.6}, 0, 0, false},
		{"one by half", []float64{20, 19, 18, 8, 7, 6, 5}, 0, 0, false},
		{"one with a time", []float64{20, 19, 18, 17, 16, 15, 14}, 4, 0, false},
		{"six after a limit", []float64{20, 19, 18, 17, 16, 15, 14}, 0, 1, false},
		{"twelve after a limit", []float64{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8}, 0, 1, true},
	} {
		ctl := New(Config{})
		r := trial{failed: c.failed}
		for i, rate := range c.rates {
			ctl.blockage.told = c.told > 0 && i == c.told
			for range 10 {
				r.call(ctl, 0)
			}
			r.refused(false)
			r.lesson(ctl, rate)
		}
		if r.on != c.on {
			t.Errorf("%s: a trial %t", c.name, r.on)
		}
		if want := .1; r.on && r.share != want {
			t.Errorf("%s: a share of %v was rejected, want %v", c.name, r.share, want)
		}
	}
	many := trial{top: 20, low: 10, sunk: 100, calls: 1000, bad: 121}
	if many.lesson(New(Config{}), 9); many.on {
		t.Error("a trial although 12.1 % of the calls are rejected")
	}
	for _, cfg := range []Config{{Costly: true}, {}} {
		ctl := New(cfg)
		if !cfg.Costly {
			ctl.sharing.peers = 2
		}
		r := trial{top: 20, low: 10, sunk: 100, calls: 1000}
		if r.lesson(ctl, 9); r.on {
			t.Errorf("a trial where each rejection costs much (%t) or others share the limit", cfg.Costly)
		}
	}
}

// It ends at four rejections near each other, or at one with a time, and the next one takes twice as many lessons.
// Otherwise 64 calls decide.
func TestTrial_Ends(t *testing.T) {
	play := func(ctl *Controller, r *trial, calls string) {
		for _, call := range calls {
			switch call {
			case '.':
				r.call(ctl, 1)
			case 'x':
				r.call(ctl, 1)
				r.refused(false)
			case 't':
				r.call(ctl, 1)
				if r.refused(true) {
					t.Error("a rejection with a time is part of a trial")
				}
			}
		}
	}
	for _, c := range []struct {
		calls  string
		on     bool
		failed int
	}{
		{"xxxx", true, 0}, // each call takes a little off
		{"xxxxx", false, 1},
		{"x.x.x.x.x.", true, 0},
		{"x.x.x.x.x.x.", false, 1},
		{"..t", false, 1},
	} {
		ctl, r := New(Config{}), trial{on: true, share: .05}
		ctl.phase = Tracking
		if play(ctl, &r, c.calls); r.on != c.on || r.failed != c.failed || ctl.phase != Tracking {
			t.Errorf("after %s: a trial %t, failed %d, %v", c.calls, r.on, r.failed, ctl.phase)
		}
	}
	sixteen := "...............x" // one in sixteen
	for _, c := range []struct {
		share  float64 // before
		phase  Phase
		failed int
	}{{.05, Searching, 0}, {.01, Searching, 0}} {
		ctl, r := New(Config{}), trial{on: true, share: c.share}
		ctl.phase = Tracking
		play(ctl, &r, sixteen+sixteen+sixteen+"...............")
		if !r.on {
			t.Fatal("it ended too early")
		}
		r.bad++
		if play(ctl, &r, "."); r.on || ctl.phase != c.phase || r.failed != c.failed {
			t.Errorf("one in sixteen, before %v: a trial %t, failed %d, %v", c.share, r.on, r.failed, ctl.phase)
		}
		if got, want := ctl.chance.share, (c.share+1./16)/2; c.phase == Searching && math.Abs(got-want) > 1e-9 {
			t.Errorf("a share of %v is chance, want %v", got, want)
		}
	}
	ctl, r := New(Config{}), trial{on: true, failed: 1}
	ctl.phase = Capped
	if r.call(ctl, 1); r.on || r.failed != 1 {
		t.Errorf("it goes on although a cap was found: %+v", r)
	}
}

// While it lasts the pace is twice the rate, and rejections of it change nothing.
func TestTrial_TwiceThePace(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.track(Tracking, 10, Measured)
	c.trial = trial{on: true, share: .05}
	c.pace.set(c)
	equal(t, "pace", c.pace.now, 20)
	before := c.Belief()
	call := c.Started(time.Second, 1, 0)
	c.Ended(2*time.Second, call, Reply{Outcome: Refused})
	if b := c.Belief(); b.Ignored != before.Ignored+1 || b.Blocked || b.Changes != before.Changes {
		t.Errorf("one rejection made %+v of %+v", b, before)
	}
}
