package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// modelLog reads a log in the slow and obvious way. ok is false for what is to
// be rejected; whole is what is to be left, without the newline that is missing.
func modelLog(text []byte) (known map[string]string, whole []byte, ok bool) {
	known = make(map[string]string)
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, line := range lines {
		if len(line) == 0 {
			continue // after the last newline
		}
		var header struct {
			Version int    `json:"batch_log"`
			Config  string `json:"config"`
		}
		var entry struct {
			Key   *string `json:"key"`
			Raw   []byte  `json:"raw_key"`
			State string  `json:"state"`
		}
		isHeader := bytes.HasPrefix(line, []byte(`{"batch_log":`))
		switch {
		case isHeader && json.Unmarshal(line, &header) == nil && header.Version == 1 && header.Config != "":
			whole = append(whole, line...)
		case i > 0 && !isHeader && json.Unmarshal(line, &entry) == nil && entry.Key != nil && (entry.State == "ok" || entry.State == "failed"):
			whole = append(whole, line...)
			key := *entry.Key
			if entry.Raw != nil {
				key = string(entry.Raw)
			}
			known[key] = entry.State
		case i > 0 && strings.TrimSpace(string(line)) == "":
			whole = append(whole, line...)
		case i == len(lines)-1 && !json.Valid(line) && (i > 0 || isHeader || bytes.HasPrefix([]byte(`{"batch_log":`), line)):
			return known, whole, true // torn
		default:
			return nil, nil, false
		}
	}
	return known, whole, true
}

// Whatever is in a file: it is rejected and left alone, or what the model reads
// is known, and still is when the file has been written to and opened again.
func FuzzOpenLog(f *testing.F) {
	f.Add([]byte(head + line("a", "ok") + line("b", "failed") + line("a", "failed")))
	f.Add([]byte(head + line("a", "ok") + line("b", "failed")[:20]))
	f.Add([]byte(head + line("a", "ok") + "garbage\n" + line("b", "ok")))
	f.Add([]byte(head + line("a", "ok") + "garbage"))
	f.Add([]byte(head + line("a", "ok") + "\x00\x00"))
	f.Add([]byte(head[:12]))
	f.Add([]byte(head[:len(head)-1]))
	f.Add([]byte(head + head + line("z", "ok") + line("a", "ok")[:len(line("a", "ok"))-1]))
	f.Add([]byte(`{"batch_log":1}`))
	f.Add([]byte(head + `{"key":"x","raw_key":"/w==","state":"ok"}` + "\n"))
	f.Add([]byte(head + "\n" + line("a", "ok") + " \t"))
	f.Add([]byte("hello"))
	f.Add([]byte(nil))
	name := filepath.Join(f.TempDir(), "run.jsonl")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		known, whole, ok := modelLog(text)
		cfg := LogConfig{Mode: Resume, Config: "c", AnyConfig: true}
		log, err := OpenLog(name, cfg)
		if (err == nil) != ok {
			t.Fatalf("error %v, the model reads it: %v", err, ok)
		}
		if err != nil {
			if got := readFile(t, name); got != string(text) {
				t.Fatalf("refused, and changed to %q", got)
			}
			return
		}
		check := func() {
			if len(log.known) != len(known) {
				t.Fatalf("%d items, want %d", len(log.known), len(known))
			}
			for key, want := range known {
				if got, there := log.known[digestOf(key)]; !there || got.ok != (want == "ok") {
					t.Fatalf("%q is there: %v, ok: %v; want %s", key, there, got.ok, want)
				}
			}
		}
		check()
		if got := readFile(t, name); !bytes.HasPrefix([]byte(got), whole) {
			t.Fatalf("left %q, want at least %q", got, whole)
		}
		if err := errors.Join(log.record(entryOf("new", failed, nil, times{})), log.Close()); err != nil {
			t.Fatal(err)
		}
		if log, err = OpenLog(name, cfg); err != nil {
			t.Fatalf("cannot be opened again: %v", err)
		}
		defer log.Close()
		known["new"] = "failed"
		check()
	})
}

// FuzzHalt compares batches with a model that has the outcomes beforehand.
// Each byte is an item: whether it fails, and how long it takes. All times
// at which something ends differ, so the model need not guess an order.
func FuzzHalt(f *testing.F) {
	f.Add([]byte{1, 2, 3, 128, 5, 129, 200}, uint8(1), uint8(0), uint8(0), uint8(3), false)
	f.Add([]byte{1, 2, 3, 128, 5, 129, 200}, uint8(0), uint8(2), uint8(0), uint8(2), true)
	f.Add([]byte{1, 2, 3, 128, 5, 129, 200}, uint8(0), uint8(0), uint8(30), uint8(1), false)
	f.Add(bytes.Repeat([]byte{1, 255, 30}, 10), uint8(0), uint8(0), uint8(34), uint8(7), true)
	f.Add([]byte{}, uint8(1), uint8(1), uint8(1), uint8(1), true)
	f.Fuzz(func(t *testing.T, items []byte, fails, successes, percent, ahead uint8, now bool) {
		halt := Halt{Now: now, Fails: int64(fails), Successes: int64(successes), FailPercent: float64(min(percent, 100)), AtLeast: 3}
		items = items[:min(len(items), 100)]
		takes := func(i int) time.Duration { // never two the same, and no sum is another
			return time.Duration(items[i]&127+1)*time.Second + time.Duration(i+1)*time.Duration(i+1)*time.Nanosecond
		}
		synctest.Test(t, func(t *testing.T) {
			gate, err := sluice.New(sluice.Config{})
			if err != nil {
				t.Fatal(err)
			}
			type ending struct {
				at   time.Duration
				fail bool
			}
			var mu sync.Mutex
			var endings []ending // of attempts that were not canceled, in their order
			var begun []time.Duration
			start := time.Now()
			errBad := errors.New("bad")
			var tally Tally
			read := 0
			in := func(yield func(int) bool) {
				for i := range items {
					read++
					if !yield(i) {
						return
					}
				}
			}
			var last error
			yielded := make(map[int]int)
			for r, err := range Map(t.Context(), gate, in, func(ctx context.Context, i int) (int, error) {
				mu.Lock()
				begun = append(begun, time.Since(start))
				mu.Unlock()
				select {
				case <-time.After(takes(i)):
				case <-ctx.Done():
					return 0, ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				endings = append(endings, ending{time.Since(start), items[i] > 127})
				if items[i] > 127 {
					return 0, sluice.Permanent(errBad)
				}
				return 0, nil
			}, Config[int]{Halt: halt, ReadAhead: int(ahead%8) + 1, Tally: &tally}) {
				if err != nil {
					last = err
					continue
				}
				yielded[r.In]++
			}

			// The model: the first ending after which the halt is reached.
			var ok, bad int64
			halted := time.Duration(-1)
			for _, e := range endings {
				switch {
				case halted >= 0 && e.fail: // unfinished
				case e.fail:
					bad++
				default:
					ok++
				}
				if halted < 0 && (halt.Fails > 0 && bad == halt.Fails || halt.Successes > 0 && ok == halt.Successes ||
					halt.FailPercent > 0 && ok+bad >= 3 && float64(bad)/float64(ok+bad) >= halt.FailPercent/100) {
					halted = e.at
				}
			}
			if (halted >= 0) != errors.Is(last, ErrHalted) || halted < 0 && last != nil {
				t.Fatalf("ended with %v, the model at %v", last, halted)
			}
			if halted >= 0 {
				for _, at := range begun {
					if at > halted {
						t.Errorf("an item began at %v, after the end at %v", at, halted)
					}
				}
				if now && time.Since(start) != halted {
					t.Errorf("it ended at %v, not at %v", time.Since(start), halted)
				}
			} else if read != len(items) {
				t.Errorf("%d of %d items were read", read, len(items))
			}
			s := tally.Stats()
			if s.OK != ok || s.Failed != bad || s.OK+s.Failed+s.Unfinished != int64(read) {
				t.Errorf("counted %+v, want %d ok and %d failed of %d", s, ok, bad, read)
			}
			if len(yielded) != read {
				t.Errorf("%d items came of %d", len(yielded), read)
			}
			for i, n := range yielded {
				if n != 1 {
					t.Errorf("item %d came %d times", i, n)
				}
			}
		})
	})
}
