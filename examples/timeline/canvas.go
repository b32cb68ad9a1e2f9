package main

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sluice-go/sluice/internal/svg"
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
}

// Colours of Okabe and Ito (Color Universal Design, 2008), as in bench/plots.
var (
	blue  = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	red   = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	rust  = color.RGBA{0xA8, 0x4A, 0x00, 0xFF} // red for text, which needs more contrast
	amber = color.RGBA{0xE6, 0x9F, 0x00, 0xFF}
	pale  = color.RGBA{0xBF, 0xE1, 0xF6, 0xFF} // of the sky blue, as water
	sky   = color.RGBA{0x56, 0xB4, 0xE9, 0xFF}
	grey  = color.RGBA{0x70, 0x70, 0x70, 0xFF}
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xFF}
	faint = color.RGBA{0xE8, 0xE8, 0xE8, 0xFF}
	shade = color.RGBA{0xFB, 0xEF, 0xD5, 0xFF} // of amber
)

// A picture is something that can be drawn, its size, and what it shows in words.
type picture struct {
	name, title, description string
	width, height            vg.Length
	draw                     func(c draw.Canvas)
}

// save draws p to file.
func (p picture) save(file string) error {
	canvas := vgsvg.New(p.width, p.height)
	c := draw.New(canvas)
	box(c, c.Rectangle, color.White)
	p.draw(c)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	image, err := svg.Finish(out.Bytes(), p.title, p.description)
	if err != nil {
		return err
	}
	return os.WriteFile(file, image, 0o644)
}

// box fills a rectangle.
func box(c draw.Canvas, r vg.Rectangle, fill color.Color) {
	c.FillPolygon(fill, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}

// rect is the rectangle with these corners.
func rect(x0, y0, x1, y1 vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
}

// letters is a style of text.
func letters(size vg.Length, col color.Color, bold bool, x text.XAlignment, y text.YAlignment) text.Style {
	s := text.Style{Color: col, Font: plot.DefaultFont, XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
	s.Font.Size = size
	if bold {
		s.Font.Weight = 3
	}
	return s
}

// write writes a line of text.
func write(c draw.Canvas, s text.Style, x, y vg.Length, line string) {
	c.FillText(s, vg.Point{X: x, Y: y}, line)
}
