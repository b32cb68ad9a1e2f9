package sched_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/explore/sched"
	"github.com/sluice-go/sluice/internal/explore/sched/atomic"
	"github.com/sluice-go/sluice/internal/explore/sched/sync"
	clock "github.com/sluice-go/sluice/internal/explore/sched/time"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// all is a search that partial-order reduction bounds.
var all = sched.Search{Preemptions: -1}

// Two goroutines that each perform two operations on one variable have 6 interleavings, and as
// they all depend on each other each of these is run.
func TestExplore_CountsInterleavings(t *testing.T) {
	order := map[string]bool{}
	r := sched.Explore(all, func(w *sched.World) {
		var v atomic.Int64
		var seen strings.Builder
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				v.Add(1)
				seen.WriteString(name)
				v.Add(1)
				seen.WriteString(name)
			})
		}
		w.After(func() { order[seen.String()] = true })
	})
	if !r.Complete || len(order) != 6 || r.Executions-r.Pruned != 6 {
		t.Errorf("%v, %v; want 6 executions", r, order)
	}
}

// If each goroutine has its own variable, one execution is enough.
func TestExplore_LeavesOutWhatCommutes(t *testing.T) {
	r := sched.Explore(all, func(w *sched.World) {
		for _, name := range []string{"a", "b", "c"} {
			var v atomic.Int64
			w.Go(name, func() { v.Add(1); v.Add(1) })
		}
	})
	if !r.Complete || r.Executions != 1 {
		t.Errorf("%v; want 1", r)
	}
}

// The two ways to search agree on what can happen: the sums of three goroutines that add to a variable
// by a load and a store.
func TestExplore_TheSearchesAgree(t *testing.T) {
	sums := func(s sched.Search) map[int64]bool {
		got := map[int64]bool{}
		r := sched.Explore(s, func(w *sched.World) {
			var v atomic.Int64
			for _, name := range []string{"a", "b", "c"} {
				w.Go(name, func() {
					v.Store(v.Load() + 1)
				})
			}
			w.After(func() { got[v.Load()] = true })
		})
		if !r.Complete || r.Failure != "" {
			t.Errorf("%v, %s", r, r.Failure)
		}
		return got
	}
	reduced, bounded := sums(all), sums(sched.Search{Preemptions: 6})
	for n := int64(1); n <= 3; n++ {
		if !reduced[n] || !bounded[n] {
			t.Errorf("%d: reduced %v, bounded %v", n, reduced[n], bounded[n])
		}
	}
	if len(reduced) != 3 || len(bounded) != 3 {
		t.Errorf("reduced %v, bounded %v", reduced, bounded)
	}
	if one := sums(sched.Search{Preemptions: 0}); len(one) != 1 || !one[3] {
		t.Errorf("without preemptions %v; want 3", one)
	}
}

func lockBoth(first, second *sync.Mutex) {
	first.Lock()
	defer first.Unlock()
	second.Lock()
	defer second.Unlock()
}

// Bugs of the textbook are found, with either search.
func TestExplore_Finds(t *testing.T) {
	for _, c := range []struct {
		name, want string
		scene      func(w *sched.World)
	}{
		{"deadlock", "for ever asleep: a, b", func(w *sched.World) {
			var x, y sync.Mutex
			w.Go("a", func() { lockBoth(&x, &y) })
			w.Go("b", func() { lockBoth(&y, &x) })
		}},
		{"lost update", "1", func(w *sched.World) {
			var v atomic.Int64
			for range 2 {
				w.Go("add", func() { v.Store(v.Load() + 1) })
			}
			w.After(func() {
				if v.Load() != 2 {
					w.Fail("%d", v.Load())
				}
			})
		}},
		{"lost wake-up", "for ever asleep: waits", func(w *sched.World) {
			var ready atomic.Bool
			var asleep atomic.Bool
			wake := make(chan struct{}, 1)
			w.Go("waits", func() {
				if !ready.Load() {
					asleep.Store(true)
					sched.Recv(wake)
				}
			})
			w.Go("wakes", func() {
				if ready.Store(true); asleep.Load() {
					sched.Send(wake, struct{}{})
				}
			})
		}},
		{"a select that takes the other", "late", func(w *sched.World) {
			a, b := make(chan int, 1), make(chan int, 1)
			w.Go("sends", func() { sched.Send(a, 1); sched.Send(b, 2) })
			w.Go("selects", func() {
				if sched.Select(false, sched.CanRecv(a), sched.CanRecv(b)) == 1 {
					w.Fail("late")
				}
			})
		}},
		{"a panic", "panics panicked: oops", func(w *sched.World) {
			w.Go("panics", func() { panic("oops") })
		}},
	} {
		for _, s := range []sched.Search{all, {Preemptions: 2}} {
			r := sched.Explore(s, c.scene)
			if got, _, _ := strings.Cut(r.Failure, "\n"); got != c.want {
				t.Errorf("%s: %q, want %q; %v", c.name, got, c.want, r)
			}
			if len(r.Trace) == 0 && c.name != "a panic" {
				t.Errorf("%s: no trace", c.name)
			}
		}
	}
}

// Time passes when no goroutine can go on, and then by as much as the next timer needs.
func TestExplore_Time(t *testing.T) {
	r := sched.Explore(all, func(w *sched.World) {
		began := clock.Now()
		var order []string
		for _, d := range []time.Duration{2 * time.Hour, time.Hour} {
			w.Go(d.String(), func() {
				sched.Recv(clock.NewTimer(d).C)
				if got := clock.Since(began); got != d {
					w.Fail("%v after %v", got, d)
				}
				order = append(order, d.String())
			})
		}
		stopped := clock.AfterFunc(time.Minute, func() { w.Fail("a timer that was stopped") })
		if !stopped.Stop() {
			w.Fail("Stop reports false")
		}
		w.After(func() {
			if strings.Join(order, " ") != "1h0m0s 2h0m0s" {
				w.Fail("%v", order)
			}
		})
	})
	if !r.Complete || r.Failure != "" {
		t.Errorf("%v, %s", r, r.Failure)
	}
}

// Random programs of two or three goroutines: what can be observed is the same with reduction as
// without, although fewer executions are run.
func TestExplore_ReductionLosesNothing(t *testing.T) {
	built.SkipRaced(t)
	less, programs := 0, uint64(15)
	if os.Getenv("SLUICE_FULL") != "" && !built.Raced() { // the race detector keeps 20 GB for the goroutines of so many
		programs = 60
	}
	for seed := range programs {
		r := rand.New(rand.NewPCG(seed, 1))
		threads := 2 + r.IntN(2)
		program := make([][]int, threads)
		for i := range program {
			for range 6 / threads {
				program[i] = append(program[i], r.IntN(8))
			}
		}
		observe := func(s sched.Search) (map[string]bool, int) {
			seen := map[string]bool{}
			result := sched.Explore(s, func(w *sched.World) { runProgram(w, program, seen) })
			if !result.Complete {
				t.Fatalf("%v: %s", program, result.Failure)
			}
			return seen, result.Executions
		}
		reduced, few := observe(all)
		full, many := observe(sched.Search{Preemptions: 20})
		if !maps.Equal(reduced, full) {
			t.Errorf("%v: %v with reduction, %v without", program, reduced, full)
		}
		if few < many {
			less++
		}
	}
	if less < int(programs)*2/3 {
		t.Errorf("only %d programs took fewer executions", less)
	}
}

// runProgram starts the goroutines of a program, whose operations are numbers, and records in seen
// what each of them has observed.
func runProgram(w *sched.World, program [][]int, seen map[string]bool) {
	var x, y atomic.Int64
	var mu sync.Mutex
	ch, other := make(chan int, 1), make(chan int, 1)
	got := make([]string, len(program))
	for i, ops := range program {
		w.Go(fmt.Sprint(i), func() {
			for _, op := range ops {
				v := int64(-1)
				switch op {
				case 0:
					v = x.Load()
				case 1:
					x.Store(int64(i) + 10)
				case 2:
					v = y.Add(1)
				case 3:
					if y.CompareAndSwap(1, 7) {
						v = 1
					}
				case 4:
					mu.Lock()
					v = x.Load()
					x.Store(v + 1)
					mu.Unlock()
				case 5:
					if sched.Select(true, sched.CanSend(ch)) == 0 {
						ch <- i
						v = 5
					}
				case 6:
					switch sched.Select(true, sched.CanRecv(ch), sched.CanRecv(other)) {
					case 0:
						v = int64(<-ch)
					case 1:
						v = 100 + int64(<-other)
					}
				case 7:
					if sched.Select(true, sched.CanSend(other)) == 0 {
						other <- i
					}
				}
				got[i] += fmt.Sprint(v, " ")
			}
		})
	}
	w.After(func() { seen[fmt.Sprint(got, x.Load(), y.Load(), len(ch), len(other))] = true })
}
