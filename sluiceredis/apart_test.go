package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

const us = time.Microsecond

// apart returns a set of a bucket, a log, a window and a pacer, of 5, 3, 4 and one
// every second.
func apart(t *testing.T, s *Store) (set *joint, bucket *limiter, log *limiter, window *limiter, pace *Pacer) {
	t.Helper()
	bucket = newLeaky(t, s, "apart/bucket", limits.Rate{Burst: 5, Count: 1, Per: time.Hour}).on("")
	log = newLog(t, s, "apart/log", 3, time.Hour).on("")
	window = newFixed(t, s, "apart/window", FixedConfig{Limit: 4, Window: time.Hour}).on("")
	pace = newPacer(t, s, "apart/pace", 1, sec, PacerConfig{})
	set, err := s.together(bucket, log, window, pace)
	if err != nil {
		t.Fatal(err)
	}
	return set, bucket, log, window, pace
}

// Without a server all of a set let a call through, or none has lost anything.
func TestSetsWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inThisProcess(t)
		set, bucket, log, window, _ := apart(t, s)
		left := func(inBucket, inLog, inWindow int64) {
			t.Helper()
			for i, l := range []*limiter{bucket, log, window} {
				if res, err := s.take(bg, l.at(), 0); err != nil || res.Remaining != []int64{inBucket, inLog, inWindow}[i] {
					t.Errorf("limit %d: %+v, %v", i, res, err)
				}
			}
		}
		d, err := set.all(bg, 1)
		if err != nil || !d.allowed() || d.by != -1 || d.results()[0].Remaining != 4 || d.results()[1].Remaining != 2 || d.results()[2].Remaining != 3 {
			t.Fatalf("%+v, %v", d, err)
		}
		left(4, 2, 3)
		// The pacer rejects, and the others return.
		if d, err := set.all(bg, 1); err != nil || d.allowed() || d.by != 3 || d.retryAfter() != sec || d.results()[0].Remaining != 4 || d.results()[1].Remaining != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		left(4, 2, 3)
		time.Sleep(sec)
		// The log rejects, and the slot is returned.
		if d, err := set.take(bg, 1, 3, 1, 1); err != nil || d.allowed() || d.by != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		left(4, 2, 3)
		if wait, which, err := set.AdmitAll(bg, []int64{1, 4, 1, 1}, nil); wait != 0 || which != 1 || err != limits.ErrTooLarge {
			t.Errorf("%v, %d, %v", wait, which, err)
		}
		if d, err := set.all(bg, 1); err != nil || !d.allowed() {
			t.Errorf("the slot was lost: %+v, %v", d, err)
		}
		left(3, 1, 2)
		if err := errors.Join(set.AdjustAll(bg, []int64{-1, -1, -1, 0}, 0)...); err != nil {
			t.Error(err)
		}
		left(4, 2, 3)
		if d, err := set.peek(bg); err != nil || !d.allowed() || d.results()[0].Remaining != 4 {
			t.Errorf("%+v, %v", d, err)
		}
		if got := s.Stats(); got.Scripts != 0 || got.Unreturned != 0 || got.DecidedLocally != 6+5*3 { // of the set and, to look, of three limits
			t.Errorf("%+v", got)
		}
	})
}

// While the server is unavailable each limit of a set follows its own policy.
func TestSetsWhileTheServerIsAway(t *testing.T) {
	for _, p := range []OutagePolicy{FailClosed, FailOpen, LocalShare} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newRemote().newStore(t, Config{OnOutage: p, Instances: 2, FailureThreshold: 1, ProbeInterval: time.Hour})
				bucket := newLeaky(t, s, "away/bucket", limits.Rate{Burst: 6, Count: 1, Per: time.Hour}).on("")
				log := newLog(t, s, "away/log", 4, time.Hour).on("")
				set, err := s.together(bucket, log)
				if err != nil {
					t.Fatal(err)
				}
				l.fail(errRefused)
				granted := 0
				for range 10 {
					d, err := set.all(bg, 1)
					switch {
					case p == FailClosed:
						var away *outageError
						if !errors.As(err, &away) {
							t.Errorf("%+v, %v", d, err)
						}
					case err != nil:
						t.Error(err)
					case d.allowed():
						granted++
					case d.by != 1:
						t.Errorf("%+v", d)
					}
				}
				if want := map[OutagePolicy]int{FailClosed: 0, FailOpen: 10, LocalShare: 2}[p]; granted != want {
					t.Errorf("%d granted, want %d", granted, want)
				}
				if p == LocalShare { // what the log rejected the bucket has again
					if res, err := s.take(bg, bucket.at(), 1); err != nil || !res.Allowed() {
						t.Errorf("%+v, %v", res, err)
					}
				}
				if got := l.calls.Load(); got > 1 {
					t.Errorf("%d calls", got)
				}
			})
		})
	}
}

// A call of a set that the server did not answer is decided by the policies of its
// limits when its time has ended, and nothing is sent again. If one of them rejects the
// others have back what they gave.
func TestASetAsksASilentServerOnce(t *testing.T) {
	for _, v := range []struct {
		bucket, log OutagePolicy
		allowed     bool
		left        int64 // in the share of the log
	}{{FailOpen, FailOpen, true, 0}, {LocalShare, LocalShare, true, 2}, {FailOpen, LocalShare, true, 2}, {LocalShare, FailClosed, false, 0}, {FailClosed, LocalShare, false, 3}} {
		t.Run(fmt.Sprint(v.bucket, ", ", v.log), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newRemote().newStore(t, Config{Instances: 2})
				bucket := newLeaky(t, s, "once/bucket", limits.Rate{Burst: 6, Count: 1, Per: time.Hour}, v.bucket)
				log := newLog(t, s, "once/log", 6, time.Hour, v.log)
				set := newSet(t, s, bucket.on(""), log.on(""))
				l.lost.Store(true)
				began := time.Now()
				d, err := set.all(bg, 1)
				if d.allowed() != v.allowed || errors.Is(err, ErrOutage) == v.allowed {
					t.Errorf("%+v, %v", d, err)
				}
				if took := time.Since(began); took != sec || l.calls.Load() != 1 {
					t.Errorf("after %v: %d calls", took, l.calls.Load())
				}
				l.fail(errRefused)
				if res, err := log.Take(bg, "", 0); v.log == LocalShare && (err != nil || res.Remaining != v.left) {
					t.Errorf("%+v, %v", res, err)
				}
				if res, err := bucket.Take(bg, "", 3); v.bucket == LocalShare && (err != nil || res.Allowed() == v.allowed) {
					t.Errorf("%+v, %v", res, err)
				}
			})
		})
	}
}

// A set is strict as well: what a server may have lost is admitted by none of its
// limits.
func TestSetsAfterALoss(t *testing.T) {
	b := onRedis(t)
	s, clock, replace := b.freezeStrictly(t)
	set, err := s.together(
		newLeaky(t, s, "loss/bucket", limits.Rate{Burst: 5, Count: 1, Per: sec}).on("k"),
		newLog(t, s, "loss/log", 5, 2*sec).on("k"),
		newFixed(t, s, "loss/window", FixedConfig{Limit: 5, Window: 3 * sec}).on("k"))
	if err != nil {
		t.Fatal(err)
	}
	take := func(allowed bool, by int) {
		t.Helper()
		if d, err := set.all(bg, 5); err != nil || d.allowed() != allowed || d.by != by {
			t.Errorf("%+v, %v", d, err)
		}
	}
	replace()
	if d, err := set.all(bg, 5); err != nil || d.results()[0].Allowed() || d.results()[1].Allowed() || d.results()[2].Allowed() {
		t.Errorf("%+v, %v", d, err) // the epoch begins
	}
	clock.set(5*sec - us)
	take(false, 0)
	clock.set(5 * sec)
	take(true, -1)
	clock.set(20 * sec)
	replace()
	take(false, 0)
	if err := set.adjust(bg, -1, 0); err != nil && !errors.Is(err, errStranded) {
		t.Error(err)
	}
	take(false, 0)
}

// A pause that ends early lets who waits move up, without a server too.
func TestResumeWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(t, inThisProcess(t), "p", 1, sec, PacerConfig{Horizon: time.Hour})
		if err := p.PauseUntil(bg, time.Now().Add(10*time.Minute)); err != nil {
			t.Fatal(err)
		}
		began, left := time.Now(), make(chan time.Duration, 3)
		for range 3 {
			go func() {
				if err := p.Acquire(bg, 1); err != nil {
					t.Error(err)
				}
				left <- time.Since(began)
			}()
		}
		time.Sleep(10 * sec)
		if err := p.Resume(bg); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if got, want := <-left, 10*sec+time.Duration(i+1)*sec; got != want {
				t.Errorf("left after %v, want %v", got, want)
			}
		}
		// A slot beyond the mark can be returned also when the mark has passed.
		if _, err := p.Reserve(bg, 900, time.Hour); err != nil {
			t.Fatal(err)
		}
		r, err := p.Reserve(bg, 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		if !r.Cancel(bg) {
			t.Error("a slot beyond a mark that has passed was not given back")
		}
	})
}

// A cable is a Client that can be cut.
type cable struct {
	Client
	cut atomic.Bool
}

func (c *cable) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if c.cut.Load() {
		return nil, errRefused
	}
	return c.Client.Run(ctx, s, keys, args)
}

// What the server accepts to a set is in the shares of its limits, and so is what
// others have used; what the shares grant to a set the server is told.
func TestSharesOfASet(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		c := &cable{Client: b.client}
		s, err := New(c, Config{Prefix: b.prefix, OnOutage: LocalShare, Instances: 2, FailureThreshold: 1, ProbeInterval: 1})
		if err != nil {
			t.Fatal(err)
		}
		pace := newPacer(t, s, "share/pace", 1, time.Hour, PacerConfig{Horizon: 24 * time.Hour}, 8)
		others := newFixed(t, b.store(t), "share/window", FixedConfig{Limit: 8, Window: time.Hour})
		set := newSet(t, s,
			newLeaky(t, s, "share/bucket", limits.Rate{Burst: 8, Count: 1, Per: time.Hour}).on(""), newLog(t, s, "share/log", 8, time.Hour).on(""),
			newFixed(t, s, "share/window", FixedConfig{Limit: 8, Window: time.Hour}).on(""), pace)
		step := func(what string, allowed bool, left ...int64) {
			t.Helper()
			d, err := set.all(bg, 1)
			if err != nil || d.allowed() != allowed {
				t.Errorf("%s: %+v, %v", what, d, err)
				return
			}
			for i, r := range d.results() {
				if r.Remaining != left[i] {
					t.Errorf("%s: limit %d: %+v, want %d left", what, i, r, left[i])
				}
			}
		}
		step("server", true, 7, 7, 7, 7)
		step("server", true, 6, 6, 6, 6)
		if _, err := others.Take(bg, "", 4); err != nil {
			t.Fatal(err)
		}
		step("server", true, 5, 5, 1, 5)
		c.cut.Store(true)
		// Of shares of 4 each had 3, but for the window, of which others had more. The
		// share of the pacer is one in 2 h, of which 7 h back it has slots now: the last that
		// was used was 5 h back, so the next is 3 h back, and 1 h.
		step("share", false, 1, 1, 0, 2)
		if res, err := others.Take(bg, "", 0); err != nil || res.Remaining != 1 {
			t.Errorf("%+v, %v", res, err)
		}
		c.cut.Store(false)
		even := newSet(t, s, newPacer(t, s, "even/pace", 1, time.Hour, PacerConfig{Horizon: 24 * time.Hour}))
		if d, err := even.all(bg, 1); err != nil || !d.allowed() || d.results()[0].Remaining != 0 {
			t.Fatalf("%+v, %v", d, err)
		}
		c.cut.Store(true)
		if d, err := even.all(bg, 1); err != nil || d.allowed() || d.retryAfter() <= time.Hour || d.retryAfter() > 2*time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		c.cut.Store(false)
		other := newSet(t, s,
			newLeaky(t, s, "told/bucket", limits.Rate{Burst: 8, Count: 1, Per: time.Hour}).on(""), newLog(t, s, "told/log", 8, time.Hour).on(""),
			newFixed(t, s, "told/window", FixedConfig{Limit: 8, Window: time.Hour}).on(""))
		if _, err := other.peek(bg); err != nil {
			t.Fatal(err)
		}
		set = other
		c.cut.Store(true)
		step("share", true, 3, 3, 3)
		step("share", true, 2, 2, 2)
		c.cut.Store(false)
		step("server", true, 5, 5, 5)
		if got := s.Stats(); got.Reported != 6 {
			t.Errorf("%+v", got)
		}
	})
}

// Of more instances than there are intervals in the horizon each has its own slot
// all the same, and no more than that.
func TestAShareOfASetBeyondTheHorizon(t *testing.T) {
	for _, m := range []int{60, 61, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: m, FailureThreshold: 1, ProbeInterval: time.Hour})
			set := newSet(t, s, newPacer(t, s, "p", 1, sec, PacerConfig{Horizon: time.Minute}))
			l.fail(errRefused)
			for round := range 3 {
				granted := 0
				for range 50 {
					d, err := set.all(bg, 1)
					if err != nil {
						t.Fatal(err)
					}
					if d.allowed() {
						granted++
					} else if wait := d.retryAfter(); wait != time.Duration(m)*sec {
						t.Fatalf("%d instances: %v until the next slot", m, wait)
					}
				}
				if granted != 1 {
					t.Errorf("%d instances, round %d: %d granted", m, round, granted)
				}
				time.Sleep(time.Duration(m) * sec)
			}
		})
	}
}

// Slots of a share that a set was given are not returned, and that is counted.
func TestSlotsOfAShareOfASetAreStranded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		set := newSet(t, s, newPacer(t, s, "p", 1, sec, PacerConfig{}))
		l.fail(errRefused)
		if d, err := set.all(bg, 3); err != nil || !d.allowed() {
			t.Fatalf("%+v, %v", d, err)
		}
		err := set.adjust(bg, -3, 0)
		if got := s.Stats(); !errors.Is(err, errStranded) || got.Refunded != 0 || got.Unreturned != 3 {
			t.Errorf("%v, %+v", err, got)
		}
	})
}
