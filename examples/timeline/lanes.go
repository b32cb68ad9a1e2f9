package main

import (
	"strconv"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// lanesHeight is how high a panel of lanes is, of which there are at most 4.
const (
	laneHeight  = 17
	lanesHeight = headHeight + 4*laneHeight + 44
)

// lanes draws each call as a bar, from when it left until it was done, in the
// first lane that is free; and below how they left.
func lanes(c draw.Canvas, s subject, r history) {
	left, right := c.Min.X+sideWidth+10, c.Max.X-marginWidth-4
	x := func(us micros) vg.Length {
		return left + (right-left)*vg.Length(us)/vg.Length(confusedUntil.Microseconds())
	}
	top := c.Max.Y
	bottom := top - headHeight - 4*laneHeight - 2
	axis := bottom - 20

	write(c, letters(15, ink, true, draw.XLeft, draw.YTop), c.Min.X+marginWidth, top, s.title)
	write(c, letters(11.5, grey, false, draw.XLeft, draw.YTop), c.Min.X+marginWidth, top-18, s.point)
	for at := time.Duration(0); at <= confusedUntil; at += time.Second {
		u := x(at.Microseconds())
		c.StrokeLine2(draw.LineStyle{Color: faint, Width: 0.7}, u, axis, u, bottom+4*laneHeight)
		label := strconv.Itoa(int(at / time.Second))
		if at == confusedUntil {
			label += " s"
		}
		write(c, letters(10.5, grey, false, draw.XCenter, draw.YTop), u, axis-3, label)
	}
	c.StrokeLine2(draw.LineStyle{Color: grey, Width: 0.9}, left, bottom, right, bottom)
	side := letters(11, ink, false, draw.XRight, draw.YCenter)
	write(c, side, left-8, bottom+2*laneHeight, "in flight")
	write(c, side, left-8, bottom-10, "leave")

	var free []micros // when each lane is
	for i, from := range r.Left {
		lane := 0
		for lane < len(free) && free[lane] > from {
			lane++
		}
		if lane == len(free) {
			free = append(free, 0)
		}
		free[lane] = r.Done[i]
		fill := sky
		if i >= 8 {
			fill = amber
		}
		y := bottom + 3 + vg.Length(lane)*laneHeight
		box(c, rect(x(from)+0.6, y, x(r.Done[i])-0.6, y+laneHeight-4), fill)
		box(c, rect(x(from)+0.6, y, x(from)+3, y+laneHeight-4), blue)
	}
	for _, b := range stack(r.Left) {
		y := bottom - 3 - vg.Length(b.row)*8
		box(c, rect(x(b.at)+0.6, y-6, x(b.at)+6, y), blue)
	}
}
