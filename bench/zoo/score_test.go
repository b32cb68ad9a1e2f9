package main

import (
	"math"
	"testing"
	"time"
)

func TestResult_CountAndJudge(t *testing.T) {
	sights := func(granted, refused int) (all []sight) {
		for i := range granted + refused {
			all = append(all, sight{back: time.Duration(i), refused: i >= granted})
		}
		return all
	}
	for _, c := range []struct {
		name                           string
		seen                           []sight
		items, done                    int
		seconds                        float64
		refused, later, goodput, score float64
	}{
		{"all at the full rate", sights(120, 0), 120, 120, 5, 0, 0, 1, 100},
		{"twice as slow", sights(120, 0), 120, 120, 10, 0, 0, .5, 50},
		{"faster than the limit allows is no better", sights(120, 0), 120, 120, 4, 0, 0, 1.25, 100},
		{"a quarter refused", sights(120, 40), 120, 120, 5, .25, 40. / 130, 1, 75},
		{"half of the items lost, in the time that the other half needs", sights(70, 0), 140, 70, 2.5, 0, 0, 1, 50},
		{"fewer answers than are free", sights(10, 10), 20, 10, 1, .5, 0, 0, 0},
		{"no answer at all", nil, 120, 0, 30, 0, 0, 0, 0},
	} {
		r := result{Items: c.items, Done: c.done, Seconds: c.seconds}
		r.count(c.seen)
		r.judge(bucketOf(20, 20), time.Time{})
		for _, f := range []struct {
			name      string
			got, want float64
		}{{"refused", r.Refused, c.refused}, {"later", r.Later, c.later}, {"goodput", r.Goodput, c.goodput}, {"score", r.Score, c.score}} {
			if math.Abs(f.got-f.want) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", c.name, f.name, f.got, f.want)
			}
		}
	}
}

func TestGrantedUntil(t *testing.T) {
	seen := []sight{{time.Second, false}, {2 * time.Second, true}, {2 * time.Second, false}, {3 * time.Second, false}}
	if got := grantedUntil(seen, 2*time.Second); got != 2 {
		t.Errorf("%v granted until 2 s, want 2", got)
	}
}

func TestPercentile(t *testing.T) {
	var xs []float64
	for i := range 200 {
		xs = append(xs, float64(199-i))
	}
	if got := percentile(xs, 99); got != 198 {
		t.Errorf("p99 of 0 to 199 is %v, want 198", got)
	}
	if got := percentile(nil, 99); got != 0 {
		t.Errorf("p99 of nothing is %v", got)
	}
	if got := percentile([]float64{7}, 100); got != 7 {
		t.Errorf("p100 of one is %v", got)
	}
}
