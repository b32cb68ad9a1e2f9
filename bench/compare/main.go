// Compare runs the benchmarks of the bench module and says how Sluice does
// next to the floor and next to the others, and which goals it reaches.
//
//	go run ./bench/compare                     run, and print the tables
//	go run ./bench/compare -o speed.txt        … and keep the raw output
//	go run ./bench/compare -read speed.txt     only print the tables
//
// The runs are interleaved: the whole set runs once, then once more, and so on,
// each time in a new process, because a machine is not the same from one minute
// to the next, and because a process that was laid out luckily stays lucky. A
// ratio is the median, over the runs, of the ratio within one run. What is slow
// to set up and steady (Herd and the …Grow benchmarks) runs fewer times.
//
// The raw output is that of go test, so benchstat can read it as well.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
)

const pkg = "github.com/sluice-go/sluice/bench"

type options struct {
	runs, growRuns    int
	bench, time, cpus string
	prefix, out, read string
	into              string
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 10, "how often the set of all works runs")
	flag.IntVar(&o.growRuns, "growruns", 3, "how often the herd runs, and what shows how a cost grows")
	flag.StringVar(&o.bench, "bench", "", "run only what matches this, -runs times")
	flag.StringVar(&o.time, "benchtime", "50ms", "for each benchmark, as go test -benchtime")
	flag.StringVar(&o.cpus, "cpu", "1,2", "as go test -cpu")
	flag.StringVar(&o.prefix, "exec", "", "a command that runs the test binary, such as \"taskset -c 2,3\"")
	flag.StringVar(&o.out, "o", "", "write the raw output to this file")
	flag.StringVar(&o.read, "read", "", "do not run, read the raw output from this file")
	flag.StringVar(&o.into, "into", "", "put the tables into this Markdown file, between its marks for speed")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(o options, w io.Writer) error {
	raw, err := measure(o)
	if err != nil {
		return err
	}
	speed, err := results.ReadSpeed(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if len(speed.Keys()) == 0 {
		return errors.New("nothing was measured")
	}
	text := report(speed)
	if _, err := io.WriteString(w, text); err != nil || o.into == "" {
		return err
	}
	return results.Splice(o.into, "speed", text)
}

// A set is some benchmarks and how often they run.
type set struct {
	bench string
	runs  int
}

func (o *options) sets() []set {
	if o.bench != "" {
		return []set{{o.bench, o.runs}}
	}
	return []set{
		{"^Benchmark(PacerTry|LeakyTake|PacerReserve|GateDo|GateParent)$", o.runs},
		{"^BenchmarkSemaphore(Pair|Contended|ContendedCancel|Mixed)$", o.runs},
		{"^BenchmarkKeyedTake$", o.runs},
		{"^Benchmark(KeyedLong|GateObserver|Parse|TransportOverhead|TransportBare)$", o.growRuns},
		{"^BenchmarkHerd$", o.growRuns},
		{"^Benchmark.*Grow(Cancel)?$/^[0-9]{1,6}$", o.growRuns},
		{"^Benchmark.*Grow(Cancel)?$/^[0-9]{7}$", 1}, // a million that wait take a while
	}
}

// measure returns the raw output of all runs.
func measure(o options) ([]byte, error) {
	if o.read != "" {
		return os.ReadFile(o.read)
	}
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "bench.test")
	build := exec.Command("go", "test", "-c", "-o", binary, pkg)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go test -c: %w", err)
	}

	var kept bytes.Buffer
	raw := io.Writer(&kept)
	if o.out != "" { // as it comes, so that a run that is ended is not lost
		file, err := os.Create(o.out)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		raw = io.MultiWriter(&kept, file)
	}
	fmt.Fprintf(raw, "machine: %s\nmeasured: %s\n", machine.Describe(), time.Now().UTC().Format("2006-01-02 15:04 MST"))
	sets := o.sets()
	began := time.Now()
	for i := 0; ; i++ {
		any := false
		for _, s := range sets {
			if i >= s.runs {
				continue
			}
			any = true
			fmt.Fprintf(os.Stderr, "%4.0f s: run %d of %s\n", time.Since(began).Seconds(), i+1, s.bench)
			fmt.Fprintf(raw, "run: %d of %s\n", i+1, s.bench)
			if err := once(o, binary, s.bench, raw); err != nil {
				return nil, err
			}
		}
		if !any {
			break
		}
	}
	return kept.Bytes(), nil
}

func once(o options, binary, bench string, raw io.Writer) error {
	command := append(strings.Fields(o.prefix), binary,
		"-test.run=^$", "-test.bench="+bench, "-test.benchtime="+o.time, "-test.cpu="+o.cpus)
	c := exec.Command(command[0], command[1:]...)
	c.Dir = filepath.Dir(binary)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		os.Stderr.Write(out.Bytes())
		return fmt.Errorf("%s: %w", bench, err)
	}
	_, err := raw.Write(out.Bytes())
	return err
}
