package schedule

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/limits"
)

// guavaTrace is one recording of a Guava RateLimiter.
type guavaTrace struct {
	Kind             string
	PermitsPerSecond float64 `json:"permits_per_second"`
	MaxBurstSeconds  float64 `json:"max_burst_seconds"`
	WarmupUS         int64   `json:"warmup_us"`
	ColdFactor       float64 `json:"cold_factor"`
	Ops              []guavaOp
}

type guavaOp struct {
	Op               string
	AtUS             int64 `json:"at_us"`
	N                int64
	TimeoutUS        int64   `json:"timeout_us"`
	OK               *bool   `json:"ok"`
	SleptUS          *int64  `json:"slept_us"`
	WaitUS           *int64  `json:"wait_us"`
	ByUS             int64   `json:"by_us"`
	PermitsPerSecond float64 `json:"permits_per_second"`
}

// rational returns rate per second as a count per period.
func rational(rate float64) (count int64, per time.Duration) {
	for per = time.Second; per <= 1000*time.Second; per *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if x := rate * (per * k).Seconds(); math.Abs(x-math.Round(x)) < 1e-9 && x >= 1 {
				return int64(math.Round(x)), per * k
			}
		}
	}
	panic(fmt.Sprintf("no fraction for %v/s", rate))
}

// replay returns the first disagreement of the trace with a schedule that is
// told the recorded times, and how many decisions lay so close to their
// boundary that they were compared with the boundary instead.
//
// Guava counts in floating-point microseconds and truncates every wait, so
// after k operations the two may differ by k µs and one.
func (g *guavaTrace) replay() (close int, err error) {
	count, per := rational(g.PermitsPerSecond)
	s, err := New(Config{Rate: limits.Rate{Count: count, Per: per}})
	if err != nil {
		return 0, err
	}
	// Guava's burst is a time, and need not be whole calls.
	s.tau = time.Duration(g.MaxBurstSeconds * float64(time.Second))
	if g.WarmupUS > 0 {
		s.warm = newWarmUp(time.Duration(g.WarmupUS)*time.Microsecond, g.ColdFactor, exactInterval(s.rate))
	}
	s.noteInterval()
	for i, op := range g.Ops {
		now := time.Duration(op.AtUS) * time.Microsecond
		tolerance := time.Duration(1+i) * time.Microsecond
		wait := s.Wait(now, 0)
		take := func(recorded *int64) error {
			if recorded == nil {
				return fmt.Errorf("op %d %s: no wait was recorded", i, op.Op)
			}
			if d := wait - time.Duration(*recorded)*time.Microsecond; d.Abs() > tolerance {
				return fmt.Errorf("op %d %s(%d) at %v: wait %v, Guava's %d µs", i, op.Op, op.N, now, wait, *recorded)
			}
			if rest := s.Admit(now+wait, now+wait, op.N); rest != 0 {
				return fmt.Errorf("op %d %s(%d): another %v at its slot", i, op.Op, op.N, rest)
			}
			return nil
		}
		switch op.Op {
		case "acquire":
			err = take(op.SleptUS)
		case "reserve":
			err = take(op.WaitUS)
		case "try_acquire":
			timeout := time.Duration(op.TimeoutUS) * time.Microsecond
			ok := wait <= timeout
			switch {
			case op.OK == nil || op.SleptUS == nil:
				err = fmt.Errorf("op %d: no answer was recorded", i)
			case ok != *op.OK && (wait-timeout).Abs() > tolerance:
				err = fmt.Errorf("op %d try_acquire(%d, %v) at %v: %v, wait %v, Guava's %v", i, op.N, timeout, now, ok, wait, *op.OK)
			case ok != *op.OK:
				close++
			}
			if err == nil && *op.OK {
				err = take(op.SleptUS)
			} else if err == nil && *op.SleptUS != 0 {
				err = fmt.Errorf("op %d: refused after a sleep of %d µs", i, *op.SleptUS)
			}
		case "set_rate":
			count, per := rational(op.PermitsPerSecond)
			err = s.setRateAsGuava(now, limits.Rate{Count: count, Per: per})
		case "advance":
		default:
			err = fmt.Errorf("op %d: unknown %q", i, op.Op)
		}
		if err != nil {
			return close, err
		}
	}
	return close, nil
}

// setRateAsGuava keeps what is owed, and what is stored of a burst, as a time: the next
// call starts when it would have left without the change.
func (s *Schedule) setRateAsGuava(now time.Duration, rate limits.Rate) error {
	tat, _ := s.lifted()
	tau := s.tau
	err := s.SetRate(now, rate)
	s.tat, s.rem, s.tau = tat, 0, tau
	s.noteInterval()
	return err
}

func parseTrace(line []byte) (*guavaTrace, error) {
	var g guavaTrace
	if err := oracle.Decode(line, &g); err != nil {
		return nil, err
	}
	if g.Kind != "bursty" && g.Kind != "warming_up" {
		return nil, fmt.Errorf("unknown kind %q", g.Kind)
	}
	return &g, nil
}

// TestOracle_Guava replays what Guava's RateLimiter answered.
func TestOracle_Guava(t *testing.T) {
	ops, close := 0, 0
	for i, line := range oracle.Lines(t, "guava_ratelimiter.jsonl") {
		g, err := parseTrace(line)
		if err != nil {
			t.Fatalf("trace %d: %v", i+1, err)
		}
		n, err := g.replay()
		if err != nil {
			t.Errorf("trace %d (%s, %v/s): %v", i+1, g.Kind, g.PermitsPerSecond, err)
		}
		ops, close = ops+len(g.Ops), close+n
	}
	t.Logf("%d operations, %d decisions within the tolerance of their boundary", ops, close)
}

// A replay that cannot fail proves nothing: every recorded field, changed in
// every operation that has it, must be noticed somewhere.
func TestOracle_Guava_NoticesCorruptedLines(t *testing.T) {
	lines := oracle.Lines(t, "guava_ratelimiter.jsonl")
	for field, corrupt := range map[string]func(op *guavaOp) bool{
		"slept_us": func(op *guavaOp) bool {
			if op.SleptUS == nil {
				return false
			}
			*op.SleptUS += 1000
			return true
		},
		"wait_us": func(op *guavaOp) bool {
			if op.WaitUS == nil {
				return false
			}
			*op.WaitUS += 1000
			return true
		},
		"ok": func(op *guavaOp) bool {
			if op.OK == nil {
				return false
			}
			*op.OK = !*op.OK
			return true
		},
		"op":      func(op *guavaOp) bool { op.Op = strings.ToUpper(op.Op); return true },
		"at_us":   func(op *guavaOp) bool { op.AtUS += 5000; return op.Op == "acquire" },
		"n":       func(op *guavaOp) bool { op.N += 3; return op.Op == "acquire" || op.Op == "reserve" },
		"by rate": func(op *guavaOp) bool { op.PermitsPerSecond *= 2; return op.Op == "set_rate" },
	} {
		noticed, corrupted := 0, 0
		for _, line := range lines {
			g, err := parseTrace(line)
			if err != nil {
				t.Fatal(err)
			}
			for i := range g.Ops[:len(g.Ops)/2] {
				if corrupt(&g.Ops[i]) {
					corrupted++
					if _, err := g.replay(); err != nil {
						noticed++
					}
					break
				}
			}
		}
		// An at_us or n may lie where nothing depends on it, a decision at its
		// boundary; other answers may not.
		least := corrupted
		switch field {
		case "at_us", "n", "by rate":
			least = corrupted / 4
		case "ok":
			least = corrupted * 9 / 10
		}
		if corrupted == 0 || noticed < least {
			t.Errorf("%s: %d of %d corrupted traces were noticed", field, noticed, corrupted)
		}
	}
	if _, err := parseTrace([]byte(`{"kind":"bursty","new_field":1}`)); err == nil {
		t.Error("a field nobody knows was accepted")
	}
}
