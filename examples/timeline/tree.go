package main

import (
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A choice is a question, or if use is set, an answer.
type choice struct {
	text, use string
	then      []choice
}

// which leads from the limit that is known to the package.
var which = choice{text: "Which limit do you know?", then: []choice{
	{text: "none, or it changes", then: []choice{
		{text: "calls of HTTP, by any client or SDK", use: "sluicehttp.NewClient()"},
		{text: "calls of gRPC", use: "sluicegrpc"},
		{text: "other calls", use: "sluice.New, sluice.Retry"},
	}},
	{text: "a number per time", then: []choice{
		{text: "callers wait their turn", use: "Config.Rate; alone: pacer"},
		{text: "yes or no immediately", use: "leaky"},
		{text: "100 in any hour, 5,000 a day", use: "window"},
	}},
	{text: "a number at the same time", use: "Config.Concurrency; alone: semaphore"},
	{text: "one for each host or tenant", use: "sluicehttp, sluice.NewKeyed"},
	{text: "shared by many machines", use: "sluiceredis"},
}}

const rowHeight = 27

func treePicture() picture {
	return picture{
		name: "which", title: "Which part of Sluice for which limit",
		description: which.words(), width: 860, height: vg.Length(which.rows())*rowHeight + 12,
		draw: func(c draw.Canvas) { which.draw(c, c.Min.X+10, c.Max.Y-6, 0) },
	}
}

// rows is the number of answers.
func (c choice) rows() (n int) {
	for _, t := range c.then {
		n += t.rows()
	}
	return max(n, 1)
}

// words says the tree in a line.
func (c choice) words() string {
	if c.use != "" {
		return c.text + ": " + c.use
	}
	var all []string
	for _, t := range c.then {
		all = append(all, t.words())
	}
	return c.text + " (" + strings.Join(all, "; ") + ")"
}

// columns are where questions of each depth begin, and answers.
var columns = [...]vg.Length{10, 205, 400, 640}

// draw draws the tree below top, and returns the height of its node.
func (c choice) draw(to draw.Canvas, left, top vg.Length, depth int) vg.Length {
	y := top - vg.Length(c.rows())*rowHeight/2
	line := draw.LineStyle{Color: sky, Width: 1.2}
	if c.use != "" {
		x := to.Min.X + columns[3]
		width := letters(11, ink, false, draw.XLeft, draw.YCenter).Width(c.text)
		to.StrokeLine2(draw.LineStyle{Color: faint, Width: 1}, left+width+6, y, x-12, y)
		write(to, letters(11, ink, false, draw.XLeft, draw.YCenter), left, y, c.text)
		write(to, letters(11, blue, true, draw.XLeft, draw.YCenter), x-6, y, c.use)
		return y
	}
	size := letters(11, ink, depth == 0, draw.XLeft, draw.YCenter)
	write(to, size, left, y, c.text)
	from, next := left+size.Width(c.text)+6, to.Min.X+columns[depth+1]
	fork := next - 14
	to.StrokeLine2(line, from, y, fork, y)
	for _, t := range c.then {
		at := t.draw(to, next, top, depth+1)
		to.StrokeLine2(line, fork, y, fork, at)
		to.StrokeLine2(line, fork, at, next-4, at)
		top -= vg.Length(t.rows()) * rowHeight
	}
	return y
}
