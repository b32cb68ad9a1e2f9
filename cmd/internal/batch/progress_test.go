package batch

import (
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

func TestMomentText(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	five := sluice.Rate{Count: 5, Per: time.Second}
	for _, tt := range []struct {
		name    string
		then, m moment
		want    string
	}{
		{"begin", moment{at: at}, moment{at: at, total: 100, target: five, plan: 20 * time.Second},
			"0/100 done, ETA 20s, 0 ok, 0 failed, 0/s of 5/s"},
		{"under way", moment{at: at}, moment{at: at.Add(4 * time.Second), total: 100, ok: 15, failed: 1, retries: 4, attempts: 20, target: five,
			plan: 16800 * time.Millisecond, queued: 1048576 * time.Microsecond},
			"16/100 done, ETA 21s, 15 ok, <1 failed>, 4 retried, 5/s of 5/s, late by 1s"},
		{"faster than planned", moment{at: at}, moment{at: at.Add(4 * time.Second), total: 100, ok: 50, attempts: 50, plan: 10 * time.Second},
			"50/100 done, ETA 10s, 50 ok, 0 failed, 12.5/s"},
		{"no total", moment{at: at}, moment{at: at.Add(2 * time.Second), total: unknown, ok: 3, attempts: 3},
			"3 done, 3 ok, 0 failed, 1.5/s"},
		{"resumed", moment{at: at}, moment{at: at, total: 100, ok: 0, skipped: 60},
			"60/100 done, ETA unknown, 0 ok, 0 failed, 60 skipped, 0/s"},
		{"a host is paused", moment{at: at}, moment{at: at.Add(2 * time.Second), total: 10, ok: 2, attempts: 2, plan: 8 * time.Second, target: sluice.Rate{Count: 1, Per: time.Second},
			pauses: []pause{{name: "http://h:80", until: at.Add(62 * time.Second), why: "429"}}},
			"2/10 done, ETA 1m8s, 2 ok, 0 failed, 1/s of 1/s; http://h:80 paused until 12:01:02 (429)"},
		{"all is paused", moment{at: at}, moment{at: at, total: 10, plan: 70 * time.Second, pauses: []pause{{until: at.Add(61*time.Second + 1)}}},
			"0/10 done, ETA 1m10s, 0 ok, 0 failed, 0/s; all paused until 12:01:02"},
		{"nothing has ended lately", moment{at: at, ok: 4}, moment{at: at.Add(5 * time.Second), total: 40, ok: 4, attempts: 8, running: 4, plan: time.Millisecond},
			"4/40 done, ETA unknown, 4 ok, 0 failed, 1.6/s, 4 running"},
		{"for a while", moment{at: at}, moment{at: at.Add(time.Minute), total: 40, ok: 4, attempts: 6, running: 4, plan: time.Millisecond},
			"4/40 done, ETA 9m0s, 4 ok, 0 failed, 0.1/s, 4 running"},
		{"stopping", moment{at: at}, moment{at: at.Add(time.Second), total: 40, ok: 4, attempts: 6, running: 2, stopping: true},
			"4/40 done, stopping, 2 running, 4 ok, 0 failed, 6/s"},
		{"stopped for a minute by ^Z", moment{at: at}, moment{at: at.Add(64 * time.Second), stopped: time.Minute, total: 8, ok: 4, attempts: 4},
			"4/8 done, ETA 4s, 4 ok, 0 failed, 1/s"},
		{"a slow rate", moment{at: at}, moment{at: at.Add(time.Second), total: 3, ok: 1, attempts: 1, target: sluice.Rate{Count: 1, Per: time.Hour}, plan: 2 * time.Hour, next: at.Add(time.Hour)},
			"1/3 done, ETA 2h0m0s, 1 ok, 0 failed, 1/s of 1/h, the next at 13:00:00"},
		{"a failed attempt", moment{at: at}, moment{at: at.Add(time.Second), total: 1, attempts: 1, plan: time.Millisecond, failure: failure{at, "h:80", "503 Service Unavailable"}},
			"0/1 done, ETA unknown, 0 ok, 0 failed, 1/s; last failed attempt, at 12:00:00: h:80: 503 Service Unavailable"},
		{"a slow host", moment{at: at}, moment{at: at.Add(time.Second), total: 1, plan: time.Second, pauses: []pause{{name: "http://h:80", until: at.Add(time.Minute), why: "limited by: learned", next: true}}},
			"0/1 done, ETA 1m0s, 0 ok, 0 failed, 0/s; http://h:80: the next call at 12:01:00 (limited by: learned)"},
		{"the end", moment{at: at}, moment{at: at.Add(time.Second), total: 2, ok: 2, attempts: 2},
			"2/2 done, ETA 0s, 2 ok, 0 failed, 2/s"},
	} {
		red := func(s string) string { return "<" + s + ">" }
		got := strings.Join(append([]string{tt.m.count() + ", " + tt.m.detail(tt.then, red)}, tt.m.paused()...), "; ")
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// Of hundreds of paused hosts those with the longest pauses have lines.
func TestMoment_ManyPauses(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var m moment
	for i := range 10 {
		m.pauses = append(m.pauses, pause{name: string(rune('a' + i)), until: at.Add(time.Duration(i) * time.Minute)})
	}
	want := []string{"j paused until 12:09:00", "i paused until 12:08:00", "h paused until 12:07:00", "g paused until 12:06:00", "6 more are paused, until 12:05:00 or less"}
	if got := m.paused(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A time that is not within a day has its date.
func TestCeil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight of 2000-01-01
		for after, want := range map[time.Duration]string{
			time.Millisecond: "00:00:01", 24 * time.Hour: "00:00:00", 24*time.Hour + 1: "2000-01-02 00:00:01", 50 * time.Hour: "2000-01-03 02:00:00",
		} {
			if got := ceil(time.Now().UTC().Add(after)); got != want {
				t.Errorf("%v: %s, want %s", after, got, want)
			}
		}
	})
}

func TestHistory(t *testing.T) {
	var h history
	at := time.Now()
	for second, want := range []int64{0, 0, 0, 0, 0, 0, 1, 2, 3} {
		if got := h.add(moment{at: at.Add(time.Duration(second) * time.Second), ok: int64(second)}); got.ok != want {
			t.Errorf("after %d s it measures from %d, want %d", second, got.ok, want)
		}
	}
}

// A time in which nothing ended is measured with what ended before.
func TestHistory_Lull(t *testing.T) {
	var h history
	at := time.Now()
	for second, ok := range []int64{0, 1, 2, 2, 2, 2, 2, 2, 2, 2} {
		if got := h.add(moment{at: at.Add(time.Duration(second) * time.Second), ok: ok}); ok-got.ok == 0 && second > 0 {
			t.Errorf("after %d s it measures from %d of %d", second, got.ok, ok)
		}
	}
}

// Rates are measured over the last 5 s.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := progressOf(func() moment {
			n := int64(time.Since(start) / time.Second)
			return moment{at: time.Now(), total: unknown, ok: n, attempts: n}
		})
		time.Sleep(10 * time.Second)
		if got, want := p.Line(), "10 done, 10 ok, 0 failed, 1/s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		time.Sleep(10 * time.Second)
		red := func(s string) string { return "<" + s + ">" }
		if got, want := p.Lines(80, red), []string{"20 done", "20 ok, 0 failed, 1/s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestInput(t *testing.T) {
	for _, tt := range []struct {
		text string
		null bool
		want []string
	}{
		{"", false, nil},
		{"a\nb\n", false, []string{"a", "b"}},
		{"a\n\n\nb", false, []string{"a", "b"}},
		{" a \r\n", false, []string{" a \r"}},
		{"a\nb\x00c\x00", true, []string{"a\nb", "c"}},
		{strings.Repeat("x", 200_000) + "\ny", false, []string{strings.Repeat("x", 200_000), "y"}},
	} {
		name := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := openInput(options{in: name, null: tt.null}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := in.total.Load(); got != int64(len(tt.want)) {
			t.Errorf("%.20q: counted %d, want %d", tt.text, got, len(tt.want))
		}
		if got := slices.Collect(in.items(nil)); !slices.Equal(got, tt.want) || in.err() != nil {
			t.Errorf("%.20q: read %.20q, %v", tt.text, got, in.err())
		}
		in.close()
	}
}

// A pipe is counted when it is at its end. A pipe without a writer does not keep the
// program from stopping.
func TestInputPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := openInput(options{in: "-"}, r)
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("a\nb\n")
	stop := make(chan struct{})
	n := 0
	for range in.items(stop) {
		if n++; n == 2 {
			close(stop)
		}
	}
	if n != 2 || in.total.Load() != unknown {
		t.Errorf("%d items, total %d", n, in.total.Load())
	}
	w.Close() // lets the goroutine end that reads
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w2.WriteString("a\nb\n")
	w2.Close()
	if in, err = openInput(options{in: "-"}, r2); err != nil {
		t.Fatal(err)
	}
	if got := len(slices.Collect(in.items(nil))); got != 2 || in.total.Load() != 2 {
		t.Errorf("%d items, total %d", got, in.total.Load())
	}
	in.close()
}

// Of a pipe it is known how many items there are once it was written to its end, although
// only the first of them was taken.
func TestInputPipe_Total(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := openInput(options{in: "-", shape: shape{n: 3}}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	next, stop := iter.Pull(in.items(nil))
	defer stop()
	go func() {
		io.WriteString(w, strings.Repeat("an item\n", 100_000))
		w.Close()
	}()
	first, _ := next()
	for in.total.Load() == unknown { // the test ends, or its time is over
		runtime.Gosched()
	}
	if total := in.total.Load(); first != "an item\nan item\nan item" || total != 33_334 {
		t.Errorf("first %q, total %d", first, total)
	}
	for range 33_332 {
		next()
	}
	if last, _ := next(); last != "an item" {
		t.Errorf("last %q", last)
	}
}

// A folder can be opened, but not read.
func TestInputFails(t *testing.T) {
	if _, err := openInput(options{in: t.TempDir()}, nil); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Error(err)
	}
}

// The items that are in the gate are not planned twice.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, err := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 5 {
			go gate.Do(t.Context(), func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
		}
		for _, test := range []struct {
			at   time.Duration
			left int64
			want time.Duration
		}{
			{2 * time.Second, 4, 3*time.Minute + 59*time.Second}, // one was done after 1 s, four wait
			{2 * time.Second, 10, 9*time.Minute + 59*time.Second},
			{150 * time.Second, 2, 91 * time.Second},
			{240*time.Second + 1, 1, time.Second}, // it runs
		} {
			time.Sleep(test.at - time.Since(began))
			synctest.Wait()
			if got := rest(gate, gate.Stats(), test.left); got.Round(time.Second) != test.want {
				t.Errorf("after %v, %d left: %v, want %v", test.at, test.left, got, test.want)
			}
		}
		time.Sleep(time.Minute) // all of them end
	})
}
