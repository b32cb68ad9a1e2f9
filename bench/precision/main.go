// Precision measures how evenly calls start a limiter, and how true it is to
// the rate it was asked for.
//
//	go run ./bench/precision                 a table, after about 9 minutes
//	go run ./bench/precision -json           the same as a list in JSON
//	go run ./bench/precision -rates 1000 -libs sluice,xtime -callers 1 -runs 1
//	go run ./bench/precision -libs gate,gate+parent,gate+quota -rates 200,1000,5000 -callers 1,8 -frozen none
//
// A cell is one library at one rate with 1 or 64 callers, each of which does
// nothing but acquire, in a loop. A call starts when time.Now, called as soon
// as the limiter returns, says so. The instants of all callers are put in order,
// t[0] ≤ t[1] ≤ …, and the first 100 are left out, except for ahead and early.
// With T = 1 ÷ asked:
//
//	asked       the rate asked for, calls per second
//	delivered   (number of calls − 1) ÷ (last − first), calls per second
//	err_*_us    percentiles (nearest rank) and the largest of |t[i+1] − t[i] − T|
//	            in microseconds: the error of the spacing
//	ahead_us    how far calls came ahead of even spacing: the largest of
//	            (j − i)·T − (t[j] − t[i]) for i < j, in microseconds. For a
//	            limiter that keeps DESIGN's bound, permits in a window W ≤ 1 +
//	            (W + MaxCatchUp) ÷ T, it is no more than MaxCatchUp, here 50,000
//	early       calls j with an i for which that is more than MaxCatchUp and 100 µs
//	quiet_runs  in how many of the runs stall is 0. The errors, cpu and what is said of
//	            them are of those runs alone if there are any, for all libraries alike:
//	            a run is a second, and a machine that stalled in it shows nothing of the
//	            limiter. If there are none, goals about evenness, processor time and the
//	            highest rate are not judged; nor are they if a library that is compared
//	            has none
//	cpu         processor seconds of the measuring process per second, user and
//	            system, on all CPUs
//	stall       the longest time in ms for which the machine stood still, as
//	            another process saw it that does nothing but sleep for 1 ms;
//	            0 if below 3 ms
//	frozen_ms   how long the process was stopped on purpose, in the middle
//
// The bound is about admits, and t is when their callers notice: a caller that is admitted its slot
// and notices late makes the next one seem early. Hence the 100 µs, and hence early can be above 0
// where the bound was kept, with 64 callers on 2 CPUs or when the machine stalls; nothing hides it.
// That no grant comes early is tested on recorded admits, in the packages themselves.
//
// A cell is measured several times, each time after all others. Its numbers are
// the medians of the runs, but the largest of ahead and stall, the largest of
// delivered as delivered_max, and the sum of early.
//
// The libraries are even-spacing limiters without a burst: sluice (pacer.New),
// xtime (rate.NewLimiter with burst 1, Wait), uber (Take, with its usual slack
// of 10 calls that it may make up), uber-strict (WithoutSlack), failsafe (the
// smooth limiter, AcquirePermit), and ticker, a time.Ticker all callers read
// from. sluice has the default grain of 1 ms, sluice-fine has none. throttled and sethvargo cannot wait, and are not here.
//
// The kinds of a sluice.Gate are measured on request: gate has the rate and nothing
// else, gate+parent also a parent that has room for all, gate+quota also a quota that
// has enough for all. Both must ask for each call, and are to deliver what gate does.
//
//	go run ./bench/precision -price
//
// measures what evenness costs, and what is delivered on machines that are busy or stall:
// the works in price.go. Refused is the share of the calls that strict servers would reject
// whose limit is the rate ÷ 0.99.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// worker as the first argument makes this the process that is measured.
const worker = "measured-process"

type options struct {
	rates, callers, frozenRates []int
	libs                        []string
	dur, freeze                 time.Duration
	runs                        int
	json, price                 bool
	read, out, into, works      string
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == worker {
		work(os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == neighbor {
		spin()
		return
	}
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "precision:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("precision", flag.ExitOnError)
	rates := f.String("rates", "100,1000,5000,20000,100000", "calls per second")
	callers := f.String("callers", "1,64", "how many callers at once")
	libs := f.String("libs", strings.Join(rivals(), ","), "libraries: also "+strings.Join(gates(), ", "))
	frozen := f.String("frozen", "1000,20000", "rates at which the process is also stopped in the middle; none for none")
	f.DurationVar(&o.freeze, "freeze", 5*time.Millisecond, "how long it is stopped")
	f.DurationVar(&o.dur, "dur", time.Second, "how long a run of a cell lasts, at least; at slow rates as long as 300 calls take")
	f.StringVar(&o.works, "works", "", "of -price, only those whose name has this in it")
	f.IntVar(&o.runs, "runs", 5, "how often each cell is measured")
	f.BoolVar(&o.price, "price", false, "measure what evenness costs: the works in price.go instead of -rates, -callers and -frozen")
	f.BoolVar(&o.json, "json", false, "print a list in JSON")
	f.StringVar(&o.out, "o", "", "write what each run measured to this file")
	f.StringVar(&o.read, "read", "", "do not measure, read what runs measured from these files, separated by commas")
	f.StringVar(&o.into, "into", "", "put the tables into this Markdown file, between its marks for precision, or for price")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if o.rates, err = numbers(*rates); err != nil {
		return o, err
	}
	if o.callers, err = numbers(*callers); err != nil {
		return o, err
	}
	if *frozen != "none" {
		if o.frozenRates, err = numbers(*frozen); err != nil {
			return o, err
		}
	}
	o.libs = strings.Split(*libs, ",")
	if o.price && *libs == strings.Join(rivals(), ",") {
		o.libs = []string{"sluice", "sluice-fine", "xtime", "uber"}
	}
	for _, name := range o.libs {
		if libraries[name] == nil {
			return o, fmt.Errorf("no library %q: there are %s", name, strings.Join(libraryNames(), ", "))
		}
	}
	return o, nil
}

func numbers(list string) ([]int, error) {
	var ns []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is no positive number", text)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

func run(o options, w io.Writer) error {
	var p *results.Precision
	var err error
	if o.read != "" {
		p, err = results.ReadPrecision(strings.Split(o.read, ",")...)
	} else {
		p, err = measureAll(o)
	}
	if err != nil {
		return err
	}
	if len(p.Runs) == 0 {
		return errors.New("nothing was measured")
	}
	if o.out != "" {
		if err := p.Write(o.out); err != nil {
			return err
		}
	}
	cells := p.Cells()
	text := report(p, cells)
	if o.into != "" {
		part := "precision"
		if o.price {
			part = "price"
		}
		if err := results.Splice(o.into, part, text); err != nil {
			return err
		}
	}
	if o.json {
		for i := range cells {
			cells[i].Gaps = nil
		}
		text, err := json.MarshalIndent(cells, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// An order is one run of one cell, for the measured process.
type order struct {
	Library string        `json:"library"`
	Callers int           `json:"callers"`
	Rate    int           `json:"rate"`
	Dur     time.Duration `json:"dur"`
	Freeze  time.Duration `json:"freeze"`

	Work     string `json:"work"`     // its name, if it is priced
	Limiters int    `json:"limiters"` // 0 means 1
	Load     string `json:"load"`     // what else the machine does
}

// orders returns the cells of one run.
func (o *options) orders() (all []order) {
	if o.price {
		return o.priced()
	}
	for _, frozen := range []bool{false, true} {
		for _, rate := range o.rates {
			for _, callers := range o.callers {
				for _, library := range o.libs {
					next := order{Library: library, Callers: callers, Rate: rate, Dur: o.dur}
					// 100 are left out, and 200 make a percentile.
					next.Dur = max(next.Dur, 300*time.Second/time.Duration(rate))
					if frozen {
						if !slices.Contains(o.frozenRates, rate) || o.freeze <= 0 {
							continue
						}
						next.Freeze = o.freeze
					}
					all = append(all, next)
				}
			}
		}
	}
	return all
}

func measureAll(o options) (*results.Precision, error) {
	p := &results.Precision{Machine: machine.Describe(), Measured: time.Now().UTC().Format("2006-01-02 15:04 MST")}
	watch := stall.New()
	defer watch.End()
	hand, err := hire()
	if err != nil {
		return nil, err
	}
	defer hand.dismiss()
	orders := o.orders()
	tty, before, after := false, "", "\n"
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		tty, before, after = true, "\r", " "
		defer fmt.Fprintln(os.Stderr)
	}
	var each time.Duration
	for _, next := range orders {
		each += next.Dur
	}
	fmt.Fprintf(os.Stderr, "%d runs of %d cells, %v at least\n", o.runs, len(orders), (each * time.Duration(o.runs)).Round(time.Second))
	began := time.Now()
	for n := range o.runs {
		for i, next := range orders {
			if tty || i == 0 {
				fmt.Fprintf(os.Stderr, "%s%4.0f s: run %d of %d, cell %d of %d%s", before, time.Since(began).Seconds(), n+1, o.runs, i+1, len(orders), after)
			}
			watch.Take()
			cell, err := hand.measure(next, n)
			if err != nil {
				return nil, err
			}
			cell.Stall = ms(stall.Longest(watch.Take()))
			p.Runs = append(p.Runs, cell)
		}
	}
	return p, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
