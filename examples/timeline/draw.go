package main

import (
	"bytes"
	"encoding/json"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawAll draws all pictures from n into the folder dir, writes n beside them,
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
	all = append(all, picture{"confusion", 900, 2*lanesHeight + 34, func(c draw.Canvas) {
		key(c)
		for i, s := range two {
			lanes(draw.Crop(c, 0, 0, 0, -26-vg.Length(i)*lanesHeight), s, n.Confusion[i])
		}
	}})
	for i, s := range eight {
		all = append(all, picture{s.name, 640, panelHeight + 8, func(c draw.Canvas) {
			panel(draw.Crop(c, 0, 0, 0, -4), s, n.Sixty[i])
		}})
	}
	const rows = 4
	return append(all, picture{"sheet", 960, rows * (panelHeight + 14), func(c draw.Canvas) {
		for i, s := range eight {
			column, row := vg.Length(i/rows), vg.Length(i%rows)
			half := (c.Max.X - c.Min.X) / 2
			panel(draw.Crop(c, column*half, (column-1)*half, 0, -6-row*(panelHeight+14)), s, n.Sixty[i])
		}
	}})
}

// key says what the colours of the first picture are.
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
