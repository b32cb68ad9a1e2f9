package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// wanted is what a run is held to.
type wanted struct {
	items    string
	n        int
	within   time.Duration
	forgiven time.Duration
}

// A verdict says which promises were not kept.
type verdict struct {
	broken  []string // by the program
	spoiled []string // by the machine, as far as is known
	machine string   // how it did
}

// judge reads what was printed by a program that began at a given time, and the
// items it wrote.
func (w wanted) judge(printed io.Reader, began time.Time, stalls []stall.Stall) (v verdict) {
	var r report
	if err := json.NewDecoder(printed).Decode(&r); err != nil {
		v.broken = append(v.broken, fmt.Sprintf("the JSON: %v", err))
	}
	// The program begins with the gate. Whoever runs after it keeps both
	// processors busy, which looks like a machine that stands still.
	var meanwhile []stall.Stall
	for _, s := range stalls {
		if s.Began.Sub(began).Seconds() < r.Gate["wall_s"] {
			meanwhile = append(meanwhile, s)
		}
	}
	v.machine = fmt.Sprintf("while the gate ran the machine stood still for %v in all, and for %v at most",
		stall.Total(meanwhile).Round(time.Millisecond), stall.Longest(meanwhile).Round(time.Millisecond))
	w.promises(&v, r, meanwhile)

	f, err := os.Open(w.items)
	if err != nil {
		v.broken = append(v.broken, err.Error())
		return v
	}
	defer f.Close() // only read
	v.broken = append(v.broken, missing(f, w.n)...)
	return v
}

// report is the object of -json. Its figures are maps because a figure that
// is absent must not pass for a 0.
type report struct {
	Gate  map[string]float64 `json:"gate"`
	Naive map[string]float64 `json:"naive"`
}

// promises looks which promises the figures break, given the stalls while the gate
// ran.
func (w wanted) promises(v *verdict, r report, stalls []stall.Stall) {
	complain := func(to *[]string, format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }
	figure := func(run string, figures map[string]float64, name string) float64 {
		f, ok := figures[name]
		if !ok {
			complain(&v.broken, "%s.%s is absent", run, name)
		}
		return f
	}

	if got := figure("gate", r.Gate, "calls"); got != float64(w.n) {
		complain(&v.broken, "%v calls, want %d", got, w.n)
	}
	if got := figure("gate", r.Gate, "lost"); got != 0 {
		complain(&v.broken, "%v items lost, want 0", got)
	}
	stood := stall.Total(stalls).Seconds()
	where := &v.broken
	if got := figure("gate", r.Gate, "throttled"); got != 0 {
		if stall.Longest(stalls) > w.forgiven {
			where = &v.spoiled
		}
		complain(where, "%v calls throttled, want 0", got)
	}
	allowed, delivered := figure("gate", r.Gate, "rate_allowed"), figure("gate", r.Gate, "rate_delivered")
	if allowed <= 0 {
		complain(&v.broken, "a rate of %v/s allowed, want more than 0", allowed)
	}
	wall := figure("gate", r.Gate, "wall_s")
	if delivered < 0.99*allowed*(1-stood/wall) {
		complain(where, "%.2f/s delivered of %.2f/s allowed, want 99 %% while the machine ran", delivered, allowed)
	}
	if both := wall + figure("naive", r.Naive, "wall_s") - stood; both > w.within.Seconds() {
		complain(&v.broken, "both runs took %.1f s while the machine ran, want at most %v", both, w.within)
	}
}

// missing reads JSON Lines, and returns what keeps them from holding each of
// the items 0 to n-1 exactly once.
func missing(lines io.Reader, n int) []string {
	var found []string
	seen := make(map[int]bool)
	read := 0
	for s := bufio.NewScanner(lines); ; {
		if !s.Scan() {
			if err := s.Err(); err != nil {
				found = append(found, fmt.Sprintf("after line %d: %v", read, err))
			}
			break
		}
		read++
		var item struct {
			ID *int `json:"id"`
		}
		switch err := json.Unmarshal(s.Bytes(), &item); {
		case err != nil:
			found = append(found, fmt.Sprintf("line %d: %v", read, err))
		case item.ID == nil:
			found = append(found, fmt.Sprintf("line %d has no id", read))
		case *item.ID < 0 || *item.ID >= n:
			found = append(found, fmt.Sprintf("line %d: item %d of %d", read, *item.ID, n))
		case seen[*item.ID]:
			found = append(found, fmt.Sprintf("line %d: item %d a second time", read, *item.ID))
		default:
			seen[*item.ID] = true
		}
	}
	if read != n {
		found = append(found, fmt.Sprintf("%d lines, want %d", read, n))
	}
	return found
}
