package observe_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/observe"
)

func TestByName_IsBounded(t *testing.T) {
	for _, c := range []struct{ most, want int }{{0, 100}, {1, 1}, {7, 7}} {
		made := map[string]int{}
		table := observe.ByName(c.most, func(name string) *string { made[name]++; return &name })
		if len(made) != 0 {
			t.Error("made before it was asked for")
		}
		for range 2 {
			for i := range c.want + 5 {
				want := fmt.Sprint(i)
				if i >= c.want {
					want = "other"
				}
				if got := *table(fmt.Sprint(i)); got != want {
					t.Errorf("most %d: %d is called %s", c.most, i, got)
				}
			}
		}
		if len(made) != c.want+1 {
			t.Errorf("most %d: made %v", c.most, made)
		}
		for name, n := range made {
			if n != 1 {
				t.Errorf("%s was made %d times", name, n)
			}
		}
	}
}

// A gate that is called like the rest is counted with it, and takes no place.
func TestByName_Other(t *testing.T) {
	table := observe.ByName(1, func(name string) *string { return &name })
	other := table("other")
	if *table("") != "" || table("a") != other {
		t.Error("there is no room for the first name")
	}
}

func TestByName_Misuse(t *testing.T) {
	for want, f := range map[string]func(){
		"observe: ByName: max < 0":     func() { observe.ByName(-1, func(string) int { return 0 }) },
		"observe: ByName: newT is nil": func() { observe.ByName[int](1, nil) },
	} {
		func() {
			defer func() {
				if r := recover(); r != want {
					t.Errorf("recovered %v, want %s", r, want)
				}
			}()
			f()
		}()
	}
}

func TestByName_Stress(t *testing.T) {
	const goroutines, names, most = 8, 200, 50
	var made atomic.Int64
	table := observe.ByName(most, func(string) *atomic.Int64 { made.Add(1); return new(atomic.Int64) })
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range names {
				table(fmt.Sprint(i)).Add(1)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != most+1 {
		t.Errorf("made %d", n)
	}
	var sum int64
	seen := map[*atomic.Int64]bool{}
	for i := range names {
		if c := table(fmt.Sprint(i)); !seen[c] {
			seen[c] = true
			sum += c.Load()
		}
	}
	if sum != goroutines*names || len(seen) != most+1 {
		t.Errorf("counted %d in %d", sum, len(seen))
	}
}

// Several come at the same time for a name that is new: it is made for the first of them.
func TestByName_MakesOnce(t *testing.T) {
	for range 200 {
		var made atomic.Int64
		table := observe.ByName(1, func(string) int64 {
			runtime.Gosched() // others come meanwhile
			return made.Add(1)
		})
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				<-start
				if n := table("a"); n != 1 {
					t.Errorf("got the one that was made as %d", n)
				}
			})
		}
		close(start)
		wg.Wait()
	}
}
