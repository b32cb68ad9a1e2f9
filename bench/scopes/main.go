// Command scopes measures whose limit a transport takes a refusal for: clients of several routes at
// servers that limit each route by itself, some routes, or the whole host. It runs in virtual time. Where
// all routes have one limit, a row is the mean of six runs, and the worst of them is in parentheses.
//
//	go run ./bench/scopes
//	go run ./bench/scopes -only X,Slack
//
// Each world is played without Sluice, with the zero sluicehttp.Config, and with sluicehttp.ByRoute as
// its Key. Two more tables are about claimants: users and a batch, and the tenants of one account. The
// last one is about fleets: processes that share a limit by Adaptive.Peers, beside the same ones that do
// not.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

func main() {
	only := flag.String("only", "", "only the worlds whose names begin with these, separated by commas")
	flag.Parse()
	os.Args = os.Args[:1] // package testing has flags of its own
	everything := func(pattern, name string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{
		Name: "scopes",
		F: func(t *testing.T) {
			run(t, os.Stdout, *only)
			os.Exit(0) // here, or package testing prints PASS
		},
	}}, nil, nil)
}

// run plays the worlds and prints their table.
func run(t *testing.T, out io.Writer, only string) {
	fmt.Fprintln(out, "| world | client | done | lost | refused | took | |")
	fmt.Fprintln(out, "| --- | --- | ---: | ---: | ---: | ---: | --- |")
	for _, w := range worlds {
		if !chosen(w.name, only) {
			continue
		}
		for _, c := range clients {
			if w.knocks && c.name == "alone" {
				continue
			}
			var runs []*result
			for seed := range w.seeds() {
				synctest.Test(t, func(*testing.T) { runs = append(runs, w.play(c, seed+1)) })
			}
			fmt.Fprintln(out, mean(runs).row(w.name, c.name))
		}
	}
	claimants(t, out, only)
	shareTheLimit(t, out, only)
}

// seeds returns how many runs a world has. Those of a host differ by chance: one of three got 15 points less,
// and three single runs did not show it.
func (w *world) seeds() uint64 {
	if w.knocks {
		return 6
	}
	return 1
}

func chosen(name, only string) bool {
	for prefix := range strings.SplitSeq(only, ",") {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
