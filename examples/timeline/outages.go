package main

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// An outage is one policy of sluiceredis: the calls that start while the server is away, as a
// multiple of the limit.
type outage struct {
	policy, then string
	calls        vg.Length
	fill         color.Color
}

var outages = []outage{
	{"FailClosed, the default", "rejected with ErrOutage", 0, red},
	{"FailOpen", "as many as come, not counted", 1.6, shade},
	{"LocalShare", "a share for each process", 1, pale},
}

const outageRow = 44

func outagesPicture() picture {
	return picture{
		name: "outages", title: "What happens to calls while a Redis does not answer",
		description: "Calls start up to the limit before and after an outage. With FailClosed none starts during it, with FailOpen all do, " +
			"and with LocalShare each process admits its share, together at most the limit if all are cut off.",
		width: 860, height: vg.Length(len(outages))*outageRow + 34,
		draw: drawOutages,
	}
}

func drawOutages(c draw.Canvas) {
	left := c.Min.X + 180
	at := func(third vg.Length) vg.Length { return left + third*(c.Max.X-12-left)/3 }
	const limit = 18
	head := letters(11, grey, false, draw.XCenter, draw.YCenter)
	for i, words := range []string{"the Redis answers", "it does not answer", "it answers again"} {
		write(c, head, (at(vg.Length(i))+at(vg.Length(i+1)))/2, c.Max.Y-14, words)
	}
	for i, o := range outages {
		floor := c.Max.Y - 30 - vg.Length(i+1)*outageRow + 8
		write(c, letters(11, ink, true, draw.XLeft, draw.YCenter), c.Min.X+10, floor+limit/2, o.policy)
		box(c, rect(at(0), floor, at(1)-1, floor+limit), pale)
		box(c, rect(at(2)+1, floor, at(3), floor+limit), pale)
		box(c, rect(at(1), floor, at(2), floor+max(1.5, o.calls*limit)), o.fill)
		write(c, letters(10.5, ink, false, draw.XCenter, draw.YCenter), (at(1)+at(2))/2, floor+limit/2, o.then)
		for _, x := range []vg.Length{0, 2} {
			write(c, letters(10.5, ink, false, draw.XCenter, draw.YCenter), (at(x)+at(x+1))/2, floor+limit/2, "up to the limit")
		}
	}
}
