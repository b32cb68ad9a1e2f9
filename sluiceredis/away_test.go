package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// sixes returns the kinds of limits that answer, of 6 each hour, as that much of a
// call.
func sixes(t *testing.T, s *Store, p OutagePolicy) map[string]func(n int64) (limits.Result, error) {
	l := newLeaky(t, s, "l", limits.Rate{Burst: 6, Count: 6, Per: time.Hour}, p)
	log := newLog(t, s, "g", 6, time.Hour, p)
	anchored := newFixed(t, s, "f", FixedConfig{Limit: 6, Window: time.Hour, OnOutage: p})
	aligned := newFixed(t, s, "a", FixedConfig{Limit: 6, Window: time.Hour, Aligned: true, OnOutage: p})
	return map[string]func(n int64) (limits.Result, error){
		"leaky":    func(n int64) (limits.Result, error) { return l.Take(bg, "k", n) },
		"log":      func(n int64) (limits.Result, error) { return log.Take(bg, "k", n) },
		"anchored": func(n int64) (limits.Result, error) { return anchored.Take(bg, "k", n) },
		"aligned":  func(n int64) (limits.Result, error) { return aligned.Take(bg, "k", n) },
	}
}

// grants returns how many of count calls for 1 are admitted.
func grants(take func(n int64) (limits.Result, error), count int) (granted int, err error) {
	for range count {
		res, e := take(1)
		if e != nil {
			err = e
		}
		if res.Allowed() {
			granted++
		}
	}
	return granted, err
}

// Each policy does what it says, for each kind, from the first failure on, and when
// the server is back it decides again.
func TestPolicies(t *testing.T) {
	for _, p := range []OutagePolicy{OutagePolicy(0), FailClosed, FailOpen, LocalShare} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newRemote().newStore(t, Config{Instances: 2})
				for kind, take := range sixes(t, s, p) {
					if got, err := grants(take, 2); got != 2 || err != nil {
						t.Fatalf("%s: %d granted, %v", kind, got, err)
					}
					l.fail(errRefused)
					got, err := grants(take, 20)
					switch p {
					case FailOpen:
						if got != 20 || err != nil {
							t.Errorf("%s, open: %d granted, %v", kind, got, err)
						}
					case LocalShare:
						if got != 1 || err != nil { // 6 ÷ 2, of which 2 were used
							t.Errorf("%s, share: %d granted, %v", kind, got, err)
						}
					default:
						if got != 0 || !errors.Is(err, ErrOutage) {
							t.Errorf("%s, closed: %d granted, %v", kind, got, err)
						}
					}
					res, err := take(7)
					if p == FailOpen || p == LocalShare {
						if err != nil || res.Err() != limits.ErrTooLarge || res.Limit != 6 {
							t.Errorf("%s: 7 of 6: %+v, %v", kind, res, err)
						}
						if res, err := take(0); err != nil || !res.Allowed() {
							t.Errorf("%s: nothing: %+v, %v", kind, res, err)
						}
					}
					if p == LocalShare {
						// More than a share, less than the limit: when the server is back.
						if res, err := take(5); err != nil || res.Allowed() || res.Err() != nil || res.Limit != 6 || res.RetryAfter <= 0 || res.RetryAfter > sec {
							t.Errorf("%s: 5: %+v, %v", kind, res, err)
						}
					}
					l.fail(nil)
					time.Sleep(sec)
					want := 4
					if p == LocalShare {
						want = 3 // one was admitted here, and the server told
					}
					if got, err := grants(take, 20); got != want || err != nil {
						t.Errorf("%s: the server is back: %d granted, want %d, %v", kind, got, want, err)
					}
				}
				got := s.Stats()
				counts := fmt.Sprint(got.FailedOpen > 0, got.DecidedLocally > 0, got.Rejected > 0, got.Reported)
				if want := map[OutagePolicy]string{
					OutagePolicy(0): "false false true 0", FailClosed: "false false true 0",
					FailOpen: "true false false 0", LocalShare: "false true false 4",
				}[p]; counts != want {
					t.Errorf("%s: %+v", counts, got)
				}
			})
		})
	}
}

// A tired is a context that has ended when somebody has asked it often.
type tired struct {
	context.Context
	asked int
}

func (c *tired) Err() error {
	if c.asked++; c.asked > 100 {
		return context.DeadlineExceeded
	}
	return nil
}

// By FailOpen calls start immediately, once, also in a pause that the server told
// of, or behind the mark of one that was ended.
func TestFailOpenInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, told := range []func(now int64) kinds.Pauses{
			func(now int64) kinds.Pauses { return kinds.Pauses{Now: now, Pause: now + int64(sec)} },
			func(now int64) kinds.Pauses { return kinds.Pauses{Now: now, Mark: now + int64(sec)} },
		} {
			v := newRemote()
			s, l := v.newStore(t, Config{OnOutage: FailOpen})
			p := newPacer(t, s, "p", 10, sec, PacerConfig{})
			p.learn(told(v.m.Server()*1000), time.Now())
			l.fail(errRefused)
			if err := p.Acquire(&tired{Context: bg}, 1); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			if wait, err := p.Admit(bg, 1); wait != 0 || err != nil {
				t.Errorf("%d: %v, %v", i, wait, err)
			}
			if got := s.Stats(); got.FailedOpen != 2 || got.LostSlots != 0 {
				t.Errorf("%d: %+v", i, got)
			}
		}
	})
}

// A share that cannot be is rejected, and that is said.
func TestNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{Instances: 7, OnOutage: LocalShare})
		l.fail(errRefused)
		for kind, take := range sixes(t, s, OutagePolicy(0)) {
			_, err := take(1)
			if !errors.Is(err, ErrOutage) || !strings.Contains(err.Error(), "; of a limit of 6 there is no local share for 7 instances") {
				t.Errorf("%s: %v", kind, err)
			}
		}
		s, l = newRemote().newStore(t, Config{OnOutage: LocalShare})
		l.fail(errRefused)
		for kind, take := range sixes(t, s, OutagePolicy(0)) {
			_, err := take(1)
			if !errors.Is(err, ErrOutage) || !strings.Contains(err.Error(), "how many instances there are is not known") {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

// What an error says, in one line.
func TestAwayErrors(t *testing.T) {
	closed := &outageError{server: "10.0.0.1:6379", since: 1234567 * time.Microsecond, cause: newServerError("LOADING Redis is loading the dataset in memory")}
	sent := &outageError{sent: true, cause: ambiguous(errRefused)}
	for _, v := range []struct {
		err  *outageError
		want string
	}{
		{closed, "sluiceredis: rejected: the server at 10.0.0.1:6379 has been away for 1.235s: the server replied: LOADING Redis is loading the dataset in memory"},
		{sent, "sluiceredis: rejected: the server cannot be asked: it is unknown whether the call was executed: dial tcp: connection refused"},
		{sent.because("of a limit of %d there is no local share for %d instances", 1, 4), "sluiceredis: rejected: the server cannot be asked: it is unknown whether the call was executed: dial tcp: connection refused; of a limit of 1 there is no local share for 4 instances"},
	} {
		if got := v.err.Error(); got != v.want {
			t.Errorf("%q, want %q", got, v.want)
		}
	}
	if !errors.Is(sent, ErrAmbiguous) || errors.Is(closed, ErrAmbiguous) || !errors.Is(closed, ErrOutage) {
		t.Error("what they match")
	}
	var reply *ServerError
	if errors.As(closed, &reply) {
		t.Error("a call that was not sent has no reply")
	}
}

// Bad configurations are rejected, and policies given by position panic.
func TestAwayConfigs(t *testing.T) {
	for want, cfg := range map[string]Config{
		"policy": {OnOutage: 4}, "negative number of failures": {FailureThreshold: -1}, "negative ProbeInterval": {ProbeInterval: -1},
		"-1 instances": {Instances: -1}, "1001 instances": {Instances: 1001}, "policy: OutagePolicy(-1)": {OnOutage: -1},
	} {
		if _, err := New(&line{}, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	s := inThisProcess(t)
	if _, err := s.Pacer("p", limits.Rate{Count: 1, Per: sec}, PacerConfig{OnOutage: 9}); err == nil {
		t.Error("a pacer with a policy that is none")
	}
	for what, f := range map[string]func() error{
		"leaky": func() error { _, err := s.Bucket("l", perHour, 4); return err },
		"log":   func() error { _, err := s.Sliding("l", 1, sec, -1); return err },
		"fixed": func() error { _, err := s.Fixed("l", FixedConfig{Limit: 1, Window: sec, OnOutage: 4}); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "no such policy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := fmt.Sprint(OutagePolicy(9), OutagePolicy(0), LocalShare); got != "OutagePolicy(9) default local share" {
		t.Error(got)
	}
}

// The policy of a limit is its own: others of the same name have theirs.
func TestPolicyOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: FailOpen})
		open := newLeaky(t, s, "l", perHour)
		closed := newLeaky(t, s, "l", perHour, FailClosed)
		l.fail(errRefused)
		for range 5 {
			if res, err := open.Take(bg, "k", 1); err != nil || !res.Allowed() {
				t.Errorf("%+v, %v", res, err)
			}
			if _, err := closed.Take(bg, "k", 1); !errors.Is(err, ErrOutage) {
				t.Errorf("%v", err)
			}
			if _, err := closed.TakeRate(bg, "k", perHour, 1); !errors.Is(err, ErrOutage) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A semaphore leases nothing that is not counted, whatever the policy, and says so immediately; what
// was held is renewed and returned when the server is there again.
func TestSemaphoresAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []OutagePolicy{FailClosed, FailOpen, LocalShare} {
			s, l := newRemote().newStore(t, Config{OnOutage: p, Instances: 1})
			sem := newSemaphore(t, s, "s", 5, SemaphoreConfig{})
			l.fail(errRefused)
			began := time.Now()
			for _, longest := range []time.Duration{0, time.Minute, limits.Never, 0, limits.Never} {
				if lease, err := sem.acquire(bg, 1, longest); lease != nil || !errors.Is(err, ErrOutage) {
					t.Errorf("%v: %v", p, err)
				}
			}
			if time.Since(began) != 0 || s.Stats().Rejected != 5 {
				t.Errorf("%v: after %v, %+v", p, time.Since(began), s.Stats())
			}
		}
	})
}

// What is taken back goes to whoever admitted it: the server is never given what it
// did not grant, nor others' units.
func TestGivingBackWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meters := func(s *Store) map[string]limits.Limiter {
			return map[string]limits.Limiter{
				"leaky": newLeaky(t, s, "l", limits.Rate{Burst: 6, Count: 6, Per: time.Hour}).on("k"),
				"log":   newLog(t, s, "g", 6, time.Hour).on("k"),
				"fixed": newFixed(t, s, "f", FixedConfig{Limit: 6, Window: time.Hour}).on("k"),
			}
		}
		v := newRemote()
		a, l := v.newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		b, _ := v.newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		other := meters(b)
		fits := func(kind string, m limits.Limiter, n int64, want bool) {
			t.Helper()
			if wait, err := m.Admit(bg, n); err != nil || (wait == 0) != want {
				t.Errorf("%s: %d: %v, %v", kind, n, wait, err)
			}
		}
		for kind, m := range meters(a) {
			l.fail(errRefused)
			fits(kind, m, 3, true)
			fits(kind, m, 1, false)
			if err := m.Adjust(bg, -1, 0); err != nil { // here
				t.Errorf("%s: %v", kind, err)
			}
			fits(kind, m, 1, true)
			if err := m.Adjust(bg, 2, 0); err != nil { // a debt, here
				t.Errorf("%s: %v", kind, err)
			}
			if err := m.Adjust(bg, -2, 0); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			fits(kind, m, 1, false)
			fits(kind, other[kind], 3, true)
			time.Sleep(sec)
			l.fail(nil)
			// 3 of this one's that the server does not know, 3 of the other's.
			if err := m.Adjust(bg, -2, sec); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if err := m.Adjust(bg, -2, 2*sec); err != nil { // one of them
				t.Errorf("%s: %v", kind, err)
			}
			if err := m.Adjust(bg, -1, 2*sec); err != errStranded {
				t.Errorf("%s: what others have taken is given back: %v", kind, err)
			}
			fits(kind, other[kind], 4, false)
			fits(kind, m, 1, true) // after which the server is told of nothing
			fits(kind, other[kind], 2, true)
			fits(kind, m, 1, false)
			if err := m.Adjust(bg, -1, 0); err != nil { // that is the server's
				t.Errorf("%s: %v", kind, err)
			}
			fits(kind, other[kind], 1, true)
		}
		if got := a.Stats(); got.Unreturned != 2*3 || got.Reported != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// What was let through uncounted is not returned, either.
func TestGivingBackAfterFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		s, l := v.newStore(t, Config{OnOutage: FailOpen})
		m := newLeaky(t, s, "l", limits.Rate{Burst: 6, Count: 6, Per: time.Hour}).on("k")
		if wait, err := m.Admit(bg, 6); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
		l.fail(errRefused)
		if wait, err := m.Admit(bg, 6); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
		time.Sleep(sec)
		l.fail(nil)
		if err := m.Adjust(bg, -6, sec); err != errStranded {
			t.Errorf("%v", err)
		}
		if wait, err := m.Admit(bg, 1); wait == 0 || err != nil {
			t.Errorf("%v, %v", wait, err)
		}
	})
}

// In a gate that shares are part of, rejections wait and nothing is lost.
func TestGateWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: LocalShare, Instances: 2})
		gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{
			Name: "shared", Limiter: newLeaky(t, s, "l", limits.Rate{Burst: 2, Count: 1, Per: sec}).on("k"),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		l.fail(errRefused)
		began := time.Now()
		for i := range 4 {
			if err := gate.Do(bg, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			// A share of 1, and one more every 2 s.
			if got, want := time.Since(began), time.Duration(i)*2*sec; got != want {
				t.Errorf("call %d at %v, want %v", i, got, want)
			}
		}
		closed, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{
			Name: "closed", Limiter: newLeaky(t, s, "l", perHour, FailClosed).on("k"),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := closed.Do(bg, func(context.Context) error { return nil }); !errors.Is(err, ErrOutage) {
			t.Errorf("%v", err)
		}
	})
}

// An instance that has just joined says which setting would give it a share.
func TestBeats_Unsure(t *testing.T) {
	now := time.Now()
	for want, b := range map[string]*beats{
		"the instances have not been counted for 3s yet and Config.Instances is 0": {joined: now, last: now},
		"": {joined: now, last: now, fixed: true},
	} {
		if got := b.unsure(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
