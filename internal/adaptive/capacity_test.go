package adaptive

import (
	"testing"
	"time"
)

// A cap that asks for ten seconds each time is found without a second rejection. A pace that began at 5/s had risen for 18 s,
// to a rejection, and only that and its ten seconds led to the cap.
func TestController_TriesTheFirstBurstAsACap(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		slots: 12, service: func() float64 { return .3 },
		retry: func(float64) time.Duration { return 10 * time.Second },
	})
	r.until(40)
	if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency != 12 {
		t.Errorf("it believes %+v", b)
	}
	// 12 in 0.34 s are 35 per second.
	if at := r.granted[529]; at > 31 || len(r.refused) > 64-12 {
		t.Errorf("530 calls took %.1f s, %d rejected; want 30 s, %d", at, len(r.refused), 64-12)
	}
}

// A window grants as many of a first burst as a cap. That is found out, too.
func TestController_TakesNoWindowForACap(t *testing.T) {
	take, end := windows(12, 10, 0), func(t float64) time.Duration { return seconds(10 - t + 10*float64(int(t/10))) }
	r := newRun(t, Config{Unlimited: true}, server{take: take, service: func() float64 { return .3 }, retry: end})
	r.until(300)
	if b := r.controller.Belief(); b.Phase == Capped || len(r.granted) < 320 {
		t.Errorf("%d of 360 calls were granted, and it believes %+v", len(r.granted), b)
	}
}
