package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sluice-go/sluice/internal/svg"
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// look is how a library looks in every plot.
type look struct {
	color color.Color
	mark  draw.GlyphDrawer
	dash  []vg.Length
}

var (
	blue   = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	orange = color.RGBA{0xE6, 0x9F, 0x00, 0xFF}
	red    = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	green  = color.RGBA{0x00, 0x9E, 0x73, 0xFF}
	pink   = color.RGBA{0xCC, 0x79, 0xA7, 0xFF}
	sky    = color.RGBA{0x56, 0xB4, 0xE9, 0xFF}
	grey   = color.RGBA{0x77, 0x77, 0x77, 0xFF}
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xFF}
	faint  = color.RGBA{0xE4, 0xE4, 0xE4, 0xFF}
)

// looks has its own mark for each library, because not all readers see the colors.
var looks = map[string]look{
	"sluice":        {blue, draw.CircleGlyph{}, nil},
	"sluice-fine":   {sky, polygon{corners: 8}, []vg.Length{5, 3}},
	"deadlines":     {blue, polygon{corners: 5}, []vg.Length{5, 3}},
	"floor":         {ink, draw.PlusGlyph{}, []vg.Length{2, 2}},
	"parts":         {ink, draw.RingGlyph{}, []vg.Length{2, 2}},
	"xtime":         {red, draw.BoxGlyph{}, nil},
	"xsync":         {red, polygon{corners: 4, filled: true}, nil},
	"xsync+xtime":   {red, polygon{corners: 4}, nil},
	"syncmap+xtime": {red, polygon{corners: 6, filled: true}, nil},
	"redis_rate":    {red, polygon{corners: 5, filled: true}, nil},
	"uber":          {orange, draw.PyramidGlyph{}, nil},
	"uber-strict":   {orange, draw.TriangleGlyph{}, []vg.Length{5, 3}},
	"failsafe":      {green, draw.SquareGlyph{}, nil},
	"throttled":     {pink, draw.CrossGlyph{}, nil},
	"sethvargo":     {sky, polygon{corners: 3, filled: true}, nil},
	"chan":          {grey, polygon{corners: 6}, nil},
	"chan+ctx":      {grey, polygon{corners: 3}, []vg.Length{5, 3}},
	"shardmap":      {ink, rays(6), []vg.Length{2, 2}},
	"ticker":        {grey, rays(2), []vg.Length{2, 2}},
}

// A polygon is a mark with one of its corners at the bottom.
type polygon struct {
	corners int
	filled  bool
}

// DrawGlyph implements draw.GlyphDrawer.
func (p polygon) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	var path vg.Path
	path.Move(around(at, style.Radius*1.2, 0, p.corners))
	for i := 1; i < p.corners; i++ {
		path.Line(around(at, style.Radius*1.2, i, p.corners))
	}
	path.Close()
	if c.SetColor(style.Color); p.filled {
		c.Fill(path)
		return
	}
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: 0.8})
	c.Stroke(path)
}

// rays is a mark of so many lines from the middle: 2 are a bar that stands.
type rays int

// DrawGlyph implements draw.GlyphDrawer.
func (n rays) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: 0.9})
	for i := range int(n) {
		var path vg.Path
		path.Move(at)
		path.Line(around(at, style.Radius*1.3, i, int(n)))
		c.Stroke(path)
	}
}

// around returns the i-th of n points on a circle, from the lowest on.
func around(at vg.Point, radius vg.Length, i, n int) vg.Point {
	sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
	return vg.Point{X: at.X + radius*vg.Length(sin), Y: at.Y - radius*vg.Length(cos)}
}

// names are what libraries are called in plots, where that differs.
var names = map[string]string{
	"xtime":       "x/time/rate",
	burstOne:      "x/time/rate, burst 1",
	"xsync":       "x/sync",
	"uber-strict": "uber, no slack",
	"sluice-fine": "sluice, no grain",
	"uber":        "uber, slack 10",
	"ticker":      "time.Ticker",
	"chan":        "channel",
	"chan+ctx":    "channel, ctx",
	"shardmap":    "sharded map",
	"xsync+xtime": "x/sync + x/time",
	"parts":       "its parts",

	"syncmap+xtime": "sync.Map + x/time",
}

// burstOne is xtime where it has a burst of 1 throughout.
const burstOne = "xtime, burst 1"

func init() { looks[burstOne] = looks["xtime"] }

func named(library string) string {
	if n := names[library]; n != "" {
		return n
	}
	return library
}

func (l look) line(width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: width, Dashes: l.dash}
}

// A series is one line, with its name at its right end.
type series struct {
	library string
	points  plotter.XYs
	marks   bool
}

// A panel is one plot of a figure.
type panel struct {
	*plot.Plot
	series []series
	labels bool // at the right ends of the series
}

// A figure is some panels next to each other, and what they show in words.
type figure struct {
	title, description string

	width, height vg.Length
	panels        []panel
	key           []string // libraries of a key above the panels
	keyLines      bool     // of lines, not of marks
	err           error
}

func newPanel(title, x, y string) panel {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 13
	p.Title.TextStyle.Color = ink
	p.Title.Padding = 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Size = 11
		axis.Label.Padding = 4
		axis.Tick.Label.Font.Size = 10
		axis.Color, axis.Tick.Color = grey, grey
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = ink, ink
		axis.Padding = 0
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = faint, faint
	p.Add(grid)
	return panel{Plot: p, labels: true}
}

// addSeries adds lines; sluice is drawn last, and thicker.
func (f *figure) addSeries(p *panel, all []series) {
	slices.SortStableFunc(all, func(a, b series) int { return rankOf(a.library) - rankOf(b.library) })
	for _, s := range all {
		if len(s.points) == 0 {
			continue
		}
		if _, ok := looks[s.library]; !ok {
			f.err = fmt.Errorf("%s has no look", s.library)
			return
		}
		line, marks, err := plotter.NewLinePoints(s.points)
		if err != nil {
			f.err = err
			return
		}
		l, width, radius := looks[s.library], vg.Length(1.3), vg.Length(2.6)
		if s.library == "sluice" {
			width, radius = 3, 4
		}
		line.LineStyle = l.line(width)
		p.Add(line)
		if s.marks {
			marks.GlyphStyle = draw.GlyphStyle{Color: l.color, Radius: radius, Shape: l.mark}
			p.Add(marks)
		}
		p.series = append(p.series, s)
	}
}

func rankOf(library string) int {
	if library == "sluice" {
		return 1
	}
	return 0
}

// save draws f.
func (f figure) save(file string) error {
	if f.err != nil {
		return f.err
	}
	var out bytes.Buffer
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	png := strings.HasSuffix(file, ".png")
	if png {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(144))}
	} else {
		canvas = vgsvg.New(f.width, f.height)
	}
	f.draw(draw.New(canvas))
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	image := out.Bytes()
	if !png {
		var err error
		if image, err = svg.Finish(image, f.title, f.description); err != nil {
			return err
		}
	}
	return os.WriteFile(file, image, 0o644)
}

func (f figure) draw(c draw.Canvas) {
	c.FillPolygon(color.White, []vg.Point{{}, {X: f.width}, {X: f.width, Y: f.height}, {Y: f.height}})
	c = draw.Crop(c, 8, -8, 8, -8)
	if len(f.key) > 0 {
		c = f.drawKey(c)
	}
	each := (c.Max.X - c.Min.X) / vg.Length(len(f.panels))
	margin := f.margin()
	for i, p := range f.panels {
		at := draw.Crop(c, each*vg.Length(i), each*vg.Length(i+1)-(c.Max.X-c.Min.X)-margin, 0, 0)
		p.Draw(at)
		if p.labels {
			p.label(p.DataCanvas(at))
		}
	}
}

// nameStyle is how the name of a library is written: in ink, because some colors are too
// light to read.
func nameStyle(library string) text.Style {
	style := text.Style{Color: ink, Font: plot.DefaultFont, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	style.Font.Size = 11
	if library == "sluice" {
		style.Font.Weight = 3 // bold
	}
	return style
}

const beside = 13 // from the right of the data to the labels

// margin returns how much room the labels of a panel need on its right.
func (f figure) margin() vg.Length {
	most := vg.Length(8)
	for _, p := range f.panels {
		for _, s := range p.series {
			if p.labels {
				most = max(most, beside+nameStyle(s.library).Width(named(s.library))+10)
			}
		}
	}
	return most
}

// label writes the name of each series next to its right end, moved up or down
// where two would meet.
func (p panel) label(data draw.Canvas) {
	const apart = 13
	type mark struct {
		library string
		x, y    vg.Length // of the end
		at      vg.Length // of the name
	}
	var marks []mark
	tx, ty := p.Transforms(&data)
	for _, s := range p.series {
		end := s.points[len(s.points)-1]
		y := min(max(ty(end.Y), data.Min.Y), data.Max.Y)
		marks = append(marks, mark{s.library, tx(end.X), y, y})
	}
	slices.SortFunc(marks, func(a, b mark) int { return int(math.Copysign(1, float64(a.y-b.y))) })
	// Push apart until nothing moves: half to each side, so that a cluster
	// stays where it is.
	for range 200 {
		moved := false
		for i := 1; i < len(marks); i++ {
			if lack := apart - (marks[i].at - marks[i-1].at); lack > 0.1 {
				marks[i-1].at -= lack / 2
				marks[i].at += lack / 2
				moved = true
			}
		}
		if low := data.Min.Y - 4; len(marks) > 0 && marks[0].at < low {
			marks[0].at = low
		}
		if !moved {
			break
		}
	}
	for _, m := range marks {
		data.StrokeLine2(draw.LineStyle{Color: looks[m.library].color, Width: 0.6}, m.x+3, m.y, data.Max.X+10, m.at)
		data.FillText(nameStyle(m.library), vg.Point{X: data.Max.X + beside, Y: m.at}, named(m.library))
	}
}

// drawKey draws a key at the top of c and returns the rest.
func (f figure) drawKey(c draw.Canvas) draw.Canvas {
	x, y := c.Min.X+6, c.Max.Y-8
	for _, library := range f.key {
		style, radius := nameStyle(library), vg.Length(3.2)
		if library == "sluice" {
			radius = 5
		}
		before := vg.Length(12)
		if f.keyLines {
			before = 26
		}
		width := before + style.Width(named(library))*1.1 + 12 // other fonts are wider
		if x+width > c.Max.X {
			x, y = c.Min.X+6, y-17
		}
		if f.keyLines {
			c.StrokeLine2(looks[library].line(radius/2), x, y, x+before-5, y)
		} else {
			c.DrawGlyph(draw.GlyphStyle{Color: looks[library].color, Radius: radius, Shape: looks[library].mark}, vg.Point{X: x + 4, Y: y})
		}
		c.FillText(style, vg.Point{X: x + before, Y: y}, named(library))
		x += width
	}
	return draw.Crop(c, 0, 0, 0, y-14-c.Max.Y)
}

// logAxis makes axis logarithmic from low to high with labels at powers of
// ten.
func logAxis(axis *plot.Axis, low, high float64) {
	axis.Scale = plot.LogScale{}
	axis.Min, axis.Max = low, high
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high*1.0001; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			v := power * digit
			if v < low*0.9999 || v > high*1.0001 {
				continue
			}
			tick := plot.Tick{Value: v}
			if digit == 1 || high/low < 200 && (digit == 2 || digit == 5) {
				tick.Label = short(v)
			}
			ticks = append(ticks, tick)
		}
	}
	axis.Tick.Marker = plot.ConstantTicks(ticks)
}

// short writes 100,000 as 100k.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// steps are ticks with labels at multiples of step.
func steps(low, high, step float64, format string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for v := low; v <= high+step/1000; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf(format, v)})
	}
	return ticks
}
