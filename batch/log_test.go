package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// head is the first line of the log of the config "c".
const head = `{"batch_log":1,"config":"2e7d2c03a9507ae2"}` + "\n"

// line is a line of a log.
func line(key, state string) string {
	return fmt.Sprintf(`{"key":%q,"state":%q,"attempts":1,"service_ms":0}`+"\n", key, state)
}

func writeFile(t testing.TB, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func openLog(t testing.TB, name string, cfg LogConfig) *Log {
	t.Helper()
	log, err := OpenLog(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

// Which items each mode runs. Of a the last line counts, as of b.
func TestMode(t *testing.T) {
	text := head + line("a", "failed") + line("b", "ok") + line("c", "failed") + line("a", "ok") + line("b", "failed")
	for mode, want := range map[Mode]string{Resume: "d", ResumeFailed: "b c d", RetryFailed: "b c"} {
		log := openLog(t, writeFile(t, text), LogConfig{Mode: mode, Config: "c"})
		var tally Tally
		var ran []string
		err := ForEach(t.Context(), newGate(t, sluice.Config{}), slices.Values([]string{"a", "b", "c", "d"}),
			func(_ context.Context, key string) error { ran = append(ran, key); return nil },
			Config[string]{Log: log, Tally: &tally, ReadAhead: 1})
		if got := strings.Join(ran, " "); got != want || err != nil {
			t.Errorf("mode %d ran %s, want %s: %v", mode, got, want, err)
		}
		if s := tally.Stats(); s.OK != int64(len(ran)) || s.Skipped != int64(4-len(ran)) {
			t.Errorf("mode %d: %+v", mode, s)
		}
		if ok, failed := log.OK, log.Failed; ok != 1 || failed != 2 {
			t.Errorf("mode %d: %d ok and %d failed are known, want 1 and 2", mode, ok, failed)
		}
	}
	// Without a single line RetryFailed has nothing to do.
	log := openLog(t, writeFile(t, ""), LogConfig{Mode: RetryFailed})
	if err := ForEach(t.Context(), newGate(t, sluice.Config{}), slices.Values([]string{"a"}),
		func(context.Context, string) error { t.Error("ran"); return nil }, Config[string]{Log: log}); err != nil {
		t.Error(err)
	}
}

// What is in the file, to the letter.
func TestLog_Lines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "new.jsonl")
		log := openLog(t, name, LogConfig{Config: "c"})
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		type item struct{ id string }
		items := []item{{"a"}, {"<&\u2028\x00>"}, {"\xff"}, {""}}
		err := ForEach(t.Context(), gate, slices.Values(items), func(_ context.Context, it item) error {
			time.Sleep(1500 * time.Microsecond)
			if it.id == "a" {
				return nil
			}
			return sluice.Permanent(errors.New(strings.Repeat("é", 1000) + it.id))
		}, Config[item]{Log: log, Key: func(it item) string { return it.id }})
		if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), ": 3 of ") {
			t.Error(err)
		}
		long := strings.Repeat("é", 500) + "…"
		rest := func(second int) string {
			at := fmt.Sprintf("2000-01-01T00:00:0%d", second)
			s := fmt.Sprintf(`"attempts":1,"intended":"%sZ","sent":"%sZ","done":"%s.0015Z","service_ms":1.5`, at, at, at)
			if second > 0 {
				s += `,"error":"` + long + `"`
			}
			return s + "}\n"
		}
		want := head +
			`{"key":"a","state":"ok",` + rest(0) +
			`{"key":"<&\u2028\u0000>","state":"failed",` + rest(1) +
			"{\"key\":\"\uFFFD\",\"raw_key\":\"/w==\",\"state\":\"failed\"," + rest(2) +
			`{"key":"","state":"failed",` + rest(3)
		if got := readFile(t, name); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		log.Close()
		again := openLog(t, name, LogConfig{Mode: Resume, Config: "c"})
		for _, it := range append(items, item{"\uFFFD"}, item{"\xfe"}, item{"b"}) {
			if got, want := skips(again, it.id), slices.Contains(items, it); got != want {
				t.Errorf("skip(%q) = %v", it.id, got)
			}
		}
	})
}

// What is no file has no end, or forgets: /dev/zero would be read for ever.
func TestOpenLog_NotARegularFile(t *testing.T) {
	l, err := OpenLog(os.DevNull, LogConfig{})
	if !errors.Is(err, errNotLog) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

// What a log may look like when it is opened, and what is left of it.
func TestOpenLog(t *testing.T) {
	a, b := line("a", "ok"), line("b", "failed")
	other := strings.Replace(head, "2e7d", "ffff", 1)
	tests := []struct {
		name   string
		before string
		cfg    LogConfig
		err    error
		after  string // "" for what was there before
		known  int
	}{
		{"empty", "", LogConfig{Config: "c"}, nil, head, 0},
		{"fresh, no item", head, LogConfig{Config: "c"}, nil, head, 0},
		{"fresh, items", head + a, LogConfig{Config: "c"}, ErrLogExists, "", 0},
		{"resume", head + a + b, LogConfig{Mode: Resume, Config: "c"}, nil, "", 2},
		{"torn", head + a + b[:10], LogConfig{Mode: Resume, Config: "c"}, nil, head + a, 1},
		{"torn by a byte", head + a + b[:len(b)-2], LogConfig{Mode: Resume, Config: "c"}, nil, head + a, 1},
		{"only the newline is missing", head + a + b[:len(b)-1], LogConfig{Mode: Resume, Config: "c"}, nil, head + a + b, 2},
		{"torn, after a power loss", head + a + "\x00\x00\x00", LogConfig{Mode: Resume, Config: "c"}, nil, head + a, 1},
		{"torn header", head[:5], LogConfig{Config: "c"}, nil, head, 0},
		{"torn header, later", head[:20], LogConfig{Config: "c"}, nil, head, 0},
		{"header without newline", head[:len(head)-1], LogConfig{Config: "c"}, nil, head, 0},
		{"a line twice", head + a + a, LogConfig{Mode: Resume, Config: "c"}, nil, "", 1},
		{"another config", other + a, LogConfig{Mode: Resume, Config: "c"}, ErrLogConfig, "", 0},
		{"another config, torn", other + a + b[:9], LogConfig{Mode: Resume, Config: "c"}, ErrLogConfig, "", 0},
		{"another config, never mind", other + a + b[:9], LogConfig{Mode: Resume, Config: "c", AnyConfig: true}, nil, other + a + head, 1},
		{"another config, no item", other, LogConfig{Mode: Resume, Config: "c"}, nil, other + head, 0},
		{"back to the first config", other + a + head + b, LogConfig{Mode: Resume, Config: "c"}, nil, "", 2},
		{"another file", "hello\n", LogConfig{Config: "c"}, errNotLog, "", 0},
		{"another file, no newline", "hello", LogConfig{Config: "c"}, errNotLog, "", 0},
		{"other JSON", `{"a":1}`, LogConfig{Config: "c"}, errNotLog, "", 0},
		{"garbage in the middle", head + "x\n" + a, LogConfig{Mode: Resume, Config: "c"}, errDamaged, "", 0},
		{"torn in the middle", head + b[:9] + "\n" + a, LogConfig{Mode: Resume, Config: "c"}, errDamaged, "", 0},
		{"empty lines", head + "\n" + a + " \r\n", LogConfig{Mode: Resume, Config: "c"}, nil, "", 1},
		{"no key", head + `{"state":"ok"}` + "\n", LogConfig{Mode: Resume, Config: "c"}, errDamaged, "", 0},
		{"no state", head + `{"key":"a"}` + "\n", LogConfig{Mode: Resume, Config: "c"}, errDamaged, "", 0},
		{"another version", `{"batch_log":2,"config":"x"}` + "\n", LogConfig{Mode: Resume, Config: "c"}, errNotLog, "", 0},
		{"another version, no newline", `{"batch_log":2,"config":"x"}`, LogConfig{Mode: Resume, Config: "c"}, errNotLog, "", 0},
		{"no fingerprint", `{"batch_log":1}` + "\n", LogConfig{Mode: Resume, Config: "c"}, errNotLog, "", 0},
		{"more than is known of a line", head + `{"key":"a","state":"ok","new":1}` + "\n", LogConfig{Mode: Resume, Config: "c"}, nil, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := writeFile(t, tt.before)
			log, err := OpenLog(name, tt.cfg)
			if !errors.Is(err, tt.err) || err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if err == nil {
				if len(log.known) != tt.known {
					t.Errorf("%d items, want %d", len(log.known), tt.known)
				}
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			}
			want := tt.after
			if want == "" {
				want = tt.before
			}
			if got := readFile(t, name); got != want {
				t.Errorf("left\n%s\nwant\n%s", got, want)
			}
		})
	}
	for _, mode := range []Mode{-1, RetryFailed + 1} {
		if _, err := OpenLog(filepath.Join(t.TempDir(), "x"), LogConfig{Mode: mode}); err == nil {
			t.Errorf("mode %d was taken", mode)
		}
	}
	if _, err := OpenLog(filepath.Join(t.TempDir(), "no", "folder"), LogConfig{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// What is unfinished is not in the log, and is run when the batch is resumed.
func TestLog_StoppedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "run.jsonl")
		var ran []string
		run := func(stop <-chan struct{}) error {
			log := openLog(t, name, LogConfig{Mode: Resume, Config: "c"})
			defer log.Close()
			return ForEach(t.Context(), newGate(t, sluice.Config{Concurrency: 1}), slices.Values([]string{"a", "b", "c", "d"}),
				func(_ context.Context, key string) error {
					time.Sleep(time.Second)
					ran = append(ran, key)
					return nil
				}, Config[string]{Log: log, Stop: stop})
		}
		stop := make(chan struct{})
		time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
		if err := run(stop); !errors.Is(err, ErrStopped) || strings.Join(ran, "") != "ab" {
			t.Fatalf("ran %v, %v", ran, err)
		}
		if err := run(nil); err != nil || strings.Join(ran, "") != "abcd" {
			t.Errorf("ran %v, %v", ran, err)
		}
	})
}

// A batch that skips everything can be ended all the same.
func TestLog_SkipsEndlessInput(t *testing.T) {
	log := openLog(t, writeFile(t, ""), LogConfig{Mode: RetryFailed})
	stop, ending := make(chan struct{}), make(chan struct{})
	read := 0
	in := func(yield func(string) bool) {
		for yield("a") {
			if read++; read == 100 {
				close(stop)
				<-ending
			}
		}
	}
	err := ForEach(t.Context(), newGate(t, sluice.Config{}), in, func(context.Context, string) error { t.Error("ran"); return nil },
		Config[string]{Log: log, Stop: stop, OnStop: func(error) { close(ending) }})
	if !errors.Is(err, ErrStopped) || read != 100 {
		t.Errorf("%v after %d items", err, read)
	}
}

// Two writers would spoil each other's lines.
// The directory of a new log is synced before anything is written to the log, and
// that of an old one is not.
func TestOpenLog_SyncsTheDirectory(t *testing.T) {
	real := syncDir
	defer func() { syncDir = real }()
	var synced []string
	var failure error
	name := filepath.Join(t.TempDir(), "run.jsonl")
	syncDir = func(dir string) error {
		if text := readFile(t, name); text != "" {
			t.Errorf("synced when it was written: %q", text)
		}
		synced = append(synced, dir)
		return errors.Join(failure, real(dir))
	}
	failure = errors.New("no room")
	if log, err := OpenLog(name, LogConfig{}); log != nil || !errors.Is(err, failure) {
		t.Errorf("the directory cannot be synced: %v", err)
	}
	failure = nil
	for range 2 { // the second finds a header
		log, err := OpenLog(name, LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
	}
	link := filepath.Join(t.TempDir(), "link.jsonl")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Dir(name), filepath.Dir(name)}
	if err := os.Symlink(name, link); err == nil {
		log, err := OpenLog(link, LogConfig{}) // makes the file that the link names
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		want = append(want, filepath.Dir(name))
	}
	for i := range want {
		want[i], _ = filepath.EvalSymlinks(want[i])
	}
	for i := range synced {
		synced[i], _ = filepath.EvalSymlinks(synced[i])
	}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
}

func TestSyncDir(t *testing.T) {
	if err := syncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestOpenLog_InUse(t *testing.T) {
	name := writeFile(t, head+line("a", "ok"))
	log := openLog(t, name, LogConfig{Mode: Resume, Config: "c"})
	for range 2 {
		if _, err := OpenLog(name, LogConfig{Mode: Resume, Config: "c"}); !errors.Is(err, errLogInUse) {
			t.Errorf("second writer: %v", err)
		}
	}
	log.Close()
	openLog(t, name, LogConfig{Mode: Resume, Config: "c"})
}

// A log that cannot be written ends the batch: what is done would be done again.
func TestLog_CannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := writeFile(t, head)
		log, err := OpenLog(name, LogConfig{Config: "c"})
		if err != nil {
			t.Fatal(err)
		}
		good := log.file
		defer good.Close()
		gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		read := 0
		var last error
		for r, err := range Map(t.Context(), gate, endless(&read), takes(0), Config[int]{Log: log, Key: strconv.Itoa}) {
			last = err
			if r.In == 3 {
				if log.file, err = os.Open(name); err != nil { // which cannot be written
					t.Fatal(err)
				}
			}
		}
		if last == nil || !strings.Contains(last.Error(), "writing the log") {
			t.Errorf("ended with %v", last)
		}
		if n := strings.Count(readFile(t, name), "\n"); n != 4 || read > 6 {
			t.Errorf("%d lines, %d items were read", n, read)
		}
		for _, f := range []func() error{log.sync, log.Close} {
			if err := f(); !errors.Is(err, last) {
				t.Errorf("%v is forgotten: %v", last, err)
			}
		}
	})
}

// A log that was removed or replaced ends the batch within the second after which it is
// synced, and again when it is closed.
func TestLog_Gone(t *testing.T) {
	for _, how := range []struct {
		name string
		do   func(name string) error
	}{
		{"removed", os.Remove},
		{"moved", func(name string) error { return os.Rename(name, name+".1") }},
		{"replaced", func(name string) error {
			return errors.Join(os.WriteFile(name+".new", []byte(head), 0o600), os.Rename(name+".new", name))
		}},
	} {
		if runtime.GOOS == "windows" {
			t.Skip("files that are open stay where they are")
		}
		synctest.Test(t, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "run.jsonl")
			log := openLog(t, name, LogConfig{Config: "c"})
			gate := newGate(t, sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}})
			read := 0
			var last error
			for r, err := range Map(t.Context(), gate, endless(&read), takes(0), Config[int]{Log: log, Key: strconv.Itoa}) {
				last = err
				if r.In == 100 {
					break
				}
				if r.In == 5 {
					if err := how.do(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !errors.Is(last, errLogGone) || read < 6 || read > 6+12 {
				t.Errorf("%s: ended with %v after %d items", how.name, last, read)
			}
			if err := log.Close(); !errors.Is(err, errLogGone) {
				t.Errorf("%s: closed with %v", how.name, err)
			}
		})
	}
}

// A loop that breaks is not done with its item.
func TestLog_BrokenLoop(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.jsonl")
	log := openLog(t, name, LogConfig{Config: "c"})
	for r, err := range Map(t.Context(), newGate(t, sluice.Config{Concurrency: 1}), slices.Values([]string{"a", "b", "c"}),
		func(context.Context, string) (int, error) { return 0, nil }, Config[string]{Log: log, Ordered: true}) {
		if err != nil || r.In == "b" {
			break
		}
	}
	log.Close()
	again := openLog(t, name, LogConfig{Mode: Resume, Config: "c"})
	if !skips(again, "a") || skips(again, "b") || skips(again, "c") {
		t.Errorf("left\n%s", readFile(t, name))
	}
}

// The log is synced a second after a line was written, also while nothing
// else happens, and not more often: seen when a result comes, before its line.
func TestLog_Syncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openLog(t, filepath.Join(t.TempDir(), "run.jsonl"), LogConfig{Config: "c"})
		if err := log.sync(); err != nil {
			t.Fatal(err)
		}
		comes := []struct {
			at    time.Duration
			dirty bool
		}{
			{time.Second, false},
			{1500 * time.Millisecond, true}, // the line of 1 s
			{1999 * time.Millisecond, true},
			{2001 * time.Millisecond, false}, // synced at 2 s
			{3000 * time.Millisecond, true},  // the line of 2.001 s
			{3002 * time.Millisecond, false},
			{9 * time.Second, false},
		}
		for r, err := range Map(t.Context(), newGate(t, sluice.Config{}), count(len(comes)), func(_ context.Context, i int) (int, error) {
			time.Sleep(comes[i].at)
			return 0, nil
		}, Config[int]{Log: log, Key: strconv.Itoa}) {
			if err != nil {
				t.Fatal(err)
			}
			if log.dirty != comes[r.In].dirty {
				t.Errorf("after %v dirty is %v", comes[r.In].at, log.dirty)
			}
		}
		if log.dirty {
			t.Error("not synced at the end")
		}
	})
}

// So are lines that a batch finds unsynced when it begins: the header of a new
// log, or what a batch before it left behind.
func TestLog_SyncsItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openLog(t, filepath.Join(t.TempDir(), "run.jsonl"), LogConfig{Config: "c"})
		if !log.dirty {
			t.Fatal("there is no header to sync")
		}
		comes := []struct {
			after time.Duration
			dirty bool
		}{
			{500 * time.Millisecond, true},
			{499 * time.Millisecond, true},
			{2 * time.Millisecond, false},    // synced at 1 s
			{1100 * time.Millisecond, false}, // the line of 1.001 s, synced at 2.001 s
		}
		for r, err := range Map(t.Context(), newGate(t, sluice.Config{Concurrency: 1}), count(len(comes)), func(_ context.Context, i int) (int, error) {
			time.Sleep(comes[i].after)
			return 0, nil
		}, Config[int]{Log: log, Key: strconv.Itoa}) {
			if err != nil {
				t.Fatal(err)
			}
			if log.dirty != comes[r.In].dirty {
				t.Errorf("item %d: dirty is %v", r.In, log.dirty)
			}
		}
	})
}

// Closing a log twice does nothing.
func TestLog_CloseTwice(t *testing.T) {
	log := openLog(t, writeFile(t, ""), LogConfig{})
	for range 2 {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := log.record(entryOf("a", done, nil, times{})); !errors.Is(err, os.ErrClosed) {
		t.Errorf("written after it was closed: %v", err)
	}
}

func skips(l *Log, key string) bool {
	skip, _ := l.skip(key)
	return skip
}

// Of equal items those are counted that the log has no entry for.
func TestStats_Repeated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.jsonl")
	gate := newGate(t, sluice.Config{Concurrency: 1})
	items := slices.Values([]string{"x", "x", "x", "y"})
	for _, tt := range []struct {
		mode                  Mode
		halt                  int64
		ok, skipped, repeated int64
	}{
		{Fresh, 1, 1, 0, 0},
		{Resume, 0, 1, 3, 2},
		{Resume, 0, 0, 4, 2},
	} {
		log := openLog(t, name, LogConfig{Mode: tt.mode})
		var tally Tally
		err := ForEach(t.Context(), gate, items, func(context.Context, string) error { return nil },
			Config[string]{Log: log, Halt: Halt{Successes: tt.halt}, Tally: &tally, ReadAhead: 1})
		if err != nil && tt.halt == 0 {
			t.Error(err)
		}
		if s := tally.Stats(); s.OK != tt.ok || s.Skipped != tt.skipped || s.Repeated != tt.repeated {
			t.Errorf("%+v, want %+v", s, tt)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
