package main

import (
	"context"
	"fmt"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

const (
	coldCalls = 12
	coldUntil = 1500 * time.Millisecond
)

// cold are a pacer and a bucket with the same rate and burst that were just made.
func cold() []subject {
	rate := limits.Rate{Count: 10, Per: time.Second, Burst: 5}
	dry := func() float64 { return 0 }
	return []subject{
		{name: "pacer", title: "pacer, gate", point: "begins without its burst", make: func() limiter {
			p := sluice.Must(pacer.New(rate))
			return limiter{water: dry, enter: func(ctx context.Context) (func(), error) {
				return func() {}, p.Acquire(ctx, 1)
			}}
		}},
		{name: "leaky", title: "leaky.Bucket", point: "begins with all of it", make: func() limiter {
			b := sluice.Must(leaky.New(rate))
			return limiter{water: dry, enter: func(ctx context.Context) (func(), error) {
				for r := b.Take(1); !r.Allowed(); r = b.Take(1) {
					time.Sleep(r.RetryAfter)
				}
				return func() {}, nil
			}}
		}},
	}
}

func coldPicture(runs []history) picture {
	p := picture{
		name: "cold", title: "10 per second with a burst of 5, just made: 12 calls at 0 s",
		width: 860, height: 116,
		draw: func(c draw.Canvas) { drawCold(c, runs) },
	}
	for i, s := range cold() {
		p.description += fmt.Sprintf("%s %s: %d calls start in the first millisecond, the last at %.1f s. ", s.title, s.point,
			mostWithin(runs[i].Left, time.Millisecond), time.Duration(runs[i].Left[coldCalls-1]*1000).Seconds())
	}
	return p
}

func drawCold(c draw.Canvas, runs []history) {
	left := c.Min.X + 230
	at := func(t micros) vg.Length {
		return left + vg.Length(t)*(c.Max.X-24-left)/vg.Length(coldUntil.Microseconds())
	}
	axis := c.Min.Y + 26
	for t := time.Duration(0); t <= coldUntil; t += 500 * time.Millisecond {
		x := at(t.Microseconds())
		c.StrokeLine2(draw.LineStyle{Color: faint, Width: 1}, x, axis, x, c.Max.Y-6)
		write(c, letters(11, grey, false, draw.XCenter, draw.YTop), x, axis-4, fmt.Sprintf("%.1f s", t.Seconds()))
	}
	for i, s := range cold() {
		y := c.Max.Y - 28 - vg.Length(i)*40
		write(c, letters(11, ink, true, draw.XLeft, draw.YCenter), c.Min.X+10, y+6, s.title)
		write(c, letters(11, grey, false, draw.XLeft, draw.YCenter), c.Min.X+10, y-8, s.point)
		same, last := vg.Length(0), micros(-1)
		for _, t := range runs[i].Left {
			if t != last {
				same, last = 0, t
			}
			x, bottom := at(t), y-14+6*same // calls that start together stand above one another
			box(c, rect(x-2, bottom, x+2, bottom+5), blue)
			same++
		}
	}
}
