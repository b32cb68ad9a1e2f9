// Jobcheck judges a run of examples/apiclient: it reads the object that -json
// printed from standard input, and the items that -out wrote, and exits with
// 1 and a line for each promise that was not kept.
//
// It is a program because .ci/run may need no JSON tool beyond Go.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	items := flag.String("items", "", "the `file` that -out wrote")
	n := flag.Int("n", 1000, "how many `items` it must hold")
	within := flag.Duration("within", 30*time.Second, "the longest `time` that both runs may take together")
	flag.Parse()

	complaints, err := judge(os.Stdin, *items, *n, *within)
	if err != nil {
		complaints = append(complaints, err.Error())
	}
	for _, c := range complaints {
		fmt.Fprintln(os.Stderr, "jobcheck:", c)
	}
	if len(complaints) > 0 {
		os.Exit(1)
	}
}

func judge(printed io.Reader, items string, n int, within time.Duration) ([]string, error) {
	var r report
	if err := json.NewDecoder(printed).Decode(&r); err != nil {
		return nil, fmt.Errorf("the JSON: %w", err)
	}
	complaints := r.complaints(n, within)

	f, err := os.Open(items)
	if err != nil {
		return complaints, err
	}
	defer f.Close() // only read
	return append(complaints, missing(f, n)...), nil
}

// report is the object of -json. Its figures are maps because a figure that
// is absent must not pass for a 0.
type report struct {
	Gate  map[string]float64 `json:"gate"`
	Naive map[string]float64 `json:"naive"`
}

// complaints returns the promises that the figures break.
func (r report) complaints(n int, within time.Duration) []string {
	var found []string
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	figure := func(run string, figures map[string]float64, name string) float64 {
		v, ok := figures[name]
		if !ok {
			complain("%s.%s is absent", run, name)
		}
		return v
	}

	if got := figure("gate", r.Gate, "calls"); got != float64(n) {
		complain("%v calls, want %d", got, n)
	}
	if got := figure("gate", r.Gate, "lost"); got != 0 {
		complain("%v items lost, want 0", got)
	}
	if got := figure("gate", r.Gate, "throttled"); got != 0 {
		complain("%v calls throttled, want 0", got)
	}
	allowed, delivered := figure("gate", r.Gate, "rate_allowed"), figure("gate", r.Gate, "rate_delivered")
	if allowed <= 0 {
		complain("a rate of %v/s allowed, want more than 0", allowed)
	}
	if delivered < 0.99*allowed {
		complain("%.2f/s delivered of %.2f/s allowed, want 99 %%", delivered, allowed)
	}
	wall := figure("gate", r.Gate, "wall_s") + figure("naive", r.Naive, "wall_s")
	if wall > within.Seconds() {
		complain("both runs took %.1f s, want at most %v", wall, within)
	}
	return found
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
