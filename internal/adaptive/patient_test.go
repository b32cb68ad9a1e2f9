package adaptive

import (
	"slices"
	"testing"
	"time"
)

// banning returns a bucket that bans a client whose call it refuses. Each call during the
// ban begins it again.
func banning(rate, burst, ban float64) (take func(t float64) bool, bans func() int) {
	have, until, n := bucket(burst, steady(rate)), 0., 0
	return func(t float64) bool {
		granted := have(t)
		if t >= until && granted {
			return true
		}
		if t >= until {
			n++
		}
		until = t + ban
		return false
	}, func() int { return n }
}

// withBan returns have with a ban, which a call does not begin again.
func withBan(have func(t float64) bool, ban float64) func(t float64) bool {
	until := 0.
	return func(t float64) bool {
		granted := have(t)
		if t >= until && !granted {
			until = t + ban
		}
		return t >= until && granted
	}
}

func TestConfig_Costly_AvoidsBans(t *testing.T) {
	for _, rate := range []float64{4, 5, 8} {
		take, bans := banning(rate, rate, 30)
		r := newRun(t, Config{Costly: true}, server{take: take})
		r.until(900)
		if g := float64(len(r.granted)); bans() > 2 || g < .55*900*rate {
			t.Errorf("of %v/s it was banned %d times, and granted %v of %v calls", rate, bans(), g, 900*rate)
		}
	}
}

// No call leaves for 31 s after a refusal, but those that were on their way.
func TestConfig_Costly_IsQuietAfterARefusal(t *testing.T) {
	take, _ := banning(5, 5, 30)
	r := newRun(t, Config{Costly: true}, server{take: take})
	r.until(300)
	if len(r.refused) == 0 {
		t.Fatal("nothing was refused")
	}
	first := r.refused[0]
	if n := count(r.sent, first+r.rtt+.001, first+31); n > 0 {
		t.Errorf("%d calls left within 31 s after the first refusal", n)
	}
}

func TestConfig_Costly_RisesSlowly(t *testing.T) {
	r := newRun(t, Config{Costly: true}, server{})
	r.until(20)
	if b := r.controller.Belief(); b.Pace < 6 || b.Pace > 12 {
		t.Errorf("after some 130 calls the pace is %v, want about 10", b.Pace)
	}
}

// A search that begins while the server accepts nothing, as after Forget in a window that is used up, has shown no rate.
// A call per minute had followed, and more only after 48 of them.
func TestConfig_Costly_ARateIsNotWhatNobodyWasGranted(t *testing.T) {
	window := windows(240, 60, 0)
	for t := range 240 {
		window(float64(t) / 240)
	}
	r := newRun(t, Config{Costly: true}, server{take: window})
	r.until(300)
	if n := count(r.granted, 120, 300); n < 180 {
		t.Errorf("%d calls were granted in three minutes: %+v", n, r.controller.Belief())
	}
}

// Polls that a window has timed do not lengthen the gap between those that follow when it turns out to be none. At 10 per
// minute, polls every ten seconds led to one in eight minutes, after each rejection.
func TestConfig_Costly_PollsOfAWindowKeepTheGap(t *testing.T) {
	c := New(Config{Costly: true})
	call := c.Started(0, 1, 0)
	c.window.begin(c, 20, 10, 0)
	c.block(1, call, point{at: 1}, false)
	at := time.Second
	for range 8 {
		at = c.Demand(at, 0)
		c.Ended(at, c.Started(at, 1, 0), Reply{Outcome: Refused})
		if c.phase != Windowed {
			break
		}
	}
	if next := c.Peek(at, 0); c.phase == Windowed || next-at > 2*time.Minute {
		t.Errorf("%v: the poll after that at %v is at %v", c.phase, at, next)
	}
}

// Each rejection costs half a minute, and in the next cycle nothing is accepted either: the limit has fallen far, and
// what was accepted before is no bound.
func TestConfig_Costly_FollowsALimitThatFallsFar(t *testing.T) {
	rate := func(t float64) float64 {
		if t > 90 {
			return 3
		}
		return 15
	}
	r := newRun(t, Config{Costly: true}, server{take: withBan(bucket(1, rate), 30)})
	r.until(400)
	if n := count(r.granted, 90, 400); n < 300 {
		t.Errorf("%d calls were granted in five minutes at 3/s", n)
	}
}

// After an incident each rejection was followed by a silence as long as the one that had ended it: three minutes, at a limit
// of 15 calls in 15 seconds.
func TestController_ASilenceBecomesShorterAgain(t *testing.T) {
	var log []float64
	take := func(t float64) bool {
		for len(log) > 0 && log[0]+15 <= t {
			log = log[1:]
		}
		limit := 81
		if t > 178 {
			limit = 15
		}
		if t > 48 && t < 136 || len(log) >= limit {
			return false
		}
		log = append(log, t)
		return true
	}
	r := newRun(t, Config{Unlimited: true}, server{take: take, retry: func(float64) time.Duration { return time.Second }})
	r.callers = 16
	r.until(1400)
	if n := count(r.granted, 600, 1400); n < 350 {
		t.Errorf("%d calls were granted in 800 s at 1/s: %+v", n, r.controller.Belief())
	}
}

// A silence that was tried in a blockage which another process has ended is not that of the next.
func TestController_block_TriesNoEarlierSilence(t *testing.T) {
	c := New(Config{})
	call := c.Started(0, 1, 0)
	c.phase = Tracking
	c.track(c.phase, 10, Measured)
	c.blockage.quiet, c.blockage.shorter = 60, shorter{trying: true}
	c.block(1, call, point{at: 1}, false)
	if c.unblock(Call{sent: 2, cost: 1}); c.blockage.quiet == 1 || c.blockage.shorter.trying {
		t.Errorf("%+v", c.blockage)
	}
}

// Half of a silence is tried more seldom if it was too short before.
func TestShorter(t *testing.T) {
	var s shorter
	var blockages []int
	for i := range 40 {
		if s.begins(120) == 60 {
			blockages = append(blockages, i)
			s.failed()
			continue
		}
		s.ended(true)
	}
	if !slices.Equal(blockages, []int{2, 7, 16, 33}) {
		t.Errorf("it is tried in blockages %v", blockages)
	}
	if s = (shorter{enough: 99}); s.begins(longSilence) != longSilence {
		t.Error("no short silence becomes shorter")
	}
	if s.begins(120); !s.trying {
		t.Fatal("it is not tried")
	}
	if s.ended(true); s != (shorter{}) {
		t.Errorf("half of it was enough: %+v", s)
	}
	s.ended(true)
	if s.ended(false); s.enough != 0 {
		t.Error("a blockage with more polls does not show that the silence is enough")
	}
}
