package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

func always(d time.Duration) func(float64) time.Duration {
	return func(float64) time.Duration { return d }
}

// A server that asks for half a minute after each refusal, and becomes ten times as fast, is
// followed although each look at the bounds costs that.
func TestController_FollowsAFasterServerThatAsksForPauses(t *testing.T) {
	for _, wait := range []float64{5, 30, 60} {
		rate := func(at float64) float64 {
			if at < 900 {
				return 5
			}
			return 50
		}
		r := newRun(t, Config{}, server{take: bucket(20, rate), retry: always(seconds(wait))})
		r.until(3600)
		if n := count(r.granted, 2700, 3600); n < 80*50*900/100 {
			t.Errorf("it asks for %v s: granted %d of %d calls: %+v", wait, n, 50*900, r.controller.Belief())
		}
		if n := count(r.granted, 300, 900); n < 85*5*600/100 {
			t.Errorf("it asks for %v s: granted %d of %d calls before", wait, n, 5*600)
		}
	}
}

// incident returns a server that refuses a share of the calls for a minute, the first ones of each
// hundred, and asks to wait a second.
func incident(from, share float64, take func(float64) bool) server {
	n := 0
	return server{
		take: func(at float64) bool {
			if at >= from && at < from+60 {
				n++
				return float64(n%100) >= 100*share && (take == nil || take(at))
			}
			return take == nil || take(at)
		},
		retry: func(at float64) time.Duration {
			if at >= from && at < from+60 {
				return time.Second
			}
			return 0
		},
	}
}

// What is measured in an incident is no limit: the throughput is back within a minute.
func TestController_AnIncidentIsNoLimit(t *testing.T) {
	built.SkipRaced(t)
	for _, cfg := range []Config{{}, {Unlimited: true}} {
		for _, share := range []float64{.05, .25, .5, .8} {
			for _, limited := range []bool{false, true} {
				var take func(float64) bool
				if limited {
					take = bucket(20, steady(100))
				}
				r := newRun(t, cfg, incident(300, share, take))
				r.callers = 16
				r.until(490)
				before, after := count(r.granted, 240, 300), count(r.granted, 421, 481)
				if float64(after) < .9*float64(before) {
					t.Errorf("%v of the calls were refused, limited: %v: granted %d in the minute before, and %d in the one after next: %+v",
						share, limited, before, after, r.controller.Belief())
				}
			}
		}
	}
}

// Rejections at random say still less than those in rows: one poll in two is rejected, too, so the incident may
// end with a belief in a call in ten seconds, or with a short time in which the pace was back. The throughput
// is back within a minute in all of the seeds.
func TestController_AnIncidentOfRandomRejectionsIsNoLimit(t *testing.T) {
	const begin, rate = 150., 4 / .05
	for _, share := range []float64{.5, .8} {
		for seed := range uint64(12) {
			random := rand.New(rand.NewPCG(seed, 26))
			r := newRun(t, Config{Unlimited: true}, server{
				take: func(at float64) bool {
					return at < begin || at >= begin+60 || random.Float64() >= share
				},
				retry: always(time.Second),
			})
			r.callers = 4
			end := begin + 60.
			for r.until(end); end < begin+300 && count(r.granted, end-5, end) < .9*5*rate; end += 5 {
				r.until(end + 5)
			}
			if back := end - 5 - begin - 60; back > 60 {
				t.Errorf("%v of the calls were rejected, seed %d: back after %v s: %+v", share, seed, back, r.controller.Belief())
			}
		}
	}
}

// What an incident has shown about rejections does not outlast it. The server names a time only during the incident, so
// those of its limit, which say less, were ignored until three came near each other. So a pace a tenth above the limit
// was kept, or a cap was seen where none is.
func TestController_AnIncidentLeavesNothingBehind(t *testing.T) {
	const begin, end, rate = 300., 360., 100.
	for _, strays := range []bool{false, true} {
		for _, share := range []float64{.05, .25, .8} {
			r := newRun(t, Config{Unlimited: true}, incident(begin, share, bucket(20, steady(rate))))
			r.callers, r.rtt = 16, .075
			if strays {
				r.controller.Strays()
			}
			r.until(end + 500)
			before, after := count(r.refused, begin-200, begin), count(r.refused, end+200, end+400)
			if after > before+before/2 {
				t.Errorf("%v of the calls were refused, strays %v: %d of the limit's refusals in 200 s before, and %d after it",
					share, strays, before, after)
			}
			if n := count(r.granted, end+100, end+500); float64(n) < .98*400*rate {
				t.Errorf("%v of the calls were refused, strays %v: granted %d of %v calls after it: %+v",
					share, strays, n, 400*rate, r.controller.Belief())
			}
		}
	}
}

// An incident may go on after the pace is back: what it says then is forgotten when the trouble is over.
func TestService_Paced_ForgetsTimes(t *testing.T) {
	c := New(Config{})
	c.phase, c.pace.now, c.chance.told = Tracking, 100, 3
	c.service = service{rate: 100, begin: 0, since: 100, fell: true}
	c.service.paced(c, 130)
	equal(t, "rejections with a time, when the pace is back", float64(c.chance.told), 0)
	c.chance.told = 3
	c.ledger.sent = 100 * 30 // accepted since
	c.service.paced(c, 135)
	equal(t, "rejections with a time, a little later", float64(c.chance.told), 3)
	c.service.paced(c, 150)
	equal(t, "rejections with a time, after the trouble", float64(c.chance.told), 0)
}

// A tenth below the pace of an incident, 200 calls take half a minute. So whether rejections are chance is not tested
// before the pace is back.
func TestController_NoTestOfChanceInAnIncident(t *testing.T) {
	const begin, rate = 237., 100.
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 26))
		s := incident(begin, .05, nil)
		take := bucket(20, steady(rate))
		s.take = func(at float64) bool {
			return (at < begin || at >= begin+60 || random.Float64() >= .05) && take(at)
		}
		r := newRun(t, Config{Unlimited: true}, s)
		r.callers, r.rtt = 16, .075
		r.controller.Strays()
		for at := begin; at < begin+90; at++ {
			r.until(at)
			if c := r.controller; c.chance.testing && c.pace.rate < nearlyAll*rate/2 {
				t.Fatalf("seed %d: a test at %.3g/s after %v s of an incident", seed, c.pace.now, at-begin)
			}
		}
	}
}

// A limit that has fallen for good costs a few refusals more than the ones that find it.
func TestController_ALimitThatHasFallenIsNoIncident(t *testing.T) {
	rate := func(at float64) float64 {
		if at < 600 {
			return 50
		}
		return 5
	}
	r := newRun(t, Config{}, server{take: bucket(20, rate), retry: always(seconds(5))})
	r.until(3000)
	if n := count(r.granted, 1500, 3000); n < 80*5*1500/100 {
		t.Errorf("granted %d of %d calls after it had fallen: %+v", n, 5*1500, r.controller.Belief())
	}
}

func TestService_Longer(t *testing.T) {
	for _, c := range []struct {
		name string
		s    service
		at   float64
		want float64
	}{
		{"no trouble", service{asked: 1}, 100, math.Inf(1)},
		{"nobody says how long to wait", service{begin: 0, since: 100}, 130, math.Inf(1)},
		{"young", service{begin: 0, since: 100, asked: 1}, 103, 2},
		{"older", service{begin: 0, since: 100, asked: 1}, 160, 20},
		{"the server asks for more", service{begin: 0, since: 100, asked: 30}, 160, 60},
		{"as old as the good time", service{begin: 0, since: 100, asked: 1}, 200, 100. / 3},
		{"the usual state", service{begin: 0, since: 100, asked: 1}, 201, math.Inf(1)},
	} {
		if got := c.s.longer(&Controller{at: c.at}); math.Abs(got-c.want) > 1e-9 && got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A bucket that held 20 was granted 120 calls in 10 s: its rate is 10/s.
func TestCycles_Faster(t *testing.T) {
	var k cycles
	k.past[1-k.next] = cycle{n: 2}
	k.past[1-k.next].parts[0] = part{10, 120}
	k.past[1-k.next].parts[1] = part{4, 60}
	equal(t, "burst", k.burst(10), 20)
	equal(t, "rate", math.Round(1e3*k.faster(20, 50))/1e3, 10)
	equal(t, "rate, at most", math.Round(k.faster(0, 8)), 8)
}
