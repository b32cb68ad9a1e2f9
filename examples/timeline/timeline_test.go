package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// checkedIn is where the pictures are that the documentation shows.
var checkedIn = filepath.Join("..", "..", "docs", "pictures")

const again = "; if that is right: go run ./examples/timeline, and look at the pictures"

func checkedInNumbers(t *testing.T) (n numbers) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkedIn, "timeline.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func sameFile(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("%s is not what is drawn now%s", want, again)
	}
}

// The limiters still do what the pictures show.
func TestNumbers(t *testing.T) {
	var now numbers
	synctest.Test(t, func(*testing.T) { now = measure() })
	shown := checkedInNumbers(t)
	for _, pair := range []struct{ now, shown []history }{
		{now.Confusion, shown.Confusion}, {now.Sixty, shown.Sixty}, {now.Cold, shown.Cold},
	} {
		if len(pair.now) != len(pair.shown) {
			t.Fatalf("%d limiters are shown, of %d%s", len(pair.shown), len(pair.now), again)
		}
		for i, h := range pair.now {
			s := pair.shown[i]
			if h.Name != s.Name || !slices.Equal(h.Arrived, s.Arrived) || !slices.Equal(h.Left, s.Left) ||
				!slices.Equal(h.Done, s.Done) || !slices.Equal(h.Refused, s.Refused) {
				t.Errorf("%s: the calls are not those shown%s", h.Name, again)
			}
			if !slices.EqualFunc(h.Water, s.Water, func(a, b level) bool {
				return a.At == b.At && math.Abs(a.Units-b.Units) < 1e-9
			}) {
				t.Errorf("%s: the water is not that shown%s", h.Name, again)
			}
		}
	}
}

// The pictures in git are drawn from the numbers in git. Elsewhere floating
// point may round another way.
func TestPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the pictures in git were drawn on amd64")
	}
	dir := t.TempDir()
	if _, err := drawAll(checkedInNumbers(t), dir); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range drawn {
		sameFile(t, filepath.Join(dir, file.Name()), filepath.Join(checkedIn, file.Name()))
	}
	kept, err := os.ReadDir(checkedIn)
	if err != nil {
		t.Fatal(err)
	}
	kept = slices.DeleteFunc(kept, func(f os.DirEntry) bool {
		return filepath.Ext(f.Name()) == ".png" || f.Name() == "scopes.svg" // web pages, and a drawing by hand
	})
	if len(kept) != len(drawn) {
		t.Errorf("%d files in %s, of which %d are drawn", len(kept), checkedIn, len(drawn))
	}
}

// Sixty calls arrive, none is lost, and none leaves before it came.
func TestNothingIsLost(t *testing.T) {
	n := checkedInNumbers(t)
	for i, s := range subjects() {
		h := n.Sixty[i]
		if len(h.Arrived) != 60 || len(h.Left)+len(h.Refused) != 60 {
			t.Errorf("%s: of %d calls %d left and %d were refused", s.name, len(h.Arrived), len(h.Left), len(h.Refused))
		}
		if !slices.IsSorted(h.Left) || slices.Max(h.Done) > until.Microseconds() {
			t.Errorf("%s: calls are out of order, or not done by the end", s.name)
		}
		for i, left := range h.Left {
			// Those that are rejected only make the others earlier.
			if left < h.Arrived[i] {
				t.Errorf("%s: call %d left at %d µs, before it arrived", s.name, i+1, left)
			}
		}
		for _, l := range h.Water {
			if s.full > 0 && l.Units > s.full+1e-9 || l.Units < 0 {
				t.Errorf("%s: the water is %v high at %d µs, of %v", s.name, l.Units, l.At, s.full)
			}
		}
	}
}

func gaps(at []micros) (all []time.Duration) {
	for i := 1; i < len(at); i++ {
		all = append(all, time.Duration(at[i]-at[i-1])*time.Microsecond)
	}
	return all
}

func mostInFlight(h history) (most int) {
	for _, at := range h.Left {
		n := 0
		for i := range h.Left {
			if h.Left[i] <= at && at < h.Done[i] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// What the pictures say in words is so.
func TestWords(t *testing.T) {
	n := checkedInNumbers(t)
	byName := make(map[string]history)
	for _, h := range slices.Concat(n.Confusion, n.Sixty) {
		byName[h.Name] = h
	}
	is := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Error("it is not true that " + what)
		}
	}
	const ms = time.Millisecond

	h := byName["semaphore of 2"]
	is(h.Left[8] == 800_000 && h.Left[0] == 0, "a semaphore of 2 lets 10 quick calls per second go")
	is(h.Done[15] == 7_200_000, "a semaphore of 2 lets 1.25 slow calls per second go: 8 in 6.4 s")
	is(mostInFlight(h) == 2, "a semaphore of 2 has 2 in flight")
	h = byName["rate of 2/s"]
	is(slices.Min(gaps(h.Left)) == 500*ms && slices.Max(gaps(h.Left)) == 500*ms, "a rate of 2/s lets one go each half second")
	is(mostInFlight(h) == 4, "a rate of 2/s has up to 4 in flight")

	h = byName["semaphore"]
	is(mostInFlight(h) == 3, "a semaphore of 3 has 3 in flight")
	is(h.Left[7]-h.Left[4] == 300_000 && h.Left[39]-h.Left[36] == 750_000, "three leave when three come back")
	is(slices.Min(gaps(byName["pacer"].Left)) == 200*ms, "the pacer keeps 200 ms")
	h = byName["bursty"]
	is(mostWithin(h.Left, ms) == 5 && h.Left[40] == h.Left[36] && h.Left[41]-h.Left[40] == 200_000,
		"5 leave at once after idleness, then one each 200 ms")
	h = byName["warmup"]
	is(gaps(h.Left)[0] > 500*ms && gaps(h.Left)[22] == 200*ms && gaps(h.Left)[36] > 300*ms && gaps(h.Left)[58] == 200*ms,
		"a pacer that warms up is slow at the beginning and after idleness")
	h = byName["leaky"]
	is(len(h.Refused) == 10+14, "the bucket refuses what does not fit: 10 of the one crowd, 14 of the other")
	for _, left := range h.Left {
		_, at := slices.BinarySearch(h.Arrived, left)
		is(at, "the bucket answers at once")
	}
	h = byName["fixed"]
	is(mostWithin(h.Left, 201*ms) == 16 && mostWithin(h.Left, ms) == 10, "a fixed window lets 16 go within 200 ms")
	is(mostWithin(byName["sliding"].Left, 2*time.Second) == 10, "a sliding window lets 10 go in any 2 s")
	h = byName["gate"]
	is(mostInFlight(h) == 3 && slices.Min(gaps(h.Left)) == 200*ms, "the gate keeps both limits")
	for _, left := range h.Left {
		at := time.Duration(left) * time.Microsecond
		is(at < paused[0] || at >= paused[1], "nothing leaves during the pause")
	}
	_, there := slices.BinarySearch(h.Left, paused[1].Microseconds())
	is(there, "the first leaves when the pause is over")
}

func TestMostWithin(t *testing.T) {
	at := []micros{0, 0, 1_000_000, 1_999_999, 2_000_000, 3_999_999}
	for _, test := range []struct {
		per  time.Duration
		want int
	}{
		{time.Microsecond, 2},
		{time.Second, 2},                      // its end is not included
		{time.Second + 2*time.Microsecond, 3}, // from 1.0 s to 2.0 s
		{2 * time.Second, 4},                  // from 0 to 1.999999
		{2*time.Second + time.Microsecond, 5}, //
		{time.Hour, 6},                        //
	} {
		if got := mostWithin(at, test.per); got != test.want {
			t.Errorf("most within %v: %d, want %d", test.per, got, test.want)
		}
	}
	if got := mostWithin(nil, time.Second); got != 0 {
		t.Errorf("%d of none", got)
	}
}

func TestStack(t *testing.T) {
	close := crowded.Microseconds()
	got := stack([]micros{0, 0, close - 1, close, 3 * close})
	want := []brick{{0, 0}, {0, 1}, {0, 2}, {close, 0}, {3 * close, 0}}
	if !slices.Equal(got, want) {
		t.Errorf("stacked %v, want %v", got, want)
	}
}

func TestCorners(t *testing.T) {
	got := corners([]level{{0, 0}, {0, 0}, {50, 0}, {100, 0}, {100, 4}, {150, 3}, {200, 2}, {250, 1}, {250, 5}, {300, 5}})
	want := []level{{0, 0}, {100, 0}, {100, 4}, {250, 1}, {250, 5}, {300, 5}}
	if !slices.Equal(got, want) {
		t.Errorf("corners %v, want %v", got, want)
	}
}
