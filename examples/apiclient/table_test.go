package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// example is a result like that of the default run.
func example(attempts, throttled int64, wall float64) result {
	return result{
		figures: figures{
			Calls: 1000, Attempts: attempts, Throttled: throttled, RateAllowed: 100, RateDelivered: 99.9,
			MaxInFlight: 5, SpacingP50: 10000, SpacingP99: 10900, Wall: wall, Ideal: 10,
		},
		fetched: 1000, tooFast: throttled, explained: true,
		spacing50: 10 * time.Millisecond, spacing99: 10900 * time.Microsecond,
	}
}

func defaultOptions(t *testing.T) options {
	t.Helper()
	o, err := parseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTableUnknown(t *testing.T) {
	o := defaultOptions(t)
	o.unknown = true
	told, naive := example(1010, 0, 10), example(2000, 1000, 10)
	gate := example(1000, 20, 12.5)
	gate.told = &told
	gate.learned = &sluice.Learned{Phase: "tracking", Pace: 97, AcceptedRate: 96, ThrottledRate: 101, Why: "measured between throttled calls"}
	got := table(o, gate, &naive)
	for _, want := range []string{
		"                                       gate      told gate          naive\n",
		"429s seen                                20              0          1,000\n",
		"Not told the rate, the gate learned: tracking: 97/s, 96/s accepted, 101/s throttled (measured between throttled calls).\n" +
			"2.0 % of its attempts were throttled; it took 12.50 s, a gate that is told the rate 10.00 s: 80.0 % of the throughput.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	gate.told, gate.learned = nil, nil // interrupted
	if got := table(o, gate, nil); !strings.Contains(got, "learned nothing: too little was throttled.\n2.0 % of its attempts were throttled.\n") {
		t.Errorf("table\n%s", got)
	}
}

func TestTableSideBySide(t *testing.T) {
	naive := example(201010, 200000, 10.05)
	got := table(defaultOptions(t), example(1010, 0, 10.1), &naive)
	want := `
1,000 items at 100/s, at most 10 in flight, 64 workers
rate delivered, spacing and most in flight are as the server saw them

                                       gate          naive
calls (items called for)              1,000          1,000
attempts (requests sent)              1,010        201,010
429s seen                                 0        200,000
  over the rate                           0        200,000
  over the concurrency                    0              0
wasted (no item fetched)                 10        200,010
items lost                                0              0
rate allowed                        100.0/s        100.0/s
rate delivered                       99.9/s         99.9/s
  of the allowed                    99.90 %        99.90 %
spacing p50                       10.000 ms      10.000 ms
spacing p99                       10.900 ms      10.900 ms
most in flight                            5              5
wall time                           10.10 s        10.05 s
ideal (items ÷ rate)                10.00 s        10.00 s

Through the gate 1,000 items took 10.10 s, with 10 wasted calls and 0 429s; the naive pool got 1,000 in 10.05 s, with 200,010 wasted calls and 200,000 429s.
1,000 items written to items.jsonl.`
	if got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}

func TestTableOfTheGateAlone(t *testing.T) {
	o := defaultOptions(t)
	o.out = ""
	r := example(1001, 1, 30)
	r.explained = false
	r.Calls, r.fetched, r.Lost, r.notStarted = 999, 998, 2, 1
	r.RateDelivered, r.MaxInFlight = 33, 10
	r.complaints = []error{errors.New("item 7: answered 404 Not Found")}
	r.unexplained = 1
	got := table(o, r, nil)
	for _, part := range []string{
		"as seen from here, when the calls departed\n",
		"                       gate\n",
		"items lost                                2\n  of them not started                     1\n",
		"Through the gate 998 of 1,000 items took 30.00 s, with 3 wasted calls and 1 429.\n",
		"The rate was not reached: calls take too long for 10 in flight.\n",
		"gate lost item 7: answered 404 Not Found\ngate lost 1 more",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
	for _, part := range []string{"naive", "over the", "written to"} {
		if strings.Contains(got, part) {
			t.Errorf("%q in\n%s", part, got)
		}
	}
}

func TestJSON(t *testing.T) {
	const one = `{"calls":1000,"attempts":1010,"throttled":0,"lost":0,"rate_allowed":100,"rate_delivered":99.9,` +
		`"spacing_p50_us":10000,"spacing_p99_us":10900,"max_in_flight":5,"wall_s":10.1,"ideal_s":10}`
	r := example(1010, 0, 10.1)
	for _, tt := range []struct {
		naive *result
		want  string
	}{
		{nil, `{"gate":` + one + `,"naive":null}`},
		{&r, `{"gate":` + one + `,"naive":` + one + `}`},
	} {
		var b bytes.Buffer
		if err := writeJSON(&b, r, tt.naive); err != nil || b.String() != tt.want+"\n" {
			t.Errorf("JSON %s, %v; want %s", b.String(), err, tt.want)
		}
	}
}
