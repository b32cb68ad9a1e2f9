package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The run is one of TestPicture in sluicehttp/sdktest, in virtual time.
//
//go:embed sdk.json
var sdkText []byte

// A run is what a server saw of an SDK.
type run struct {
	Calls, Succeeded    int
	Accepted, Throttled []int // requests, by the second in which they arrived
}

func sdkRuns() (alone, through run) {
	var runs map[string]run
	if err := json.Unmarshal(sdkText, &runs); err != nil {
		panic(err)
	}
	return runs["alone"], runs["through"]
}

const (
	runHeight  = 132
	runSeconds = 34
	runMost    = 100 // requests per second; more are cut off, with their number
)

// sdkPicture shows an SDK alone and through Sluice: requests and 429s over time.
func sdkPicture() picture {
	alone, through := sdkRuns()
	return picture{
		name: "sdk", title: "openai-go, without Sluice and with it",
		description: fmt.Sprintf("300 completions by 64 workers, at an account with 500 requests per minute. openai-go alone: %s. Through Sluice, no rate configured: %s.",
			alone, through),
		width: 860, height: 2*runHeight + 30,
		draw: func(c draw.Canvas) {
			x := sdkKey(c)
			alone.panel(draw.Crop(c, 0, 0, 0, -26), "openai-go", alone.String(), x)
			through.panel(draw.Crop(c, 0, 0, 0, -26-runHeight), "openai-go with Sluice", through.String(), x)
		},
	}
}

// String says how a run ended.
func (r run) String() string {
	throttled := 0
	for _, n := range r.Throttled {
		throttled += n
	}
	return fmt.Sprintf("%d of %d calls succeed, %d responses are 429", r.Succeeded, r.Calls, throttled)
}

// sdkKey draws the legend, and returns where a second is.
func sdkKey(c draw.Canvas) func(second int) vg.Length {
	left, right, y := c.Min.X+50, c.Max.X-16, c.Max.Y-13
	words := letters(10.5, ink, false, draw.XLeft, draw.YCenter)
	write(c, words, left, y, "requests in each second, 300 calls by 64 workers, a limit of 500 per minute:")
	box(c, rect(right-130, y-4, right-120, y+5), blue)
	write(c, words, right-116, y, "accepted")
	box(c, rect(right-48, y-4, right-38, y+5), red)
	write(c, words, right-34, y, "429")
	return func(second int) vg.Length { return left + (right-left)*vg.Length(second)/runSeconds }
}

// panel draws a run: a bar for each second.
func (r run) panel(c draw.Canvas, title, ends string, x func(int) vg.Length) {
	top, bottom := c.Max.Y-24, c.Max.Y-runHeight+18
	y := func(n int) vg.Length { return bottom + (top-bottom)*vg.Length(min(n, runMost))/runMost }
	write(c, letters(13, ink, true, draw.XLeft, draw.YTop), c.Min.X+12, c.Max.Y-2, title)
	write(c, letters(11.5, ink, false, draw.XRight, draw.YTop), x(runSeconds), c.Max.Y-3, ends)
	grid, small := draw.LineStyle{Color: faint, Width: 0.7}, letters(9.5, grey, false, draw.XRight, draw.YCenter)
	for n := 0; n <= runMost; n += 50 {
		c.StrokeLine2(grid, x(0), y(n), x(runSeconds), y(n))
		write(c, small, x(0)-5, y(n), strconv.Itoa(n))
	}
	small.XAlign, small.YAlign = draw.XCenter, draw.YTop
	for s := 0; s < runSeconds; s += 5 {
		label := strconv.Itoa(s)
		if s == 0 {
			label = "0 s"
		}
		write(c, small, x(s), bottom-3, label)
	}
	for s := range r.Accepted {
		from, to, n, all := x(s)+1, x(s+1)-1, r.Accepted[s], r.Accepted[s]+r.Throttled[s]
		box(c, rect(from, bottom, to, y(n)), blue)
		box(c, rect(from, y(n), to, y(all)), red)
		if all > runMost {
			write(c, letters(9.5, rust, true, draw.XLeft, draw.YTop), to+3, y(all), strconv.Itoa(all))
		}
	}
	if end := len(r.Accepted); r.Succeeded < r.Calls {
		write(c, letters(10.5, rust, false, draw.XLeft, draw.YCenter), x(end)+34, (top+bottom)/2,
			fmt.Sprintf("given up: %d calls have failed", r.Calls-r.Succeeded))
	}
}
