package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// A matrix is the mean score of each strategy in each world.
type matrix struct {
	worlds, strategies []string // the strategies with the best mean first
	sum, runs          map[[2]string]float64
}

func newMatrix(runs []results.Run) *matrix {
	m := &matrix{sum: make(map[[2]string]float64), runs: make(map[[2]string]float64)}
	for _, r := range runs {
		if !slices.Contains(m.worlds, r.World) {
			m.worlds = append(m.worlds, r.World)
		}
		if !slices.Contains(m.strategies, r.Strategy) {
			m.strategies = append(m.strategies, r.Strategy)
		}
		m.sum[[2]string{r.World, r.Strategy}] += r.Score
		m.runs[[2]string{r.World, r.Strategy}]++
	}
	slices.SortStableFunc(m.strategies, func(a, b string) int { return cmp.Compare(m.mean(b), m.mean(a)) })
	return m
}

func (m *matrix) score(world, strategy string) float64 {
	k := [2]string{world, strategy}
	return m.sum[k] / max(1, m.runs[k])
}

func (m *matrix) mean(strategy string) float64 {
	sum := 0.0
	for _, w := range m.worlds {
		sum += m.score(w, strategy)
	}
	return sum / float64(len(m.worlds))
}

// Sizes of the picture, in pixels.
const (
	cellWidth, cellHeight = 34, 20
	nameWidth, nameHeight = 130, 84
)

// saveMatrix draws a cell for each score, the darker the better, with the number in it.
// Whoever cannot tell the shades apart can read the numbers.
func saveMatrix(runs []results.Run, file string) error {
	if len(runs) == 0 {
		return fmt.Errorf("no runs")
	}
	m := newMatrix(runs)
	columns := append(slices.Clone(m.worlds), "mean")
	width := nameWidth + cellWidth*len(columns) + 30
	height := nameHeight + cellHeight*len(m.strategies) + 8
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Liberation Sans, Arial, sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>Score of each strategy in each world</title><rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for i, w := range columns {
		x := nameWidth + cellWidth*i + cellWidth/2
		fmt.Fprintf(&b, `<text transform="translate(%d %d) rotate(-55)" fill="#222">%s</text>`+"\n", x, nameHeight-6, html.EscapeString(w))
	}
	for row, s := range m.strategies {
		y := nameHeight + cellHeight*row
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text>`+"\n", nameWidth-6, y+14, html.EscapeString(s))
		for i, w := range columns {
			score, weight := m.mean(s), "bold"
			if i < len(m.worlds) {
				score, weight = m.score(w, s), "normal"
			}
			fill, ink := shade(score)
			x := nameWidth + cellWidth*i
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/><text x="%d" y="%d" text-anchor="middle" font-weight="%s" fill="%s">%.0f</text>`+"\n",
				x, y, cellWidth-1, cellHeight-1, fill, x+cellWidth/2, y+14, weight, ink, score)
		}
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// shade returns the colours of a cell and of the number in it: white for 0, the blue of
// Okabe and Ito for 100.
func shade(score float64) (fill, ink string) {
	part := max(0, min(1, score/100))
	part *= part // most differences that matter are among the good ones
	mix := func(to int) int { return 255 - int(part*float64(255-to)) }
	fill, ink = fmt.Sprintf("#%02x%02x%02x", mix(int(blue.R)), mix(int(blue.G)), mix(int(blue.B))), "#222"
	if part > .55 {
		ink = "#fff"
	}
	return fill, ink
}
