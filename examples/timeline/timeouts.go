package main

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A stretch is a part of a request's time, in units of the picture.
type stretch struct {
	name     string
	from, to vg.Length
	fill     color.Color
}

// request is a request that is sent twice.
var request = []stretch{
	{"queue", 0, 16, shade},
	{"attempt 1", 16, 30, pale},
	{"backoff, queue", 30, 48, shade},
	{"attempt 2", 48, 62, pale},
	{"body", 62, 96, pale},
}

// timeouts are what each timeout covers of it.
var timeouts = []struct {
	name   string
	covers []stretch
}{
	{"http.Client.Timeout, a deadline", []stretch{{"", 0, 96, red}}},
	{"RetryPolicy.AttemptTimeout", []stretch{{"", 16, 30, blue}, {"", 48, 62, blue}}},
	{"RetryPolicy.MaxServerWait", []stretch{{"", 30, 48, amber}}},
	{"RetryPolicy.MaxElapsed", []stretch{{"", 16, 48, grey}}},
}

const timeoutsRow = 26

func timeoutsPicture() picture {
	return picture{
		name: "timeouts", title: "What each timeout of a request covers",
		description: "A request waits in the queue, is sent, waits for a backoff and in the queue, is sent again, and its body is read. " +
			"http.Client.Timeout or a deadline covers all of that. AttemptTimeout covers each attempt until its header, MaxServerWait each wait that the server requests, " +
			"and MaxElapsed the time from the start of the first attempt to the start of the last one.",
		width: 860, height: vg.Length(len(timeouts)+1)*timeoutsRow + 22,
		draw: drawTimeouts,
	}
}

func drawTimeouts(c draw.Canvas) {
	left := c.Min.X + 220
	at := func(x vg.Length) vg.Length { return left + x*(c.Max.X-12-left)/96 }
	top := c.Max.Y - 8
	for _, s := range request {
		box(c, rect(at(s.from)+1, top-20, at(s.to)-1, top), s.fill)
		write(c, letters(11, ink, false, draw.XCenter, draw.YCenter), (at(s.from)+at(s.to))/2, top-10, s.name)
		c.StrokeLine2(draw.LineStyle{Color: faint, Width: 1}, at(s.from), top-22, at(s.from), c.Min.Y+8)
	}
	write(c, letters(11, ink, true, draw.XLeft, draw.YCenter), c.Min.X+10, top-10, "a request")
	for i, t := range timeouts {
		y := top - 10 - vg.Length(i+1)*timeoutsRow
		write(c, letters(11, ink, false, draw.XLeft, draw.YCenter), c.Min.X+10, y, t.name)
		for _, s := range t.covers {
			line := draw.LineStyle{Color: s.fill, Width: 2}
			c.StrokeLine2(line, at(s.from)+1, y, at(s.to)-1, y)
			c.StrokeLine2(line, at(s.from)+1, y-4, at(s.from)+1, y+4)
			c.StrokeLine2(line, at(s.to)-1, y-4, at(s.to)-1, y+4)
		}
	}
}
