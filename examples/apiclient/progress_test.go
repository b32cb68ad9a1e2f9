package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressText(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	after := func(d time.Duration, m moment) moment {
		m.at = at.Add(d)
		return m
	}
	tests := []struct {
		name    string
		then, m moment
		want    string
	}{
		{"begin", after(0, moment{}), after(0, moment{}),
			"gate: 0/1,000 done, 0 in flight, 0 waiting, 0.0/s of 100.0/s, ETA 10.0s"},
		{"too early to judge", after(0, moment{}), after(500*time.Millisecond, moment{done: 10, sent: 50, inFlight: 4, waiting: 60}),
			"gate: 10/1,000 done, 4 in flight, 60 waiting, 100.0/s of 100.0/s, ETA 9.9s"},
		{"under way", after(0, moment{done: 100, sent: 110}), after(2*time.Second, moment{done: 200, sent: 220, inFlight: 3, waiting: 61}),
			"gate: 200/1,000 done, 3 in flight, 61 waiting, 55.0/s of 100.0/s, ETA 16.0s"},
		{"paused", after(0, moment{done: 100, sent: 110}), after(2*time.Second, moment{done: 100, sent: 110, waiting: 64, pausedUntil: at.Add(77 * time.Second)}),
			"gate: 100/1,000 done, 0 in flight, 64 waiting, 0.0/s of 100.0/s, paused for 1m15s, ETA 9.0s"},
		{"a pause that is over", after(0, moment{}), after(2*time.Second, moment{done: 1000, sent: 1000, pausedUntil: at}),
			"gate: 1,000/1,000 done, 0 in flight, 0 waiting, 500.0/s of 100.0/s"},
		{"losses are over as well", after(0, moment{}), after(2*time.Second, moment{done: 300, lost: 100, sent: 200, inFlight: 3, waiting: 61}),
			"gate: 300/1,000 done, 100 lost, 3 in flight, 61 waiting, 100.0/s of 100.0/s, ETA 3.0s"},
		{"throttled", after(0, moment{}), after(2*time.Second, moment{done: 200, sent: 46000, inFlight: 64, throttled: 45000}),
			"gate: 200/1,000 done, 64 in flight, 0 waiting, 23,000/s of 100.0/s, ETA 8.0s, 45,000 429s"},
		{"waiting calls are not known", after(0, moment{}), after(2*time.Second, moment{done: 200, sent: 200, inFlight: 3, waiting: unknown}),
			"gate: 200/1,000 done, 3 in flight, 100.0/s of 100.0/s, ETA 8.0s"},
	}
	for _, tt := range tests {
		p := progress{name: "gate", n: 1000, target: 100}
		if got := p.text(tt.then, tt.m); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// A pipe gets a line at the start, one every two seconds, and one at the end.
func TestProgressPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o, err := parseOptions([]string{"-n", "1000"})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		stop := watch(newScreen(&b), "gate", o, func() moment {
			n := time.Since(start).Milliseconds() / 10
			return moment{done: n, sent: n}
		})
		time.Sleep(4100 * time.Millisecond)
		stop()
		var got []string
		for line := range strings.Lines(b.String()) {
			got = append(got, line[:strings.Index(line, " done")]+line[strings.LastIndex(line, "waiting,")+8:])
		}
		want := []string{
			"gate: 0/1,000 0.0/s of 100.0/s, ETA 10.0s\n",
			"gate: 200/1,000 100.0/s of 100.0/s, ETA 8.0s\n",
			"gate: 400/1,000 100.0/s of 100.0/s, ETA 6.0s\n",
			"gate: 410/1,000 100.0/s of 100.0/s, ETA 5.9s\n",
		}
		if strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("printed\n%s\nwant\n%s", strings.Join(got, ""), strings.Join(want, ""))
		}
	})
}

// A terminal gets one line that is rewritten five times a second, and that is
// gone at the end.
func TestProgressLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o, err := parseOptions(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &screen{w: &b, terminal: true, fd: -1}
		stop := watch(s, "gate", o, func() moment { return moment{} })
		time.Sleep(1100 * time.Millisecond)
		stop()
		s.print("table")
		if got := strings.Count(b.String(), "gate:"); got != 6 {
			t.Errorf("drawn %d times in 1.1s, want 6", got)
		}
		if strings.Count(b.String(), "\n") != 1 || !strings.HasSuffix(b.String(), wipe+wipe+"table\n") {
			t.Errorf("written %q", b.String())
		}
	})
}

func TestScreenKeepsItsFirstFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	s := newScreen(full)
	if s.terminal || s.failed() != nil {
		t.Errorf("terminal %v, failed %v", s.terminal, s.failed())
	}
	s.print("x")
	if s.failed() == nil {
		t.Error("a failed write went unnoticed")
	}
}

func TestFormats(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567", -1234: "-1,234",
	} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
	for x, want := range map[float64]string{
		0: "0.0/s", 0.000277777: "0.000278/s", 1.38888: "1.39/s", 5: "5.00/s", 15: "15.0/s", 99.98: "100.0/s", 23456.7: "23,457/s",
	} {
		if got := rateText(x); got != want {
			t.Errorf("rateText(%v) = %s, want %s", x, got, want)
		}
	}
	for x, want := range map[float64]string{
		0: "0.0s", 9.84: "9.8s", 59.9: "59.9s", 65: "1m5s", 7384.2: "2h3m4s", 8.64e8: "10000 days",
	} {
		if got := seconds(x); got != want {
			t.Errorf("seconds(%v) = %s, want %s", x, got, want)
		}
	}
}
