package sluiceredis

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// silentKinds returns a call of each kind of limit for 1 of key, which reports whether it was allowed.
func silentKinds(t *testing.T, s *Store, p OutagePolicy) map[string]func() (bool, error) {
	kinds := map[string]func() (bool, error){}
	for name, take := range sixes(t, s, p) {
		kinds[name] = func() (bool, error) {
			res, err := take(1)
			return res.Allowed() && err == nil, err
		}
	}
	pacer := newPacer(t, s, "p", 1000, sec, PacerConfig{OnOutage: p})
	kinds["pacer"] = func() (bool, error) { err := pacer.Acquire(bg, 1); return err == nil, err }
	return kinds
}

// A server that hangs costs one caller a tenth of a second. Then each policy decides, for
// each kind, without a wait but for probes, and the first answer ends the outage.
func TestSilence(t *testing.T) {
	for _, p := range []OutagePolicy{FailClosed, FailOpen, LocalShare} {
		for _, kind := range []string{"leaky", "log", "anchored", "aligned", "pacer"} {
			t.Run(fmt.Sprint(p, " ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { silence(t, p, kind) })
			})
		}
	}
}

func silence(t *testing.T, p OutagePolicy, kind string) {
	s, l := newRemote().newStore(t, Config{Instances: 2})
	take := silentKinds(t, s, p)[kind]
	if ok, err := take(); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	time.Sleep(sec)
	l.silent.Store(true)
	began := time.Now()
	ok, err := take()
	if took := time.Since(began); took != shortestPatience {
		t.Errorf("the first caller waited %v, want %v", took, shortestPatience)
	}
	if want := p != FailClosed; ok != want || (err == nil) != want || err != nil && (!errors.Is(err, ErrOutage) || !errors.Is(err, ErrAmbiguous)) {
		t.Errorf("%v, %v", ok, err)
	}
	for range 100 {
		before, asked := time.Now(), l.calls.Load()
		_, _ = take()
		want := time.Duration(0)
		if l.calls.Load() > asked {
			want = shortestPatience // a probe
		}
		if took := time.Since(before); took != want && kind != "pacer" {
			t.Fatalf("a caller waited %v, want %v", took, want)
		}
		time.Sleep(10 * ms)
	}
	if got := s.Stats(); got.Outages != 1 || got.Unavailable != 1 || got.Probes < 3 || got.Probes > 6 {
		t.Errorf("%+v", got)
	}
	l.silent.Store(false)
	time.Sleep(sec)
	if _, err := take(); err != nil || s.breaker.Trouble() {
		t.Errorf("the server is back: %v", err)
	}
	time.Sleep(2 * sec) // for calls that were left
}

// A server that becomes slow is no outage: the callers of one moment are decided by the
// policy, and its answer shows how long to wait from then on.
func TestSilence_OfASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newRemote().newStore(t, Config{OnOutage: FailOpen})
		b := newLeaky(t, s, "l", perHour)
		take := func() time.Duration {
			began := time.Now()
			if res, err := b.Take(bg, "k", 1); err != nil || !res.Allowed() {
				t.Fatalf("%+v, %v", res, err)
			}
			return time.Since(began)
		}
		l.delay.Store(int64(300 * ms))
		for range 20 { // from the first call on, and after an hour
			if took := take(); took != 300*ms {
				t.Fatalf("a caller waited %v, want 300ms", took)
			}
		}
		time.Sleep(time.Hour)
		if took := take(); took != 300*ms || s.Stats().Outages != 0 {
			t.Fatalf("a caller waited %v, want 300ms", took)
		}
		l.delay.Store(0)
		for range 1000 {
			take()
			time.Sleep(ms)
		}
		l.delay.Store(int64(300 * ms))
		time.Sleep(listenEvery)
		if took := take(); took != 100*ms {
			t.Fatalf("a caller waited %v, want 100ms", took)
		}
		time.Sleep(201 * ms)
		for range 100 {
			if took := take(); took != 300*ms {
				t.Fatalf("a caller waited %v, want 300ms", took)
			}
		}
		if got := s.Stats(); got.Outages != 1 || got.Unavailable != 0 || got.FailedOpen != 1 || got.Probes != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// What a script takes whose caller has left stays taken: the server and the share count it,
// so fewer calls start and never more.
func TestSilence_WhatComesLateIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newRemote()
		s, l := v.newStore(t, Config{Instances: 1, OnOutage: LocalShare})
		other, _ := v.newStore(t, Config{})
		const burst = 20
		rate := limits.Rate{Count: 1, Per: time.Hour, Burst: burst}
		b, all := newLeaky(t, s, "l", rate), newLeaky(t, other, "l", rate)
		granted := 0
		take := func() {
			if res, err := b.Take(bg, "k", 1); err == nil && res.Allowed() {
				granted++
			}
		}
		take()
		time.Sleep(sec)
		l.lost.Store(true) // the server gets the call, and no reply comes
		for range 5 {
			take()
		}
		l.lost.Store(false)
		time.Sleep(5 * sec)
		take() // reports what the share has admitted
		for {
			res, err := all.Take(bg, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			if !res.Allowed() {
				break
			}
			granted++
		}
		if granted > burst || granted < burst-2 {
			t.Errorf("%d were granted of %d, want no more and at most 2 fewer", granted, burst)
		}
	})
}

// Where only this process was late, its server was not silent.
func TestSilence_OfThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, v := range []struct {
			late time.Duration
			want time.Duration // until the caller leaves
		}{{0, 100 * ms}, {24 * ms, 124 * ms}, {25 * ms, 150 * ms}, {sec, 1025*ms + 100*ms}} {
			e := ear{patience: 100 * ms, from: start}
			now := start.Add(e.next(start) + v.late)
			for !e.silent(now, start) {
				now = now.Add(e.next(now))
			}
			if got := now.Sub(start); got != v.want {
				t.Errorf("a tick %v late: silent after %v, want %v", v.late, got, v.want)
			}
		}
		e := ear{patience: 100 * ms, from: start}
		e.next(start)
		if heard := start.Add(20 * ms); e.silent(e.due, heard) || e.from != heard {
			t.Error("an answer to another call does not count")
		}
	})
}

// A server that is stopped and goes on, also in strict mode: the policy decides, and a
// semaphore leases nothing; then the server decides again.
func TestSilence_OnRedis(t *testing.T) {
	for _, strict := range []bool{false, true} {
		server := redistest.Start(t)
		b := newBackend(t, server.Addr)
		s, err := New(b.client, Config{Prefix: b.prefix, Strict: strict, OnOutage: FailOpen})
		if err != nil {
			t.Fatal(err)
		}
		if strict {
			if err := s.ConfirmIntact(bg); err != nil {
				t.Fatal(err)
			}
		}
		l := newLeaky(t, s, "l", limits.Rate{Count: 1, Per: sec, Burst: 1000})
		sem := newSemaphore(t, s, "m", 2, SemaphoreConfig{Poll: 10 * ms})
		lease, err := sem.Acquire(bg, 1, sec)
		if err != nil {
			t.Fatal(err)
		}
		_ = server.Process().Signal(syscall.SIGSTOP)
		for range 20 {
			if res, err := l.Take(bg, "k", 1); err != nil || !res.Allowed() {
				t.Errorf("strict %v: %+v, %v", strict, res, err)
			}
		}
		if _, err := sem.Acquire(bg, 1, 0); !errors.Is(err, ErrOutage) {
			t.Errorf("strict %v: %v, want ErrOutage", strict, err)
		}
		if got := s.Stats(); got.Outages != 1 || got.Unavailable != 1 || got.FailedOpen < 19 {
			t.Errorf("strict %v: %+v", strict, got)
		}
		_ = server.Process().Signal(syscall.SIGCONT)
		until(t, "the server is back", func() bool {
			_, err := sem.Acquire(bg, 1, 0)
			return err == nil
		})
		lease.Release()
		if res, err := l.Take(bg, "k", 1); err != nil || !res.Allowed() || s.Stats().Unavailable != 0 {
			t.Errorf("strict %v: %+v, %v", strict, res, err)
		}
	}
}
