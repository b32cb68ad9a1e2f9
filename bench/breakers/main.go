// Command breakers sends the same calls through circuit breakers and through a gate, to a server
// that fails for 100 s, in virtual time.
//
//	go run ./bench/breakers
//
// A caller comes every 100 ms and gives up after 10 s. The server answers after 20 ms, except for
// 100 s after the first minute, when it refuses all calls, does not answer, or fails every
// second call. Each number is the median of nine runs, because backoffs are random.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const runs = 9 // of each fault and client

func main() {
	flag.Parse()
	os.Args = os.Args[:1] // package testing has flags of its own
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{
		Name: "breakers",
		F: func(t *testing.T) {
			run(t, os.Stdout)
			os.Exit(0) // here, or package testing prints PASS
		},
	}}, nil, nil)
}

// run plays every fault with every client and prints the table.
func run(t *testing.T, out io.Writer) {
	fmt.Fprintln(out, "| the server, for 100 s | client | attempts in that time | served in that time | served afterwards | first served after | most in flight |")
	fmt.Fprintln(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: |")
	for _, f := range faults {
		for _, c := range clients {
			fmt.Fprintln(out, median(t, f, c).row(f.name, c.name))
		}
	}
}

// median returns, for each figure, its median over the runs.
func median(t *testing.T, f fault, c client) figures {
	var all [len(figures{})][]float64
	for range runs {
		synctest.Test(t, func(*testing.T) {
			for i, v := range play(f, c) {
				all[i] = append(all[i], v)
			}
		})
	}
	var m figures
	for i := range all {
		slices.Sort(all[i])
		m[i] = all[i][runs/2]
	}
	return m
}

// The figures of a run, in this order.
const (
	attempts    = iota // that the server got while it failed
	servedThen         // calls that came while the server failed, in percent
	servedAfter        // calls that came in the two minutes afterwards, in percent
	firstServed        // time from the end of the fault to the first answer, in seconds
	inFlight           // most attempts in flight at the same time
)

type figures [inFlight + 1]float64

func (f figures) row(fault, client string) string {
	return fmt.Sprintf("| %s | %s | %.0f | %.0f %% | %.0f %% | %v | %.0f |", fault, client,
		f[attempts], f[servedThen], f[servedAfter],
		time.Duration(f[firstServed]*float64(time.Second)).Round(100*time.Millisecond), f[inFlight])
}
