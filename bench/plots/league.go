package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/bench/internal/results"
	"github.com/sluice-go/sluice/internal/svg"
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
	nameWidth             = 130
)

// saveMatrix draws a cell for each score, the bluer the better, with the number in it.
// Whoever cannot tell the shades apart can read the numbers.
func saveMatrix(runs []results.Run, title, file string) error {
	if len(runs) == 0 {
		return fmt.Errorf("no runs")
	}
	m := newMatrix(runs)
	columns := append(slices.Clone(m.worlds), "mean")
	longest := 0
	for _, w := range columns {
		longest = max(longest, len(w))
	}
	nameHeight := max(84, 16+9*longest/2)
	width := nameWidth + cellWidth*len(columns) + 30
	height := nameHeight + cellHeight*len(m.strategies) + 8
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" style="font-family:Liberation Sans" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:#FFFFFF"/>`+"\n", width, height)
	for i, w := range columns {
		x := nameWidth + cellWidth*i + cellWidth/2
		fmt.Fprintf(&b, `<text transform="translate(%d %d) rotate(-55)" style="fill:#222222">%s</text>`+"\n", x, nameHeight-6, html.EscapeString(w))
	}
	for row, s := range m.strategies {
		y := nameHeight + cellHeight*row
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" style="fill:#222222">%s</text>`+"\n", nameWidth-6, y+14, html.EscapeString(s))
		for i, w := range columns {
			score, weight := m.mean(s), "bold"
			if i < len(m.worlds) {
				score, weight = m.score(w, s), "normal"
			}
			opacity := shade(score)
			x := nameWidth + cellWidth*i
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" style="fill:#0072B2;fill-opacity:%.2f"/><text x="%d" y="%d" text-anchor="middle" font-weight="%s" style="fill:#222222">%.0f</text>`+"\n",
				x, y, cellWidth-1, cellHeight-1, opacity, x+cellWidth/2, y+14, weight, score)
		}
	}
	b.WriteString("</svg>\n")
	out, err := svg.Finish(b.Bytes(), title, m.inWords())
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644)
}

// inWords says what the picture shows: the means.
func (m *matrix) inWords() string {
	var words []string
	for _, s := range m.strategies {
		words = append(words, fmt.Sprintf("%s %.0f", s, m.mean(s)))
	}
	return "A table of scores from 0 to 100. The means are: " + strings.Join(words, ", ") + "."
}

// shade returns how much of the blue of Okabe and Ito a cell has: nothing for 0, and at most as
// much as leaves the number in it readable, also on a dark background, where that blue is bright.
func shade(score float64) (opacity float64) {
	opacity = max(0, min(1, score/100))
	return 0.55 * opacity * opacity // most differences that matter are among the good ones
}
