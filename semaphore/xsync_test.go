package semaphore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	xsync "golang.org/x/sync/semaphore"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

const (
	theirModule = "golang.org/x/sync"
	theirImport = "golang.org/x/sync/semaphore"
	ourImport   = "github.com/sluice-go/sluice/semaphore"
)

// The tests, examples and benchmarks of golang.org/x/sync/semaphore pass when
// nothing but their import path is changed.
//
// They are not copied. They are read from the module that this one requires,
// rewritten into a temporary directory, and laid over this package in a run of
// the go command of their own, in which the test files of this package are
// hidden, this one included.
func TestTestsOfXSync(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN because of -short: the tests of " + theirImport + " against this package")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(goCommand(t, "list", "-m", "-f", "{{.Dir}}", theirModule)))
	if dir == "" {
		t.Fatalf("the source of module %s is not in the module cache", theirModule)
	}

	overlay := map[string]string{} // path → file that replaces it, "" for none
	for _, ours := range glob(t, here) {
		overlay[ours] = ""
	}
	var want declared
	for _, theirs := range glob(t, filepath.Join(dir, "semaphore")) {
		src, err := os.ReadFile(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(src, []byte(theirImport)); got != 1 {
			t.Fatalf("%s stands %d times in %s, want once, as an import", theirImport, got, theirs)
		}
		src = bytes.Replace(src, []byte(theirImport), []byte(ourImport), 1)
		name := "xsync_overlay_" + filepath.Base(theirs)
		if err := want.parse(name, src); err != nil {
			t.Fatal(err)
		}
		rewritten := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(rewritten, src, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, name)] = rewritten
	}
	if len(want.pass) < 10 || len(want.run) == 0 {
		t.Fatalf("there should be more tests, examples and benchmarks than %v and %v", want.pass, want.run)
	}

	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	listFile := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(listFile, list, 0o600); err != nil {
		t.Fatal(err)
	}
	limit := 5 * time.Minute // it should take seconds
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)*3/4) // it says more about what hangs than we can
	}
	args := []string{"test", "-json", "-overlay", listFile, "-count=1", "-timeout", limit.String(), "-bench=.", "-benchtime=1x"}
	if raceEnabled() {
		args = append(args, "-race")
	}
	out := goCommand(t, append(args, ".")...)
	wrong, err := want.wrong(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(wrong) > 0 {
		t.Errorf("these did not run and pass, or are not theirs: %v\n%s", wrong, plain(out))
	}
	t.Logf("%d tests and examples passed, %d benchmarks ran, race detector %t", len(want.pass), len(want.run), raceEnabled())
}

// goCommand runs the go command in the directory of this package and returns
// what it prints.
func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, stderr.Bytes(), plain(out))
	}
	return out
}

func glob(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files in %s: %v", dir, err)
	}
	return files
}

// raceEnabled reports whether this test is built with -race. Where that works
// it also does for theirs.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// declared is what test files say there is to run.
type declared struct {
	pass []string // tests, and examples whose output is checked
	run  []string // benchmarks
}

func (d *declared) parse(name string, src []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		switch {
		case !ok || f.Recv != nil:
		case strings.HasPrefix(f.Name.Name, "Test"):
			d.pass = append(d.pass, f.Name.Name)
		case strings.HasPrefix(f.Name.Name, "Benchmark"):
			d.run = append(d.run, f.Name.Name)
		}
	}
	for _, e := range doc.Examples(file) {
		if e.Output != "" || e.EmptyOutput {
			d.pass = append(d.pass, "Example"+e.Name)
		}
	}
	return nil
}

// An event is a line of what go test -json prints.
type event struct{ Action, Test, Output string }

// wrong returns what is declared and did not run, or ran and did not pass, and
// what ran and is not declared.
func (d *declared) wrong(events io.Reader) (wrong []string, err error) {
	seen := map[event]bool{}
	for lines := json.NewDecoder(events); ; {
		var e event
		if err := lines.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		e.Output = ""
		seen[e] = true
	}
	for _, name := range d.pass {
		if !seen[event{Action: "run", Test: name}] || !seen[event{Action: "pass", Test: name}] {
			wrong = append(wrong, name)
		}
	}
	for _, name := range d.run { // of a benchmark that passes there is no event that says so
		if !seen[event{Action: "run", Test: name}] || seen[event{Action: "fail", Test: name}] || seen[event{Action: "skip", Test: name}] {
			wrong = append(wrong, name)
		}
	}
	if !seen[event{Action: "pass"}] {
		wrong = append(wrong, "the package")
	}
	for e := range seen {
		ours := !slices.Contains(d.pass, e.Test) && !slices.Contains(d.run, e.Test)
		if e.Action == "run" && ours && !strings.Contains(e.Test, "/") {
			wrong = append(wrong, e.Test)
		}
	}
	return wrong, nil
}

// plain returns the text in the output of go test -json.
func plain(events []byte) string {
	var text strings.Builder
	for line := range bytes.Lines(events) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			e.Output = string(line)
		}
		text.WriteString(e.Output)
	}
	return text.String()
}

func TestDeclaredNoticesWhatIsWrong(t *testing.T) {
	var d declared
	err := d.parse("x_test.go", []byte(`package x_test
func TestA(t *testing.T) {}
func TestB(t *testing.T) {}
func (T) TestMethod() {}
func BenchmarkC(b *testing.B) {}
func Example_d() {
	fmt.Println()
	// Output:
}
func ExampleE() {} // has no output and is only compiled
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"TestA", "TestB", "Example_d"}; !slices.Equal(d.pass, want) || !slices.Equal(d.run, []string{"BenchmarkC"}) {
		t.Errorf("declared %v and %v", d.pass, d.run)
	}
	whole := []string{"run TestA", "pass TestA", "run TestB", "pass TestB", "run Example_d", "pass Example_d", "run BenchmarkC", "pass "}
	for _, c := range []struct {
		without, with string
		wrong         []string
	}{
		{"", "", nil},
		{"", "pass TestA/sub", nil},
		{"", "run TestA/sub", nil},
		{"", "run TestOurs", []string{"TestOurs"}},
		{"pass TestB", "", []string{"TestB"}},
		{"pass TestB", "skip TestB", []string{"TestB"}},
		{"pass TestA", "fail TestA", []string{"TestA"}},
		{"run TestA", "", []string{"TestA"}},
		{"pass TestA", "pass TestA/sub", []string{"TestA"}},
		{"pass Example_d", "", []string{"Example_d"}},
		{"run BenchmarkC", "", []string{"BenchmarkC"}},
		{"", "skip BenchmarkC", []string{"BenchmarkC"}},
		{"", "fail BenchmarkC", []string{"BenchmarkC"}},
		{"pass ", "fail ", []string{"the package"}},
	} {
		var events bytes.Buffer
		for _, line := range append(slices.Clone(whole), c.with) {
			if action, test, ok := strings.Cut(line, " "); ok && line != c.without {
				fmt.Fprintf(&events, `{"Time":"2000-01-01T00:00:00Z","Action":%q,"Test":%q,"Output":"x"}`+"\n", action, test)
			}
		}
		if got, err := d.wrong(&events); err != nil || !slices.Equal(got, c.wrong) {
			t.Errorf("without %q, with %q: wrong %v, %v; want %v", c.without, c.with, got, err, c.wrong)
		}
	}
	if got, err := d.wrong(strings.NewReader("")); err != nil || len(got) != 5 {
		t.Errorf("nothing ran: wrong %v, %v", got, err)
	}
	if _, err := d.wrong(strings.NewReader("no JSON")); err == nil {
		t.Error("what is not JSON is accepted")
	}
}

// plainWeighted is what both packages have.
type plainWeighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

// A twinCall is one Acquire of each.
type twinCall struct {
	n       int64
	cancel  context.CancelFunc
	results [2]outcome
	counted bool // its permits are in twins.held
}

// twins are a semaphore of ours and one of theirs to which the same is done.
type twins struct {
	pair  [2]plainWeighted
	start time.Time
	calls []*twinCall
	held  int64
}

func newTwins(limit int64) *twins {
	return &twins{pair: [2]plainWeighted{semaphore.NewWeighted(limit), xsync.NewWeighted(limit)}, start: time.Now()}
}

func (w *twins) acquire(n int64, deadline time.Duration) *twinCall {
	ctx, cancel := context.WithCancel(bg)
	if deadline != forever {
		ctx, cancel = context.WithTimeout(bg, deadline)
	}
	c := &twinCall{n: n, cancel: cancel}
	w.calls = append(w.calls, c)
	for i, s := range w.pair {
		go func() {
			err := s.Acquire(ctx, n)
			c.results[i].set(result{true, time.Since(w.start), err})
		}()
	}
	synctest.Wait()
	return c
}

func (w *twins) tryAcquire(n int64) (ours, theirs bool) {
	ours, theirs = w.pair[0].TryAcquire(n), w.pair[1].TryAcquire(n)
	if ours {
		w.held += n
	}
	return ours, theirs
}

func (w *twins) release(n int64) {
	w.held -= n
	w.pair[0].Release(n)
	w.pair[1].Release(n)
	synctest.Wait()
}

// differ returns how the outcomes differ, or "". Calls that have returned are
// counted as held.
func (w *twins) differ() string {
	synctest.Wait()
	for i, c := range w.calls {
		ours, theirs := c.results[0].get(), c.results[1].get()
		if ours != theirs {
			return fmt.Sprintf("call #%d, Acquire(%d): ours %v, theirs %v", i, c.n, ours, theirs)
		}
		if ours.over && ours.err == nil && !c.counted {
			c.counted = true
			w.held += c.n
		}
	}
	return ""
}

func (w *twins) end() {
	for _, c := range w.calls {
		c.cancel()
	}
}

// The same history gives the same outcomes, call by call and to the
// nanosecond. What differs on purpose is left out here and stands in the next
// test.
func TestSameHistoryAsXSync(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	outcomes := map[result]int{} // with at = 0: do the histories come to anything?
	for round := range 500 {
		synctest.Test(t, func(t *testing.T) {
			limit := random.Int64N(6)
			w := newTwins(limit)
			defer w.end()
			for range 60 {
				n := 1 + random.Int64N(max(1, limit))
				switch what := random.IntN(8); {
				case what < 3 && n <= limit:
					deadline := forever
					if random.IntN(3) == 0 { // no two at one instant, where either may be first
						deadline = time.Duration(random.IntN(5))*ms + time.Duration(len(w.calls))
					}
					w.acquire(n, deadline)
				case what == 3:
					if ours, theirs := w.tryAcquire(n); ours != theirs {
						t.Fatalf("round %d: TryAcquire(%d) of %d = %t, theirs %t", round, n, limit, ours, theirs)
					}
				case what == 4 && len(w.calls) > 0:
					w.calls[random.IntN(len(w.calls))].cancel()
				case what == 5 || what == 6:
					w.release(min(n, w.held))
				case what == 7:
					time.Sleep(time.Duration(random.IntN(3)) * ms)
				}
				if d := w.differ(); d != "" {
					t.Fatalf("round %d, limit %d: %s", round, limit, d)
				}
			}
			for _, c := range w.calls {
				r := c.results[0].get()
				outcomes[result{r.over, 0, r.err}]++
			}
		})
	}
	for _, r := range []result{{}, {over: true}, {over: true, err: context.Canceled}, {over: true, err: context.DeadlineExceeded}} {
		if outcomes[r] < 100 {
			t.Errorf("only %d calls ended like this: %v", outcomes[r], r)
		}
	}
}

// What a program notices that comes from x/sync.
func TestDifferencesFromXSync(t *testing.T) {
	const ours, theirs = 0, 1
	want := func(t *testing.T, c *twinCall, want [2]result) {
		t.Helper()
		synctest.Wait()
		if got := [2]result{c.results[ours].get(), c.results[theirs].get()}; got != want {
			t.Errorf("Acquire(%d): ours, theirs %v; want %v", c.n, got, want)
		}
	}
	for name, f := range map[string]func(t *testing.T, w *twins){
		"more than the limit fails at once instead of with the context": func(t *testing.T, w *twins) {
			c := w.acquire(3, ms)
			want(t, c, [2]result{ours: {true, 0, limits.ErrTooLarge}})
			time.Sleep(ms)
			want(t, c, [2]result{{true, 0, limits.ErrTooLarge}, {true, ms, context.DeadlineExceeded}})
		},
		"nothing is granted at once instead of in turn": func(t *testing.T, w *twins) {
			w.tryAcquire(2)
			w.acquire(1, forever)
			nothing := w.acquire(0, forever)
			want(t, nothing, [2]result{ours: {true, 0, nil}})
			if a, b := w.tryAcquire(0); !a || b {
				t.Errorf("TryAcquire(0): ours %t, theirs %t", a, b)
			}
			time.Sleep(ms)
			w.release(1)
			want(t, nothing, [2]result{{true, 0, nil}, {true, ms, nil}})
		},
		"releasing too much panics and changes nothing": func(t *testing.T, w *twins) {
			for _, s := range w.pair {
				mustPanic(t, "Release", func() { s.Release(1) })
			}
			if a, b := w.tryAcquire(3); a || !b {
				t.Errorf("TryAcquire(3) of 2: ours %t, theirs %t", a, b)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTwins(2)
				defer w.end()
				f(t, w)
			})
		})
	}
}
