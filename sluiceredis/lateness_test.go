package sluiceredis

import (
	"testing"
	"testing/synctest"
	"time"
)

// The bound follows what calls were late by: it rises immediately, falls over about 100 calls, and
// stays between 5 and 50 ms.
func TestLateness(t *testing.T) {
	var l lateness
	want := func(what string, least, most time.Duration) {
		t.Helper()
		if got := l.most(); got < least || got > most {
			t.Errorf("%s: %v, want %v to %v", what, got, least, most)
		}
	}
	want("new", 5*ms, 5*ms)
	l.note(-sec)
	want("early", 5*ms, 5*ms)
	l.note(20 * ms)
	want("one that was late", 30*ms, 30*ms)
	l.note(0)
	want("one that was not", 29*ms, 30*ms)
	for range 100 {
		l.note(0)
	}
	want("a hundred that were not", 5*ms, 8*ms)
	l.note(time.Hour)
	want("a stall", 50*ms, 50*ms)
	fixed := lateness{fixed: sec}
	fixed.note(time.Minute)
	if got := fixed.most(); got != sec {
		t.Errorf("configured: %v", got)
	}
}

// In a process in which each call is woken late, calls use their slots all the same, up to 50 ms.
func TestPacer_Late_FollowsTheProcess(t *testing.T) {
	for _, v := range []struct {
		late, fixed time.Duration
		lost        int
	}{{4 * ms, 0, 0}, {20 * ms, 0, 1}, {49 * ms, 0, 1}, {51 * ms, 0, 20}, {20 * ms, 5 * ms, 20}} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newRemote().newStore(t, Config{})
			p := newPacer(t, s, "late", 10, sec, PacerConfig{MaxLateness: v.fixed})
			lost := 0
			for range 20 {
				r, err := p.Reserve(bg, 1, sec)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(r.Delay() + v.late)
				if leaves, err := p.wait(bg, r); err != nil {
					t.Fatal(err)
				} else if !leaves {
					lost++
				}
			}
			if lost != v.lost || s.Stats().LostSlots != uint64(v.lost) {
				t.Errorf("%v late, Late %v: %d lost, want %d; %d counted", v.late, v.fixed, lost, v.lost, s.Stats().LostSlots)
			}

			gated := newPacer(t, s, "gated", 10, sec, PacerConfig{MaxLateness: v.fixed})
			for slept := 0; slept <= 20; {
				wait, err := gated.Admit(bg, 1)
				if err != nil {
					t.Fatal(err)
				}
				if wait > 0 {
					time.Sleep(wait + v.late)
					slept++
				}
			}
			if lost := s.Stats().LostSlots; lost != 2*uint64(v.lost) {
				t.Errorf("in a gate, %v late, Late %v: %d lost, want %d", v.late, v.fixed, lost-uint64(v.lost), v.lost)
			}
		})
	}
}
