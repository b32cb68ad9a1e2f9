package main

import (
	"math"
	"testing"
	"time"
)

func TestLimit_Ideal(t *testing.T) {
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		limit limit
		items float64
		start time.Time
		want  float64
	}{
		{"nothing to do", bucketOf(20, 20), 0, midnight, 0},
		{"the burst is free", bucketOf(20, 20), 20, midnight, 0},
		{"after it the rate", bucketOf(20, 20), 120, midnight, 5},
		{"a rate that is halved after 15 s", bucketOf(100, 20).halved(15), 1620, midnight, 17},
		{"not reached", bucketOf(100, 20).halved(15), 1520, midnight, 15},
		{"a window begins with the first call", windowOf(30, 10), 30, midnight.Add(7 * time.Second), 0},
		{"the 31st is in the second one", windowOf(30, 10), 31, midnight, 10},
		{"an aligned one has begun before", alignedOf(30, 10), 31, midnight.Add(7 * time.Second), 3},
		{"and may be the only one", alignedOf(30, 10), 30, midnight.Add(7 * time.Second), 0},
		{"a counter takes the first burst back", counterOf(20, 1), 60, midnight, 3},
		{"but not if there is no more", counterOf(20, 1), 20, midnight, 0},
		{"ten at once, 100 ms each", inFlightOf(10, .1), 500, midnight, 5},
		{"as many as there are workers", openTo(32, .11), 3200, midnight, 11},
		{"nobody gets anything", limit{kind: down}, 200, midnight, outage},
		{"and nothing takes no time", limit{kind: down}, 0, midnight, 0},
	} {
		if got := c.limit.ideal(c.items, c.start); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v items of %+v take %v s, want %v", c.name, c.items, c.limit, got, c.want)
		}
	}
}

// A run of so many seconds must take about as long at best.
func TestLimit_Items(t *testing.T) {
	for _, c := range []struct {
		limit limit
		lasts float64
		want  int
	}{
		{bucketOf(20, 5), 25, 505},
		{bucketOf(100, 20).halved(15), 25, 2020},
		{bucketOf(100, 20).halved(15), 10, 1020},
		{windowOf(30, 10), 25, 120}, // three windows, and what the first one grants at once
		{windowOf(30, 10), 1, 120},
		{windowOf(20, 1), 25, 520},
		{counterOf(20, 1), 25, 500},
		{counterOf(30, 10), 25, 90},
		{inFlightOf(10, .1), 25, 2500},
		{limit{kind: down}, 25, 200},
	} {
		if got := c.limit.items(c.lasts); got != c.want {
			t.Errorf("%+v for %v s: %d items, want %d", c.limit, c.lasts, got, c.want)
		}
	}
	for _, s := range servers {
		if s.items > 0 || s.limit.kind == down {
			continue
		}
		n := s.itemsFor(300)
		if took := s.limit.ideal(float64(n), time.Time{}); took < 280 || took > 320 {
			t.Errorf("%s: %d items for 300 s take %v s", s.name, n, took)
		}
	}
}

func TestLimit_PerSecond(t *testing.T) {
	for _, c := range []struct {
		limit limit
		want  float64
	}{
		{bucketOf(20, 5), 20}, {windowOf(30, 10), 3}, {counterOf(30, 10), 3}, {alignedOf(20, 1), 20}, {inFlightOf(10, .1), 100}, {limit{kind: down}, 0},
	} {
		if got := c.limit.perSecond(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v per second, want %v", c.limit, got, c.want)
		}
	}
}
