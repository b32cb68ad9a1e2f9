// Plots draws what compare, precision, league and zoo measured, as SVG:
//
//	go run ./bench/plots -speed speed.txt -precision precision.json -league league.json -zoo zoo-300.json -o dir
//
//	delivered.svg  the rate delivered against the rate asked for
//	spacing.svg    how the gaps between calls are distributed, and what that costs
//	cost.svg       what a call costs
//	keys.svg       how that grows with the number of keys
//	gates.svg      … with the number of gates
//	waiters.svg    how a handover grows with the number of goroutines that wait
//	contexts.svg   … and may be canceled
//	processes.svg  how a decision in Redis grows with the number of processes that share it
//	changes.svg    how a change of a gate grows with the number of callers that wait
//	league.svg     the score of each strategy in each world
//	zoo.svg        the score of each client at each limiter of Go
//
// Colours are those of Okabe and Ito (Color Universal Design, 2008), which
// people with any kind of color vision can tell apart, and others on dark
// backgrounds; lines differ in their marks as well.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-go/sluice/bench/internal/results"
)

func main() {
	speed := flag.String("speed", "", "raw output of compare")
	precision := flag.String("precision", "", "raw output of precision")
	league := flag.String("league", "", "raw output of league")
	zoo := flag.String("zoo", "", "raw output of zoo")
	dir := flag.String("o", ".", "folder for the plots")
	png := flag.Bool("png", false, "draw PNG, to look at")
	flag.Parse()
	if flag.NArg() > 0 || *speed == "" && *precision == "" && *league == "" && *zoo == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*speed, *precision, *league, *zoo, *dir, *png); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(speedFile, precisionFile, leagueFile, zooFile, dir string, png bool) error {
	figures := make(map[string]figure)
	if speedFile != "" {
		f, err := os.Open(speedFile)
		if err != nil {
			return err
		}
		defer f.Close()
		s, err := results.ReadSpeed(f)
		if err != nil {
			return err
		}
		figures["cost"], figures["keys"], figures["gates"] = cost(s), keys(s), gates(s)
		figures["waiters"], figures["contexts"], figures["changes"] = waiters(s), contexts(s), changes(s)
		figures["processes"] = processes(s)
	}
	if precisionFile != "" {
		p, err := results.ReadPrecision(precisionFile)
		if err != nil {
			return err
		}
		cells := p.Cells()
		for i := range cells {
			if cells[i].Library == "xtime" {
				cells[i].Library = burstOne
			}
		}
		figures["delivered"], figures["spacing"] = delivered(cells), spacing(cells)
	}
	if leagueFile != "" {
		runs, err := results.ReadLeague(leagueFile)
		if err != nil {
			return err
		}
		if err := saveMatrix(runs, "Score of each strategy in each world", filepath.Join(dir, "league.svg")); err != nil {
			return fmt.Errorf("league: %w", err)
		}
	}
	if zooFile != "" {
		runs, err := results.ReadZoo(zooFile, "go")
		if err != nil {
			return err
		}
		if err := saveMatrix(runs, "Score of each client at each rate limiter of Go", filepath.Join(dir, "zoo.svg")); err != nil {
			return fmt.Errorf("zoo: %w", err)
		}
	}
	for name, f := range figures {
		ext := ".svg"
		if png {
			ext = ".png"
		}
		if err := f.save(filepath.Join(dir, name+ext)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
