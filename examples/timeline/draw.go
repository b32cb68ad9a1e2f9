package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawAll draws all pictures from n into the directory dir, writes n next to them,
// and returns the files that it has written.
func drawAll(n numbers, dir string) (files []string, err error) {
	file := filepath.Join(dir, "timeline.json")
	if err := n.write(file); err != nil {
		return nil, err
	}
	files = append(files, file)
	for _, p := range pictures(n) {
		file := filepath.Join(dir, p.name+".svg")
		if err := p.save(file); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

// pictures are all that there are, drawn from n.
func pictures(n numbers) (all []picture) {
	two, eight := confusion(), subjects()
	all = append(all, picture{
		name: "confusion", title: "How many are in flight, and how often they leave",
		description: "The same 16 calls pass two limiters. " +
			two[0].title + ": " + inWords(two[0], n.Confusion[0]) + " " + two[1].title + ": " + inWords(two[1], n.Confusion[1]),
		width: 900, height: 2*lanesHeight + 34,
		draw: func(c draw.Canvas) {
			key(c)
			for i, s := range two {
				lanes(draw.Crop(c, 0, 0, 0, -26-vg.Length(i)*lanesHeight), s, n.Confusion[i])
			}
		},
	})
	var words []string
	for i, s := range eight {
		words = append(words, s.title+": "+inWords(s, n.Sixty[i]))
		all = append(all, picture{
			name: s.name, title: s.title, description: "60 calls arrive over 12 s: " + inWords(s, n.Sixty[i]),
			width: 640, height: panelHeight + 8,
			draw: func(c draw.Canvas) { panel(draw.Crop(c, 0, 0, 0, -4), s, n.Sixty[i]) },
		})
	}
	const rows = 4
	sheet := picture{name: "sheet", title: "What each limiter does to the same 60 calls", description: strings.Join(words, " "), width: 960, height: rows * (panelHeight + 14)}
	sheet.draw = func(c draw.Canvas) {
		for i, s := range eight {
			column, row := vg.Length(i/rows), vg.Length(i%rows)
			half := (c.Max.X - c.Min.X) / 2
			panel(draw.Crop(c, column*half, (column-1)*half, 0, -6-row*(panelHeight+14)), s, n.Sixty[i])
		}
	}
	return append(all, sheet, sdkPicture(), treePicture(), timeoutsPicture(), coldPicture(n.Cold), outagesPicture())
}

// inWords says what became of the calls, for people who do not see it.
func inWords(s subject, r history) string {
	refused := ""
	if n := len(r.Refused); n > 0 {
		refused = fmt.Sprintf(", %d are refused", n)
	}
	last := time.Duration(r.Left[len(r.Left)-1]) * time.Microsecond
	return fmt.Sprintf("%s. %d leave, the last one at %.1f s, at most %d within 2 s%s.",
		s.point, len(r.Left), last.Seconds(), mostWithin(r.Left, 2*time.Second), refused)
}

// key says what the colors of the first picture are.
func key(c draw.Canvas) {
	x, y := c.Min.X+marginWidth, c.Max.Y-13
	style := letters(11.5, ink, false, draw.XLeft, draw.YCenter)
	for _, k := range []struct {
		fill  color.Color
		words string
	}{
		{sky, "a quick call, 0.2 s"},
		{amber, "a slow call, 1.6 s"},
	} {
		box(c, rect(x, y-5, x+22, y+5), k.fill)
		box(c, rect(x, y-5, x+2.4, y+5), blue)
		write(c, style, x+28, y, k.words)
		x += 28 + style.Width(k.words) + 24
	}
	write(c, style, x, y, "The same 16 calls, all there at 0 s.")
}

// write replaces the file of the numbers.
func (n numbers) write(file string) error {
	out, err := json.Marshal(n)
	if err != nil {
		return err
	}
	// One run to a line, so that a change of one shows as such.
	out = bytes.ReplaceAll(out, []byte(`{"name"`), []byte("\n"+`{"name"`))
	return os.WriteFile(file, append(out, '\n'), 0o644)
}
