package main

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
)

// long skips a test that takes long, or needs a machine that does little else.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_FULL") == "" {
		t.Skip("takes a minute, and a quiet machine: SLUICE_FULL=1 runs it")
	}
}

// attempts is how often a run may miss what depends on the machine.
const attempts = 3

// load returns flags for that many seconds of work: at 1,000 calls per second or, with the
// race detector, a tenth of that.
func load(seconds int) []string {
	rate := 1000
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		rate = 100
	}
	return []string{"-n", strconv.Itoa(seconds * rate), "-rate", strconv.Itoa(rate) + "/s"}
}

// TestGoals_Rate: four workers deliver the rate, and nothing is rejected.
func TestGoals_Rate(t *testing.T) {
	long(t)
	for i := range attempts {
		status, r := runJSON(t, append(load(10), "-kill", "0", "-restart", "0", "-throttle", "0")...)
		if status != 0 || r.Lost != 0 || r.Twice != 0 {
			t.Fatalf("exit status %d: %d items lost, %d processed twice", status, r.Lost, r.Twice)
		}
		if r.Percent >= 99 && r.Refused == 0 {
			return
		}
		t.Logf("attempt %d: %.2f %% of the rate, %d calls refused", i+1, r.Percent, r.Refused)
	}
	t.Error("less than 99 % of the rate, or refused calls, in each attempt")
}

// TestGoals_Kill: a worker is killed every 5 s. The throughput is back within 2 s, and
// the items are with other workers within a lease.
func TestGoals_Kill(t *testing.T) {
	long(t)
	for i := range attempts {
		status, r := runJSON(t, append(load(30), "-kill", "5s", "-restart", "0", "-throttle", "0")...)
		if status != 0 || r.Lost != 0 || r.Twice != 0 || len(r.Kills) < 5 {
			t.Fatalf("exit status %d: %d items lost, %d processed twice, %d workers killed", status, r.Lost, r.Twice, len(r.Kills))
		}
		good := true
		for _, k := range r.Kills[:5] { // the run ends soon after the others
			good = good && k.Missing == 0 && k.Back != nil && *k.Back <= 2 && k.Returned != nil && *k.Returned <= 5
		}
		if good {
			return
		}
		t.Logf("attempt %d: %+v", i+1, r.Kills)
	}
	t.Error("it took too long, in each attempt")
}

// TestGoals_Breaks: the same with all breaks of the default run.
func TestGoals_Breaks(t *testing.T) {
	long(t)
	status, r := runJSON(t, load(10)...)
	if status != 0 || r.Lost != 0 || r.Twice != 0 {
		t.Errorf("exit status %d: %d items lost, %d processed twice", status, r.Lost, r.Twice)
	}
	if r.Throttle == nil || r.Throttle.Early > 100 {
		t.Errorf("after a 429: %+v", r.Throttle)
	}
}
