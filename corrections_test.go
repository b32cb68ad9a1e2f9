package sluice

import (
	"math"
	"testing"
)

func TestCorrection(t *testing.T) {
	var c correction
	if got := c.of(7); got != 7 {
		t.Errorf("nothing is known: %v", got)
	}
	for range 1000 { // estimates that are right, and differ
		for _, n := range []float64{1, 3, 1e6, .1} {
			c.learn(n, n)
		}
	}
	if c.factor() != 1 {
		t.Errorf("without Settle: %v", c.factor())
	}

	c = correction{}
	c.learn(2, 2000)
	if got := c.of(3); got != 3000 {
		t.Errorf("after one call: %v", got)
	}
	for range 300 {
		c.learn(2, 4)
	}
	if got := c.factor(); math.Abs(got-2) > .2 {
		t.Errorf("after 300 of another kind: %v", got)
	}
	before := c.factor()
	c.learn(2, 4e9)
	if got := c.factor(); got > before*1.2 {
		t.Errorf("one that is far off: %v, was %v", got, before)
	}
	for range 2000 {
		c.learn(2, 4000)
	}
	if got := c.factor(); math.Abs(got-2000) > 20 {
		t.Errorf("all are far off: %v", got)
	}
	for range 2000 {
		c.learn(2, 0)
	}
	if got := c.of(64); got != 1 {
		t.Errorf("calls that take nothing: %v", got)
	}
	for range 500 {
		c.learn(2, 200)
	}
	if got := c.factor(); got < 90 {
		t.Errorf("calls that took nothing once: %v", got)
	}
}

// A call that is settled after its end counts as if it had been settled before.
func TestCorrection_Amend(t *testing.T) {
	var before, after correction
	for range 100 {
		before.learn(10, 30)
		after.learn(10, 10)
		after.amend(20)
	}
	if a, b := before.factor(), after.factor(); math.Abs(a-b) > .1 {
		t.Errorf("settled before the end: %v, after it: %v", a, b)
	}
	after.amend(-1e9)
	if f := after.factor(); f != leastCorrection {
		t.Errorf("%v", f)
	}
}
