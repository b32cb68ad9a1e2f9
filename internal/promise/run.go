package promise

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
)

// Full is the environment variable that makes the cells of a bubble run on the real clock as well.
const Full = "SLUICE_FULL"

// pending are cells that are known to fail, with the reason. A cell that no longer fails
// must be removed. An entry is
//
//	{"no_herd", "no_rate", "."}: "without a rate a pause ends in a herd"
var pending = map[cell]string{}

type cell struct{ promise, feature, module string }

// Run runs the cells that the table assigns to a module or package, each as a subtest. It
// fails if a setup is missing or superfluous.
func Run(t *testing.T, module string, setups map[string]Setup) {
	t.Helper()
	for name := range setups {
		if !slices.ContainsFunc(Features, func(f Feature) bool { return f.Name == name && slices.Contains(f.Runs, module) }) {
			t.Errorf("the table does not assign the column %s to %s", name, module)
		}
	}
	for _, p := range Promises {
		t.Run(p.Name, func(t *testing.T) {
			for _, f := range Features {
				if !slices.Contains(f.Runs, module) || f.Never[p.Name] != "" {
					continue
				}
				t.Run(f.Name, func(t *testing.T) {
					setup := setups[f.Name]
					if setup == nil {
						t.Fatalf("%s has no setup for the column %s", module, f.Name)
					}
					why := pending[cell{p.Name, f.Name, module}]
					if !f.Real {
						synctest.Test(t, func(t *testing.T) { report(t, judge(t, p, setup, false), why) })
					}
					if f.Real || os.Getenv(Full) != "" && why == "" && f.Virtual == "" {
						report(t, judge(t, p, setup, true), why)
					}
				})
			}
		})
	}
}

// judge returns the failures of a subject.
func judge(tb testing.TB, p Promise, setup Setup, real bool) []string {
	c := newCheck(tb, setup, real)
	p.check(c)
	return c.wrong
}

// report fails t for each failure, unless the cell is pending: why is the reason.
func report(t testing.TB, wrong []string, why string) {
	t.Helper()
	switch {
	case why != "" && len(wrong) == 0:
		t.Errorf("this cell no longer fails: remove it from the pending ones (%s)", why)
	case why != "":
		for _, text := range wrong {
			t.Log(text)
		}
		t.Skip("pending: ", why)
	}
	for _, text := range wrong {
		t.Error(text)
	}
}
