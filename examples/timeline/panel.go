package main

import (
	"fmt"
	"strconv"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The bands of a panel, from the top, in points.
const (
	headHeight    = 38
	arriveHeight  = 80
	waterHeight   = 50
	leaveHeight   = 42
	axisHeight    = 18
	panelHeight   = headHeight + arriveHeight + waterHeight + leaveHeight + axisHeight
	sideWidth     = 62 // for the words on the left
	marginWidth   = 14
	brickHeight   = 2.6
	brickPitch    = 3.2
	brickDuration = 115 * time.Millisecond // how wide a call is drawn
	crowded       = 165 * time.Millisecond // calls closer than this are stacked
)

// panel draws what became of the calls: those that arrive stand on a line,
// below it is the water, and those that leave hang below that.
func panel(c draw.Canvas, s subject, r history) {
	left, right := c.Min.X+sideWidth, c.Max.X-marginWidth
	x := func(us micros) vg.Length {
		return left + (right-left)*vg.Length(us)/vg.Length(until.Microseconds())
	}
	top := c.Max.Y
	surface := top - headHeight - arriveHeight
	bottom := surface - waterHeight
	axis := bottom - leaveHeight

	write(c, letters(13, ink, true, draw.XLeft, draw.YTop), c.Min.X+marginWidth, top-2, s.title)
	write(c, letters(10.5, blue, false, draw.XRight, draw.YTop), right, top-4,
		fmt.Sprintf("at most %d leave within 2 s", mostWithin(r.Left, 2*time.Second)))
	write(c, letters(10.5, grey, false, draw.XLeft, draw.YTop), c.Min.X+marginWidth, top-19, s.point)

	for at := time.Duration(0); at <= until; at += 2 * time.Second {
		u := x(at.Microseconds())
		c.StrokeLine2(draw.LineStyle{Color: faint, Width: 0.7}, u, axis, u, surface+arriveHeight-4)
		label := strconv.Itoa(int(at / time.Second))
		if at+2*time.Second > until {
			label += " s"
		}
		write(c, letters(9.5, grey, false, draw.XCenter, draw.YTop), u, axis-3, label)
	}
	if s.name == "gate" {
		from, to := x(paused[0].Microseconds()), x(paused[1].Microseconds())
		box(c, rect(from, axis, to, surface), shade)
	}
	pour(c, s, r.Water, x, bottom, surface)
	if s.name == "gate" {
		from, to := x(paused[0].Microseconds()), x(paused[1].Microseconds())
		write(c, letters(9.5, ink, false, draw.XCenter, draw.YCenter), (from+to)/2, bottom-leaveHeight/2, "pause")
	}

	line := draw.LineStyle{Color: grey, Width: 0.9}
	c.StrokeLine2(line, left, surface, right, surface)
	c.StrokeLine2(line, left, bottom, right, bottom)

	side := letters(10, ink, false, draw.XRight, draw.YCenter)
	write(c, side, left-6, surface+12, "arrive")
	write(c, side, left-6, bottom-10, "leave")
	side.Color = blue
	write(c, side, left-6, (surface+bottom)/2, s.water)

	for _, b := range stack(r.Arrived) {
		y := surface + 2 + vg.Length(b.row)*brickPitch
		box(c, rect(x(b.at), y, x(b.at+brickDuration.Microseconds()), y+brickHeight), grey)
	}
	for _, b := range stack(r.Left) {
		y := bottom - 2 - vg.Length(b.row)*brickPitch
		box(c, rect(x(b.at), y-brickHeight, x(b.at+brickDuration.Microseconds()), y), blue)
	}
	refusals(c, r, x, bottom)
}

// pour draws the water: how much there is of it, and how much there can be.
func pour(c draw.Canvas, s subject, water []level, x func(micros) vg.Length, bottom, surface vg.Length) {
	most := s.full
	for _, l := range water {
		most = max(most, l.Units)
	}
	y := func(units float64) vg.Length {
		return bottom + (surface-bottom-9)*vg.Length(units/most)
	}
	shape := []vg.Point{{X: x(water[0].At), Y: bottom}}
	for _, l := range water {
		shape = append(shape, vg.Point{X: x(l.At), Y: y(l.Units)})
	}
	last := water[len(water)-1]
	shape = append(shape, vg.Point{X: x(last.At), Y: bottom})
	c.FillPolygon(pale, shape)
	c.StrokeLines(draw.LineStyle{Color: sky, Width: 0.9}, shape)
	label := fmt.Sprintf("%.0f", most)
	if s.full > 0 {
		c.StrokeLine2(draw.LineStyle{Color: blue, Width: 0.8, Dashes: []vg.Length{4, 3}}, x(0), y(s.full), x(until.Microseconds()), y(s.full))
	}
	write(c, letters(9, blue, false, draw.XRight, draw.YCenter), x(0)-4, y(most)-1, label)
}

// refusals writes the number of rejected calls where they arrived.
func refusals(c draw.Canvas, r history, x func(micros) vg.Length, bottom vg.Length) {
	for i := 0; i < len(r.Refused); {
		at, n := r.Refused[i], 0
		for ; i < len(r.Refused) && r.Refused[i] == at; i++ {
			n++
		}
		u, y := x(at+brickDuration.Microseconds())+8, bottom-20
		const arm = 3.5
		cross := draw.LineStyle{Color: red, Width: 2}
		c.StrokeLine2(cross, u-arm, y-arm, u+arm, y+arm)
		c.StrokeLine2(cross, u-arm, y+arm, u+arm, y-arm)
		write(c, letters(11, rust, true, draw.XLeft, draw.YCenter), u+8, y, fmt.Sprintf("%d refused", n))
	}
}

// A brick is a call in a stack of those that come at about one time.
type brick struct {
	at  micros // where it is drawn
	row int
}

// mostWithin returns the number of times in that span of time in which most
// are: one as long as per, its beginning included and its end not.
func mostWithin(at []micros, per time.Duration) (most int) {
	first := 0
	for i, t := range at {
		for at[first] <= t-per.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// stack stacks those calls that would be drawn over another. Calls that are
// far enough apart stand exactly where they belong.
func stack(at []micros) (bricks []brick) {
	for _, t := range at {
		if n := len(bricks); n > 0 && t < bricks[n-1].at+crowded.Microseconds() {
			bricks = append(bricks, brick{bricks[n-1].at, bricks[n-1].row + 1})
			continue
		}
		bricks = append(bricks, brick{at: t})
	}
	return bricks
}
