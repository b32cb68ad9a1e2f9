// Package results reads what the measurements wrote, for the tables and the
// plots made of it.
package results

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Key names one benchmark: BenchmarkKeyedGrow/1000/sluice-2 is the work
// KeyedGrow, the case 1000 and the library sluice on 2 CPUs.
type Key struct {
	Work, Case, Library string
	CPUs                int
}

// Name returns the work with its case.
func (k Key) Name() string {
	if k.Case == "" {
		return k.Work
	}
	return k.Work + "/" + k.Case
}

// Speed is the output of benchmarks that ran one or several times.
type Speed struct {
	Head []string // goos, goarch, cpu and the like, each once
	Runs int

	order  []Key
	values map[Key]map[string][]float64 // by unit, one for each run
}

// ReadSpeed reads the output of go test -bench, or of several in a row.
func ReadSpeed(r io.Reader) (*Speed, error) {
	s := &Speed{values: make(map[Key]map[string][]float64)}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		// Only here: if one fails with a later one of the -cpu list, go test
		// ends with 0 all the same.
		case strings.Contains(line, "--- FAIL"):
			return nil, fmt.Errorf("a benchmark failed: %s", line)
		case strings.HasPrefix(line, "Benchmark") && len(fields) >= 4:
			if err := s.add(fields); err != nil {
				return nil, err
			}
		case strings.HasPrefix(line, "run: "):
			s.Runs++
		case len(fields) > 1 && strings.HasSuffix(fields[0], ":") && !strings.HasPrefix(line, " "):
			if !slices.Contains(s.Head, line) {
				s.Head = append(s.Head, line)
			}
		}
	}
	return s, lines.Err()
}

func (s *Speed) add(fields []string) error {
	k := keyOf(fields[0])
	if s.values[k] == nil {
		s.values[k] = make(map[string][]float64)
		s.order = append(s.order, k)
	}
	for i := 2; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", fields[0], err)
		}
		s.values[k][fields[i+1]] = append(s.values[k][fields[i+1]], v)
	}
	return nil
}

func keyOf(name string) Key {
	k := Key{CPUs: 1}
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil {
			name, k.CPUs = name[:i], n
		}
	}
	parts := strings.Split(strings.TrimPrefix(name, "Benchmark"), "/")
	k.Work = parts[0]
	if n := len(parts); n > 1 {
		k.Case, k.Library = strings.Join(parts[1:n-1], "/"), parts[n-1]
	}
	return k
}

// Keys returns all benchmarks in the order in which they ran.
func (s *Speed) Keys() []Key { return s.order }

// Values returns what k measured in unit, one value for each run.
func (s *Speed) Values(k Key, unit string) []float64 { return s.values[k][unit] }

// Median returns the median of what k measured in unit; ok is false if it did
// not.
func (s *Speed) Median(k Key, unit string) (v float64, ok bool) {
	values := s.Values(k, unit)
	if len(values) == 0 {
		return 0, false
	}
	return Median(values), true
}

// Allocs returns the median of the allocations per operation of k, with a
// fraction where the benchmark counted them itself.
func (s *Speed) Allocs(k Key) (float64, bool) {
	if v, ok := s.Median(k, "mallocs/op"); ok {
		return v, true
	}
	return s.Median(k, "allocs/op")
}

// Ratio returns the median over the runs of k's time ÷ that of other in the
// same run, and the quartiles. Dividing before taking the median takes out
// what slowed down a whole run.
func (s *Speed) Ratio(k Key, other string) (low, mid, high float64, ok bool) {
	o := k
	o.Library = other
	a, b := s.Values(k, "ns/op"), s.Values(o, "ns/op")
	if len(a) == 0 || len(a) != len(b) {
		return 0, 0, 0, false
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return Quantile(ratios, 0.25), Median(ratios), Quantile(ratios, 0.75), true
}

// Median returns the middle of values, or the mean of the two in the middle; 0
// if there are none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the q-th quantile of values, 0 ≤ q ≤ 1, interpolated
// between neighbors; 0 if there are none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
