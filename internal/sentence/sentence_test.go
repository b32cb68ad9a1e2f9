package sentence

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestWait(t *testing.T) {
	berlin := time.FixedZone("Berlin", 3600)
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	for _, c := range []struct {
		wait         Wait
		clause, text string
	}{
		{Wait{}, "", ""},
		{Wait{End: at(time.Second)}, "", "for another 1.0 s"},
		{Wait{For: "rate"}, "for the rate", "for the rate"},
		{Wait{For: "rate", Why: "5/s", End: at(59 * time.Second)}, "for the rate of 5/s", "for the rate of 5/s, for another 59 s"},
		{Wait{For: "rate", Why: "2/m", End: at(15 * time.Minute)}, "for the rate of 2/m, until 12:15:00", "for the rate of 2/m, until 12:15:00 (15 min)"},
		{Wait{For: "rate", Why: "2/m", End: noon}, "for the rate of 2/m", "for the rate of 2/m"}, // is about to leave
		{Wait{For: "pause", Why: "429", End: at(time.Minute)}, "for the pause (429), until 12:01:00", "for the pause (429), until 12:01:00 (1 min)"},
		{Wait{For: "limit day", End: at(12 * time.Hour)}, "for the limit day, until midnight", "for the limit day, until midnight (12 h)"},
		{Wait{For: "limit day", End: at(12*time.Hour + 300*time.Nanosecond), AtLeast: true}, "for the limit day, until midnight", "for the limit day, at least until midnight (12 h)"},
		{Wait{For: "limit day", End: at(12 * time.Hour).In(berlin)}, "for the limit day, until 2026-11-24 01:00:00 (midnight UTC)", "for the limit day, until 2026-11-24 01:00:00 (midnight UTC) (12 h)"},
		{Wait{For: "limit month", End: at(36 * time.Hour)}, "for the limit month, until 2026-11-25 00:00:00", "for the limit month, until 2026-11-25 00:00:00 (36 h)"},
		{Wait{For: "limit tokens", End: at(400 * time.Millisecond), AtLeast: true}, "for the limit tokens", "for the limit tokens, at least for another 400 ms"},
		{Wait{For: "concurrency", Why: "8"}, "for the concurrency of 8, until a call in flight ends", "for the concurrency of 8, until a call in flight ends"},
		{Wait{For: "semaphore"}, "for the semaphore, until a permit is released", "for the semaphore, until a permit is released"},
		{Wait{For: "retry budget", Why: "calls are 1 s apart", End: at(time.Second)}, "for the retry budget (calls are 1 s apart)", "for the retry budget (calls are 1 s apart), for another 1.0 s"},
		{Wait{For: "parent", Why: `"all"`}.Below(Wait{}), `for the parent "all"`, `for the parent "all"`},
		{Wait{For: "parent", Why: `"all"`}.Below(Wait{For: "rate", Why: "3/s", End: at(time.Minute)}), `for the parent "all", for the rate of 3/s, until 12:01:00`, `for the parent "all", for the rate of 3/s, at least until 12:01:00 (1 min)`},
		{Wait{For: "parent", Why: `"all"`}.Below(Wait{For: "concurrency", Why: "1"}), `for the parent "all", for the concurrency of 1, until a call in flight ends`, `for the parent "all", for the concurrency of 1, until a call in flight ends`},
	} {
		if clause, text := c.wait.Clause(noon), c.wait.Text(noon); clause != c.clause || text != c.text {
			t.Errorf("%+v:\n%q\n%q, want\n%q\n%q", c.wait, clause, text, c.clause, c.text)
		}
	}
}

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0 s", 0: "0 s", 1: "1 µs", time.Millisecond: "1 ms", 1600 * time.Millisecond: "1.6 s", 42900 * time.Millisecond: "42 s",
		125 * time.Second: "2 min 5 s", time.Hour: "1 h", 65 * time.Minute: "1 h 5 min", 50 * time.Hour: "2 days 2 h",
	} {
		if got := Rough(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestCalls(t *testing.T) {
	for n, want := range map[int64]string{1: "1 call waits", 2: "2 calls wait", 1234567: "1,234,567 calls wait"} {
		if got := Calls(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
