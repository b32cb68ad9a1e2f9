package adaptive

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

func TestController_Snapshot_StartsWarm(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	r.until(120)
	warm := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	if err := warm.controller.Restore(r.controller.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if b := warm.controller.Belief(); b.Why != Restored || b.Rate != r.controller.Belief().Rate {
		t.Errorf("restored %+v from %+v", b, r.controller.Belief())
	}
	warm.until(10)
	if g, f := len(warm.granted), len(warm.refused); g < 760 || f > 15 {
		t.Errorf("in the first 10 s %d of 800 calls were granted, %d refused", g, f)
	}
	if cold := len(New(Config{}).Snapshot()); cold == 0 {
		t.Error("no snapshot of a controller that knows nothing")
	}
}

func TestController_Restore_KeepsItsOwnBounds(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	r.until(60)
	slow := New(Config{Max: 10})
	if err := slow.Restore(r.controller.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if b := slow.Belief(); b.Pace > 10 {
		t.Errorf("pace %g, at most 10 are allowed", b.Pace)
	}
}

func TestController_Restore_RefusesOtherBytes(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	r.until(60)
	good := string(r.controller.Snapshot())
	for _, bad := range []string{"", "{}", good[:len(good)-1], good + "}", strings.Replace(good, `"rate":`, `"rate":1`, 1), strings.Replace(good, `"adaptive"`, `"bucket"`, 1)} {
		fresh := New(Config{})
		if err := fresh.Restore([]byte(bad)); !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%q: %v", bad, err)
		}
		if b := fresh.Belief(); b.Phase != Searching || b.Rate != 0 {
			t.Errorf("%q changed the controller: %+v", bad, b)
		}
	}
	// Numbers that a hand has written, with a checksum that is right.
	impossible := New(Config{})
	impossible.phase, impossible.meanCost, impossible.pace.rate = Tracking, 1, -5
	if err := New(Config{}).Restore(impossible.Snapshot()); !errors.Is(err, limits.ErrSnapshot) {
		t.Errorf("a rate of −5: %v", err)
	}
}

func TestController_Snapshot_OfEachPhase(t *testing.T) {
	for phase := Unlimited; phase <= Capped; phase++ {
		c := New(Config{})
		c.phase, c.meanCost, c.pace.rate, c.pace.quiet = phase, 1, 10, 32
		c.costly.low, c.costly.high, c.costly.hold, c.capacity.limit = 8, 12, 50, 4
		s := New(Config{})
		if err := s.Restore(c.Snapshot()); err != nil {
			t.Errorf("%v: %v", phase, err)
		}
		at := s.Demand(0, 0)
		call := s.Started(at, 1, 0)
		s.Ended(at+time.Second, call, Reply{Outcome: Refused})
		if s.Demand(at+time.Second, 0) == Never {
			t.Errorf("%v: no call may leave any more", phase)
		}
	}
}

// What an earlier version has written is read, and written again in the same bytes.
func TestController_Restore_EarlierSnapshots(t *testing.T) {
	for _, old := range []string{
		`{"version":1,"crc32":3812458144,"adaptive":{"phase":3,"unit":2,"rate":10,"refuted":12.5,"quiet":32,"refusal":0.25,"price":30,"low":8,"high":12,"hold":50,"limit":0}}`,
		`{"version":1,"crc32":3686056445,"adaptive":{"phase":6,"unit":1,"rate":10,"refuted":0,"quiet":32,"refusal":0,"price":0,"low":0,"high":0,"hold":0,"limit":4}}`,
	} {
		c := New(Config{})
		if err := c.Restore([]byte(old)); err != nil {
			t.Errorf("%s: %v", old, err)
		}
		if got := string(c.Snapshot()); got != old {
			t.Errorf("%s was written again as %s", old, got)
		}
	}
}
