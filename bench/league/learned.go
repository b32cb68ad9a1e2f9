package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/svg"
)

// This file draws what the rule of internal/adaptive believes over time, in four worlds:
// docs/design/learned.svg. The picture is the same on all machines.

// pictured are the worlds of the picture, and what its readers see in them.
var pictured = []struct{ world, title string }{
	{"steps", "steps: a bucket of 20/s, then 100/s, then 30/s"},
	{"window", "window: 100 per minute"},
	{"penalty", "penalty: 5/s, and a refusal bans for 30 s"},
	{"bucket", "bucket: 50/s, burst of 10"},
}

// A diarist is a searcher that writes down its pace.
type diarist struct {
	searcher
	days []day
}

// A day is what was believed at one instant.
type day struct {
	at      float64
	pace    float64
	blocked bool
	refused bool // a call came back refused
}

func (d *diarist) leave(now time.Duration, inFlight int, cost float64) (ticket, time.Duration) {
	t, at := d.searcher.leave(now, inFlight, cost)
	if t != nil {
		d.write(now, false)
	}
	return t, at
}

func (d *diarist) done(now time.Duration, t ticket, r reply) {
	d.searcher.done(now, t, r)
	d.write(now, r.outcome == refused)
}

func (d *diarist) write(now time.Duration, refused bool) {
	b := d.rule.Belief()
	d.days = append(d.days, day{now.Seconds(), b.Pace, b.Blocked, refused})
}

// diary plays a world and returns what was written down.
func diary(w *World) []day {
	var d *diarist
	play(w, entry{make: func(w *World, r *rand.Rand) strategy {
		d = &diarist{searcher: *searching(adaptive.Config{})(w, r).(*searcher)}
		return d
	}}, 1)
	return d.days
}

// A panel is the part of the picture for one world.
type panel struct {
	world       *World
	left, top   float64
	most, scale float64 // the highest pace, and the length of the axis of time in seconds
}

// Sizes of the picture, in pixels.
const (
	panelWidth, panelHeight = 330, 150
	panelLeft, panelTop     = 44, 62
	panelRight              = 16
)

func (p *panel) x(t float64) float64    { return p.left + panelWidth*t/p.scale }
func (p *panel) y(pace float64) float64 { return p.top + panelHeight*(1-pace/p.most) }

// saveLearned draws the picture.
func saveLearned(file string) error {
	const width, height = 2 * (panelLeft + panelWidth + panelRight), 2*(panelTop+panelHeight) + 36
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" style="font-family:Liberation Sans" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:#FFFFFF"/>`+"\n", width, height)
	legend(&b)
	for i, shown := range pictured {
		p := &panel{
			left: panelLeft + float64(i%2)*(panelLeft+panelWidth+panelRight),
			top:  panelTop + float64(i/2)*(panelTop+panelHeight),
		}
		for _, w := range namedWorlds() {
			if w.Name == shown.world {
				p.world = w
			}
		}
		p.draw(&b, i, shown.title)
	}
	b.WriteString("</svg>\n")
	out, err := svg.Finish(b.Bytes(), "The pace that is learned, in four worlds",
		"Four charts of the pace over time, each with the rate of the server. Steps: the pace keeps to the rate and follows it "+
			"within seconds when that rises from 20 to 100 per second and when it falls to 30. Window: after a few costly refusals calls "+
			"leave three times as fast as the mean rate until the number per window is used up. Penalty: the pace "+
			"comes near the rate in a few steps, each of which costs a ban. Bucket: the pace doubles up to the first refusal and then "+
			"stays within a few percent of the rate.")
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644)
}

func legend(b *bytes.Buffer) {
	y := 16
	fmt.Fprintf(b, `<path d="M%d %dh22" style="fill:none;stroke:#0072B2;stroke-width:1.4"/><text x="%d" y="%d" style="fill:#222222">pace of the client, per second; none while no call leaves</text>`+"\n", panelLeft, y, panelLeft+28, y+4)
	fmt.Fprintf(b, `<path d="M%d %dh22" style="fill:none;stroke:#777777;stroke-dasharray:4 3"/><text x="%d" y="%d" style="fill:#222222">mean rate of the server</text>`+"\n", panelLeft+352, y, panelLeft+380, y+4)
	fmt.Fprintf(b, `<path d="M%d %dv9" style="fill:none;stroke:#D55E00"/><text x="%d" y="%d" style="fill:#222222">refusals</text>`+"\n", panelLeft+536, y-4, panelLeft+543, y+4)
}

// allowed returns the server's rate as steps.
func allowed(l Limiter) []Step {
	if l.Kind == "window" {
		return []Step{{Rate: l.Count / l.Seconds}}
	}
	return append([]Step{{Rate: l.Rate}}, l.Steps...)
}

func (p *panel) draw(b *bytes.Buffer, number int, title string) {
	l := p.world.Limiters[0]
	steps := allowed(l)
	for _, s := range steps {
		p.most = math.Max(p.most, 1.6*s.Rate)
	}
	if l.Kind == "window" {
		p.most *= 2.5 // it is used up three times as fast as its mean
	}
	p.scale = p.world.Seconds
	days := diary(p.world)
	fmt.Fprintf(b, `<clipPath id="p%d"><rect x="%.0f" y="%.0f" width="%d" height="%d"/></clipPath>`+"\n", number, p.left, p.top, panelWidth, panelHeight)
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" font-weight="bold" style="fill:#222222">%s</text>`+"\n", p.left, p.top-8, title)
	p.axes(b)
	var path strings.Builder
	for i, s := range steps {
		to := p.scale
		if i+1 < len(steps) {
			to = steps[i+1].At
		}
		fmt.Fprintf(&path, "M%.1f %.1fH%.1f", p.x(s.At), p.y(s.Rate), p.x(to))
	}
	fmt.Fprintf(b, `<path d="%s" style="fill:none;stroke:#777777;stroke-dasharray:4 3"/>`+"\n", &path)
	fmt.Fprintf(b, `<path clip-path="url(#p%d)" d="%s" style="fill:none;stroke:#0072B2;stroke-width:1.4"/>`+"\n", number, p.line(days))
	fmt.Fprintf(b, `<path d="%s" style="fill:none;stroke:#D55E00"/>`+"\n", p.ticks(days))
}

// axes draws the frame, with numbers.
func (p *panel) axes(b *bytes.Buffer) {
	step := math.Pow(10, math.Floor(math.Log10(p.most/2)))
	for p.most/step > 6 {
		step *= 2
	}
	for pace := 0.; pace < p.most; pace += step {
		fmt.Fprintf(b, `<path d="M%.1f %.1fh%d" style="fill:none;stroke:#E4E4E4"/><text x="%.1f" y="%.1f" text-anchor="end" style="fill:#222222">%.0f</text>`+"\n",
			p.left, p.y(pace), panelWidth, p.left-5, p.y(pace)+4, pace)
	}
	for i, anchor := range []string{"start", "middle", "middle", "end"} {
		unit := ""
		if i == 3 {
			unit = " s"
		}
		t := p.scale * float64(i) / 3
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" style="fill:#222222">%.0f%s</text>`+"\n", p.x(t), p.top+panelHeight+24, anchor, t, unit)
	}
}

// line returns the pace as a path. It breaks where no call left for so long that the gap
// can be seen: the client was blocked, or the number of a window was used up.
func (p *panel) line(days []day) string {
	var path strings.Builder
	x, y := math.Inf(-1), math.Inf(-1)
	for _, d := range days {
		if d.blocked || d.pace == 0 {
			continue
		}
		toX, toY := p.x(d.at), math.Max(p.top-20, p.y(d.pace))
		if toX < x+.4 && math.Abs(toY-y) < .5 {
			continue
		}
		op := "L"
		if toX > x+3 {
			op = "M"
		}
		x, y = toX, toY
		fmt.Fprintf(&path, "%s%.1f %.1f", op, x, y)
	}
	return path.String()
}

// ticks returns a short line below the axis for each refusal; those of one pixel are one.
func (p *panel) ticks(days []day) string {
	var path strings.Builder
	last := math.Inf(-1)
	for _, d := range days {
		if x := p.x(d.at); d.refused && x >= last+1 {
			last = x
			fmt.Fprintf(&path, "M%.1f %.1fv8", x, p.top+panelHeight+2)
		}
	}
	return path.String()
}
