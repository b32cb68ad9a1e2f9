package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan{began: time.Now()}
		var done []string
		p.every(2*time.Second, func() { done = append(done, p.now().String()) })
		p.after(3*time.Second, func() {
			done = append(done, "once")
			p.after(2*time.Second, func() { p.over = true })
		})
		if p.follow(nil) {
			t.Error("it was not interrupted")
		}
		if want := []string{"2s", "once", "4s"}; !slices.Equal(done, want) || p.now() != 5*time.Second {
			t.Errorf("did %v in %v, want %v in 5s", done, p.now(), want)
		}
	})
}
