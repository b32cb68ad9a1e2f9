package results

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
)

// A Cell is what one library does at one rate for some callers, as
// go run ./bench/precision measures it; its package comment defines the
// numbers.
type Cell struct {
	Library string  `json:"library"`
	Callers int     `json:"callers"`
	Asked   float64 `json:"asked"`     // calls per second
	Frozen  float64 `json:"frozen_ms"` // the process was stopped for so long in the middle
	Runs    int     `json:"runs"`
	Quiet   int     `json:"quiet_runs,omitempty"` // of those, in which the machine did not stall

	Work     string  `json:"work,omitempty"`     // its name, with -price
	Limiters int     `json:"limiters,omitempty"` // each with so many callers; 0 means 1
	Refused  Refused `json:"refused,omitzero"`   // with -price

	Delivered    float64 `json:"delivered"` // calls per second
	DeliveredMax float64 `json:"delivered_max"`
	ErrP50       float64 `json:"err_p50_us"`
	ErrP90       float64 `json:"err_p90_us"`
	ErrP99       float64 `json:"err_p99_us"`
	ErrMax       float64 `json:"err_max_us"`
	Ahead        float64 `json:"ahead_us"`
	Early        int     `json:"early"`
	CPU          float64 `json:"cpu"`
	Stall        float64 `json:"stall"` // ms

	// Gaps has the percentiles 0 to 100 of the gaps between calls, in µs.
	Gaps []float64 `json:"gaps_us,omitempty"`
}

// Ratio returns the rate delivered ÷ the rate asked for, of all limiters together.
func (c Cell) Ratio() float64 { return c.Delivered / c.Asked / float64(max(1, c.Limiters)) }

// Refused is the share of the calls that servers would have rejected whose limit is the
// rate asked for ÷ 0.99.
type Refused struct {
	Second float64 `json:"second"` // in no window of 1 s more than the limit
	Ten    float64 `json:"ten"`    // in no window of 10 s
	Bucket float64 `json:"bucket"` // a leaky bucket of ten calls
}

// Precision is the output of all runs.
type Precision struct {
	Machine  string `json:"machine"`
	Measured string `json:"measured"`
	Runs     []Cell `json:"runs"` // one for each run of each cell
}

// ReadPrecision reads files that Write wrote, as if they were one.
func ReadPrecision(files ...string) (*Precision, error) {
	all := new(Precision)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var p Precision
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, err
		}
		all.Machine, all.Measured = p.Machine, p.Measured
		all.Runs = append(all.Runs, p.Runs...)
	}
	return all, nil
}

// Write writes p to a file, one run a line.
func (p *Precision) Write(file string) error {
	head, err := json.Marshal(Precision{Machine: p.Machine, Measured: p.Measured, Runs: []Cell{}})
	if err != nil {
		return err
	}
	text := append(head[:len(head)-len("]}")], '\n')
	for i, run := range p.Runs {
		line, err := json.Marshal(run)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append(text, ",\n"...)
		}
		text = append(text, line...)
	}
	return os.WriteFile(file, append(text, "\n]}\n"...), 0o644)
}

// Cells returns each cell once, sorted by what was asked: the median over its
// runs, but the largest of DeliveredMax, Ahead and Stall, and the sum of Early. The errors
// of the spacing, the processor time and DeliveredMax are those of the runs in which the
// machine did not stall, if there are any: see Quiet.
func (p *Precision) Cells() []Cell {
	type key struct {
		library       string
		callers       int
		asked, frozen float64
		work          string
	}
	var order []key
	runs := make(map[key][]Cell)
	for _, c := range p.Runs {
		k := key{c.Library, c.Callers, c.Asked, c.Frozen, c.Work}
		if runs[k] == nil {
			order = append(order, k)
		}
		runs[k] = append(runs[k], c)
	}
	var cells []Cell
	for _, k := range order {
		of := runs[k]
		undisturbed := slices.DeleteFunc(slices.Clone(of), func(c Cell) bool { return c.Stall > 0 })
		quiet := len(undisturbed)
		if quiet == 0 {
			undisturbed = of
		}
		calm := func(field func(Cell) float64) float64 { return Median(column(undisturbed, field)) }
		median := func(field func(Cell) float64) float64 { return Median(column(of, field)) }
		most := func(field func(Cell) float64) float64 { return slices.Max(column(of, field)) }
		c := Cell{
			Library: k.library, Callers: k.callers, Asked: k.asked, Frozen: k.frozen, Work: k.work, Limiters: of[0].Limiters, Runs: len(of), Quiet: quiet,
			Delivered:    median(func(c Cell) float64 { return c.Delivered }),
			DeliveredMax: slices.Max(column(undisturbed, func(c Cell) float64 { return c.Delivered })),
			ErrP50:       calm(func(c Cell) float64 { return c.ErrP50 }),
			ErrP90:       calm(func(c Cell) float64 { return c.ErrP90 }),
			ErrP99:       calm(func(c Cell) float64 { return c.ErrP99 }),
			ErrMax:       calm(func(c Cell) float64 { return c.ErrMax }),
			Ahead:        most(func(c Cell) float64 { return c.Ahead }),
			CPU:          calm(func(c Cell) float64 { return c.CPU }),
			Stall:        most(func(c Cell) float64 { return c.Stall }),
			Refused: Refused{
				Second: median(func(c Cell) float64 { return c.Refused.Second }),
				Ten:    median(func(c Cell) float64 { return c.Refused.Ten }),
				Bucket: median(func(c Cell) float64 { return c.Refused.Bucket }),
			},
		}
		for _, run := range of {
			c.Early += run.Early
		}
		for i := range of[0].Gaps {
			c.Gaps = append(c.Gaps, median(func(c Cell) float64 {
				if i < len(c.Gaps) {
					return c.Gaps[i]
				}
				return 0
			}))
		}
		cells = append(cells, c)
	}
	slices.SortStableFunc(cells, func(a, b Cell) int {
		if a.Work != "" && b.Work != "" {
			return 0 // in the order in which they were measured
		}
		return cmp.Or(cmp.Compare(a.Work, b.Work), cmp.Compare(a.Frozen, b.Frozen), cmp.Compare(a.Callers, b.Callers), cmp.Compare(a.Asked, b.Asked))
	})
	return cells
}

func column(cells []Cell, field func(Cell) float64) []float64 {
	values := make([]float64, len(cells))
	for i, c := range cells {
		values[i] = field(c)
	}
	return values
}
