package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Events run at their times, those at the same time in the order in which they were
// added, and calls start in the order of their callers, before the next event.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		var said []string
		say := func(what string) func() {
			return func() { said = append(said, c.now().String()+" "+what) }
		}
		c.at(2*time.Second, say("b"))
		c.at(time.Second, func() {
			say("a")()
			for _, n := range []int{3, 1, 2} {
				go c.depart(n, say(string(rune('0'+n))))
			}
			c.woke = true
			c.after(0, say("after"))
		})
		c.at(2*time.Second, say("c"))
		c.at(3*time.Second, say("too late"))
		time.AfterFunc(3*time.Second, func() { c.depart(4, say("too late to leave")) })
		go func() {
			time.Sleep(1500 * time.Millisecond)
			c.after(0, say("from a goroutine"))
		}()
		c.run(3 * time.Second)
		want := []string{"1s a", "1s 1", "1s 2", "1s 3", "1s after", "1.5s from a goroutine", "2s b", "2s c"}
		if !slices.Equal(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
		if c.now() != 3*time.Second {
			t.Errorf("ended at %v", c.now())
		}
	})
}

// Timers that fire at the very time at which the clock wakes up on its own may add events as well.
func TestClock_TimersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newClock(), 0
		for i := range 1000 {
			at := time.Duration(i) * time.Millisecond
			c.at(at, func() { n++ })
			time.AfterFunc(at, func() { c.after(0, func() { n++ }) })
		}
		c.run(time.Second)
		if n != 2000 {
			t.Errorf("%d events have run, want 2000", n)
		}
	})
}
