package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// Each work is measured for each library, under the load that it names, and is its own cell.
func TestPriced(t *testing.T) {
	o, err := parse(strings.Fields("-price -runs 2"))
	if err != nil {
		t.Fatal(err)
	}
	orders := o.orders()
	if len(o.libs) < 4 || len(orders) != len(works)*len(o.libs) {
		t.Errorf("%d orders for %d works and the libraries %v", len(orders), len(works), o.libs)
	}
	hand, err := hire()
	if err != nil {
		t.Fatal(err)
	}
	defer hand.dismiss()
	p := new(results.Precision)
	for run := range 2 {
		for _, load := range []string{"", busy, stalls} {
			cell, err := hand.measure(order{Work: "w" + load, Library: "sluice", Callers: 2, Limiters: 3, Rate: 2000, Dur: 60 * time.Millisecond, Load: load}, run)
			if err != nil {
				t.Fatalf("%q: %v", load, err)
			}
			p.Runs = append(p.Runs, cell)
		}
	}
	for i, c := range p.Cells() {
		if c.Runs != 2 || c.Limiters != 3 || c.Work != "w"+[]string{"", busy, stalls}[i] {
			t.Errorf("cell %d: %+v", i, c)
		}
	}
}

// What three limiters deliver is compared with three times the rate.
func TestMeasure_ManyLimiters(t *testing.T) {
	c := results.Cell{Asked: 1000, Delivered: 2700, Limiters: 3}
	if got := c.Ratio(); got != 0.9 {
		t.Errorf("%v of the rate was delivered, want 0.9", got)
	}
}

func TestPriced_OnlySomeWorks(t *testing.T) {
	o, err := parse(strings.Fields("-price -works stalls -libs sluice,xtime"))
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range o.orders() {
		if next.Load != stalls {
			t.Errorf("not asked for: %+v", next)
		}
	}
	if n := len(o.orders()); n != 6 {
		t.Errorf("%d orders, want 6", n)
	}
}

// A server rejects what comes too early for it, and counts only what it took.
func TestRefused(t *testing.T) {
	const ms = time.Millisecond
	if got := refused(even(3000, ms), 1000); got != (results.Refused{}) {
		t.Errorf("of calls at equal intervals are refused: %+v", got)
	}
	late := even(3000, ms)
	for i := 1500; i < 1520; i++ { // they start together, 20 ms late
		late[i] = 1520 * ms
	}
	// From 1520 on, 1010 calls fit into a second; 1030 come. A bucket of 10 takes the
	// first ten of the twenty, and almost one for each ms after.
	got := refused(late, 1000)
	if n := got.Second * 3000; n < 9.5 || n > 10.5 {
		t.Errorf("a window of a second refuses %v", n)
	}
	if n := got.Bucket * 3000; n < 9.5 || n > 11.5 {
		t.Errorf("a bucket refuses %v", n)
	}
	if got.Ten != 0 {
		t.Errorf("a window of 10 s refuses %v", got.Ten*3000)
	}
}

// TestPriceGoals shows that each goal can be missed, and that the rivals are those of the
// same work.
func TestPriceGoals(t *testing.T) {
	good := results.Cell{Work: "w", Library: "sluice", Limiters: 50, Asked: 10, Delivered: 499, CPU: 0.05, ErrP90: 100}
	x := results.Cell{Work: "w", Library: "xtime", Limiters: 50, Asked: 10, Delivered: 500, CPU: 0.06, ErrP90: 100}
	bad := results.Cell{Work: "w", Library: "sluice", Limiters: 50, Asked: 10, Delivered: 450, CPU: 0.11, ErrP90: 120}
	other := results.Cell{Work: "another", Library: "xtime", Limiters: 50, Asked: 10, Delivered: 900, CPU: 0.01, ErrP90: 1}
	for _, g := range priceGoals {
		good, bad, x := good, bad, x
		if !g.at(good) {
			good.Work, bad.Work, x.Work = "busy: w", "busy: w", "busy: w"
			if !g.at(good) {
				t.Errorf("%s is judged nowhere", g.name)
			}
		}
		if got, ok, judged := g.judge(good, []results.Cell{good, x, bad, other}); !ok || !judged {
			t.Errorf("%s: %s is not good enough", g.name, got)
		}
		if got, ok, judged := g.judge(bad, []results.Cell{good, x, bad, other}); ok && judged {
			t.Errorf("%s: %s is good enough", g.name, got)
		}
		if _, _, judged := g.judge(x, []results.Cell{good, x}); judged {
			t.Errorf("%s: a rival is judged", g.name)
		}
	}
	if text := report(&results.Precision{}, []results.Cell{good, x}); !strings.Contains(text, "| w | xtime |") || strings.Contains(text, "Undisturbed") {
		t.Errorf("the report:\n%s", text)
	}
}
