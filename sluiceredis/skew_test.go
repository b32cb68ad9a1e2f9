package sluiceredis

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// # What if the clock of a machine is wrong?
//
// Nothing changes: no script is told the time, and what this package reads of the
// clock of its machine are distances between two readings. The clock of a process
// cannot be set, but in a bubble of testing/synctest it is the year 2000: a
// machine in there is decades behind one outside, where tests of other limiters
// make it 70 s.

// A machine of a test: its clock is that of the goroutine that calls it.
type machine struct {
	pacer *Pacer
	sem   *Semaphore
	takes map[string]func(n int64) (limits.Result, error)
}

func newMachine(t *testing.T, b *backend) *machine {
	s := b.store(t)
	buckets := newLeaky(t, s, "skew", limits.Rate{Burst: 8, Count: 1, Per: time.Hour})
	log, fixed := newLog(t, s, "skew", 8, time.Hour), newFixed(t, s, "skew", FixedConfig{Limit: 8, Window: time.Hour})
	aligned := newFixed(t, s, "aligned", FixedConfig{Limit: 8, Window: 100 * 24 * time.Hour, Aligned: true})
	return &machine{
		pacer: newPacer(t, s, "skew", 10, sec, PacerConfig{}),
		sem:   newSemaphore(t, s, "skew", 2, SemaphoreConfig{}),
		takes: map[string]func(n int64) (limits.Result, error){
			"leaky":   func(n int64) (limits.Result, error) { return buckets.Take(bg, "k", n) },
			"log":     func(n int64) (limits.Result, error) { return log.Take(bg, "k", n) },
			"fixed":   func(n int64) (limits.Result, error) { return fixed.Take(bg, "k", n) },
			"aligned": func(n int64) (limits.Result, error) { return aligned.Take(bg, "k", n) },
		},
	}
}

// Two machines take turns, one of them in the year 2000, and each answer is what
// one machine alone would have got.
func TestClockOfAMachineDoesNotMatter(t *testing.T) {
	b := onRedis(t)
	// Whoever is here does what he is asked to from there, by the clock of here.
	asked, done := make(chan func(m *machine)), make(chan bool)
	defer close(asked)
	go func() {
		m := newMachine(t, b)
		for do := range asked {
			if time.Now().Year() < 2020 {
				t.Error("it is not the clock of here")
			}
			do(m)
			done <- true
		}
	}()
	here := func(do func(m *machine)) { asked <- do; <-done }

	synctest.Test(t, func(t *testing.T) {
		if year := time.Now().UTC().Year(); year != 2000 {
			t.Fatalf("the year is %d", year)
		}
		there := newBackend(t, redistest.Shared(t).Addr)
		there.prefix = b.prefix
		m := newMachine(t, there)
		for name := range m.takes {
			left := int64(8)
			for i := range 5 {
				ask := func(who string, m *machine) {
					res, err := m.takes[name](2)
					fits := left >= 2
					if fits {
						left -= 2
					}
					if err != nil || res.Allowed() != fits || res.Remaining != left {
						t.Errorf("%s, call %d of %s: %+v, %v; %d were to be left", name, i, who, res, err, left)
					}
				}
				ask("there", m)
				here(func(m *machine) { ask("here", m) })
			}
		}

		// Slots are one interval apart, and as far ahead for the one as for the
		// other.
		var slots []int64
		reserve := func(m *machine) {
			r, err := m.pacer.Reserve(bg, 1, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			if d, most := r.Delay(), time.Duration(len(slots))*100*ms; d > most {
				t.Errorf("slot %d is %v ahead, at most %v can be", len(slots), d, most)
			}
			slots = append(slots, r.slot)
		}
		for range 3 {
			reserve(m)
			here(reserve)
		}
		for i := 1; i < len(slots); i++ {
			if slots[i]-slots[i-1] != int64(100*ms) {
				t.Errorf("slots %d ns apart", slots[i]-slots[i-1])
			}
		}

		// A pause is told as a time, which is one of the machine that tells it.
		if err := m.pacer.PauseUntil(bg, time.Now().Add(30*sec)); err != nil {
			t.Fatal(err)
		}
		here(func(m *machine) {
			r, err := m.pacer.Reserve(bg, 1, time.Minute)
			if err != nil {
				t.Error(err)
			} else if d := r.Delay(); d > 30*sec || d < 20*sec {
				t.Errorf("a pause of 30 s is one of %v", d)
			}
		})

		// Leases count together, and tokens rise.
		var tokens []int64
		lend := func(m *machine) {
			l, err := m.sem.acquire(bg, 1, 0)
			if err != nil {
				t.Error(err)
				return
			}
			tokens = append(tokens, l.Token())
			if len(tokens)%2 == 0 {
				if _, err := m.sem.acquire(bg, 1, 0); err != limits.ErrTimeout {
					t.Errorf("two are lent, and another: %v", err)
				}
			}
			t.Cleanup(l.Release)
		}
		here(lend)
		lend(m)
		if len(tokens) == 2 && tokens[1] <= tokens[0] {
			t.Errorf("token %d after %d", tokens[1], tokens[0])
		}
	})
}
