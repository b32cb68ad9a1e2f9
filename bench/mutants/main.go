// Mutants counts how many small errors in the rule that learns a server's limit its own tests notice. Each mutant is
// internal/adaptive with one change:
//
//   - an operator becomes its contrary: + and -, * and /, && and ||, == and !=, > and >= (<= and <). Those that are
//     < or <= stay: most of them are guards of a division or of a loop;
//   - a number becomes a quarter larger, a whole one at least the next: a literal, or a named constant where it is used.
//
// Lengths of arrays, enumerations, 0, and the sign of an infinity have no mutants.
//
//	go run ./bench/mutants                       # all: 2,100 mutants, an hour
//	go run ./bench/mutants -n 60 -seed 1         # 60 of each kind, four minutes
//	go run ./bench/mutants -operators 75 -numbers 50   # and fail if fewer per cent are killed
//	go run ./bench/mutants pace.go slot.go       # of these files
//
// The tests are those of the package itself that look at what it does: not those of its comments. They run in the
// order of the time that they take, in turns, and -turns 2 leaves out the slowest, which take most of it. A mutant
// that never ends is killed.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	// An interrupt ends it as well, without leaving files behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

const (
	// noBehavior are tests of how the package is written.
	noBehavior = "TestDoc_"
	// Some mutants never end. So tests may take leastTime seconds of the processor, and mostTimes as many as without a
	// mutant: on a busy machine the clock says little. By it, they may take asleep.
	leastTime = 3
	mostTimes = 20
	asleep    = 20 * time.Minute
)

// turns are the shares of the time of all tests that the quickest of them take, and run first: most mutants are killed by
// tests that take no time, and whole controllers that run for an hour need not be asked.
var turns = [...]float64{.02, .15, 1}

// A hunt is what is run.
type hunt struct {
	folder string // of the package
	temp   string
	most   int // turns that are run
	at     int // so many at a time
	turns  []turn
	all    []mutant
}

// A turn is tests that run together, and how many seconds they take.
type turn struct {
	tests []string
	took  float64
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	h := hunt{}
	n := flags.Int("n", 0, "so many `mutants` of each kind, drawn at random; 0: all")
	seed := flags.Uint64("seed", 1, "of the draw")
	ids := flags.String("ids", "", "only the mutants with these `numbers`, which the table of the survivors has")
	flags.IntVar(&h.most, "turns", len(turns), "run only the tests of so many `turns`: 1 has those that take no time, 2 all but the slowest")
	flags.IntVar(&h.at, "parallel", 2, "so many `mutants` at a time")
	flags.StringVar(&h.folder, "package", "", "`folder` of another package")
	goals := map[string]*float64{
		operators: flags.Float64(operators, 0, "fail if fewer `per cent` of the operators are killed"),
		numbers:   flags.Float64(numbers, 0, "fail if fewer `per cent` of the numbers are killed"),
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if h.folder == "" {
		root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/sluice-go/sluice").Output()
		if err != nil {
			return fmt.Errorf("where is the module? %w", err)
		}
		h.folder = filepath.Join(strings.TrimSpace(string(root)), "internal", "adaptive")
	}
	p, err := load(h.folder)
	if err != nil {
		return err
	}
	for _, file := range flags.Args() {
		if !slices.ContainsFunc(p.sources, func(s *source) bool { return s.name == file && !s.test }) {
			return fmt.Errorf("no file %s in %s", file, h.folder)
		}
	}
	h.all = sample(p.mutants, *n, *seed, func(m mutant) bool {
		return (flags.NArg() == 0 || slices.Contains(flags.Args(), m.file)) &&
			(*ids == "" || slices.Contains(strings.Split(*ids, ","), fmt.Sprint(m.id)))
	})
	if h.temp, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(h.temp)
	binary, err := h.build(p)
	if err != nil {
		return err
	}
	if err := h.order(ctx, binary); err != nil {
		return err
	}
	killed := h.hunt(ctx, binary)
	if err := ctx.Err(); err != nil {
		return err
	}
	report(out, h.all, killed)
	for _, kind := range []string{operators, numbers} {
		if share, made := share(h.all, killed, kind); made > 0 && share < *goals[kind] {
			err = fmt.Errorf("%.1f %% of the %s are killed, and %g %% is the goal", share, kind, *goals[kind])
		}
	}
	return err
}

// sample returns n mutants of each kind that are meant, all if n is 0, in their order.
func sample(all []mutant, n int, seed uint64, meant func(mutant) bool) (some []mutant) {
	random := rand.New(rand.NewPCG(seed, 0))
	left := map[string]int{operators: n, numbers: n}
	for _, i := range random.Perm(len(all)) {
		if m := all[i]; meant(m) && (n == 0 || left[m.kind] > 0) {
			left[m.kind]--
			some = append(some, m)
		}
	}
	slices.SortFunc(some, func(a, b mutant) int {
		return strings.Compare(fmt.Sprintf("%s %6d %6d", a.file, a.line, a.id), fmt.Sprintf("%s %6d %6d", b.file, b.line, b.id))
	})
	return some
}

// build writes the program where only the compiler sees it, and returns its tests.
func (h *hunt) build(p *program) (string, error) {
	replace := make(map[string]string)
	folder, err := filepath.Abs(h.folder)
	if err != nil {
		return "", err
	}
	write := func(name, text string) error {
		replace[filepath.Join(folder, name)] = filepath.Join(h.temp, name)
		return os.WriteFile(filepath.Join(h.temp, name), []byte(text), 0o600)
	}
	for _, s := range p.sources {
		if err := write(s.name, s.render(0, len(s.text))); err != nil {
			return "", err
		}
	}
	if err := write(chooserName, p.chooser()); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, binary := filepath.Join(h.temp, "overlay.json"), filepath.Join(h.temp, "tests")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	c := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".")
	c.Dir = h.folder
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c, err, text)
	}
	return binary, nil
}

// hunt reports which mutants are killed.
func (h *hunt) hunt(ctx context.Context, binary string) []bool {
	killed := make([]bool, len(h.all))
	next := make(chan int)
	var hunters sync.WaitGroup
	for range h.at {
		hunters.Go(func() {
			for i := range next {
				killed[i] = ctx.Err() == nil && h.kills(ctx, binary, h.all[i])
			}
		})
	}
	for i := range h.all {
		next <- i
	}
	close(next)
	hunters.Wait()
	return killed
}

// order runs all tests without a mutant, and orders them.
func (h *hunt) order(ctx context.Context, binary string) error {
	text, err := h.test(ctx, binary, mutant{}, 10*60, "-test.v", "-test.skip", "^"+noBehavior)
	if err != nil {
		return fmt.Errorf("the tests fail without a mutant: %w\n%s", err, text)
	}
	h.turns = inTurns(text)
	h.turns = h.turns[:max(1, min(h.most, len(h.turns)))]
	return nil
}

// inTurns returns the tests of what go test -v prints, see turns.
func inTurns(text string) []turn {
	type test struct {
		name string
		took float64
	}
	var all []test
	sum := 0.
	for line := range strings.Lines(text) {
		var t test
		if n, _ := fmt.Sscanf(line, "--- PASS: %s (%fs)", &t.name, &t.took); n == 2 {
			all = append(all, t)
			sum += t.took
		}
	}
	slices.SortStableFunc(all, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	parts := make([]turn, len(turns))
	so, i := 0., 0
	for _, t := range all {
		for so += t.took; so > turns[i]*sum && i < len(turns)-1; {
			i++
		}
		parts[i].tests = append(parts[i].tests, t.name)
		parts[i].took += t.took
	}
	return parts
}

// kills reports whether the tests fail with a mutant.
func (h *hunt) kills(ctx context.Context, binary string, m mutant) bool {
	for _, t := range h.turns {
		if len(t.tests) == 0 {
			continue
		}
		most := leastTime + int(mostTimes*t.took)
		if _, err := h.test(ctx, binary, m, most, "-test.failfast", "-test.run", "^("+strings.Join(t.tests, "|")+")$"); err != nil {
			return true
		}
	}
	return false
}

// test runs tests with a mutant, which may take so many seconds of the processor.
func (h *hunt) test(ctx context.Context, binary string, m mutant, most int, args ...string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, asleep)
	defer cancel()
	limited := fmt.Sprintf(`ulimit -t %d && exec "$0" "$@"`, most)
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, binary}, args...)...)
	c.Dir, c.Env = h.folder, append(os.Environ(), fmt.Sprintf("MUTANT=%d", m.id))
	out, err := c.CombinedOutput()
	return string(out), err
}

// share returns how many per cent of a kind are killed.
func share(all []mutant, killed []bool, kind string) (percent float64, made int) {
	dead := 0
	for i, m := range all {
		if m.kind == kind {
			made++
			if killed[i] {
				dead++
			}
		}
	}
	return 100 * float64(dead) / float64(max(1, made)), made
}

// report prints a table of the files, and the survivors.
func report(out io.Writer, all []mutant, killed []bool) {
	fmt.Fprintf(out, "| file | %s | killed | %s | killed |\n|---|--:|--:|--:|--:|\n", operators, numbers)
	row := func(name string, of func(mutant) bool) {
		var some []mutant
		var dead []bool
		for i, m := range all {
			if of(m) {
				some, dead = append(some, m), append(dead, killed[i])
			}
		}
		fmt.Fprintf(out, "| %s |", name)
		for _, kind := range []string{operators, numbers} {
			percent, made := share(some, dead, kind)
			fmt.Fprintf(out, " %d | %.0f %% |", made, percent)
		}
		fmt.Fprintln(out)
	}
	before := ""
	for _, m := range all {
		if m.file != before {
			row(m.file, func(other mutant) bool { return other.file == m.file })
			before = m.file
		}
	}
	row("all", func(mutant) bool { return true })
	fmt.Fprintln(out)
	for i, m := range all {
		if !killed[i] {
			fmt.Fprintf(out, "%s:%d: %s becomes %s (%d)\n", m.file, m.line, m.was, m.is, m.id)
		}
	}
}
