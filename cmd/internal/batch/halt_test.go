package batch

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/batch"
)

func TestParseHalt(t *testing.T) {
	for s, want := range map[string]batch.Halt{
		"never":            {},
		"soon,fail=1":      {Fails: 1},
		"now,fail=3":       {Now: true, Fails: 3},
		"soon,fail=10%":    {FailPercent: 10},
		"now,fail=0.5%":    {Now: true, FailPercent: 0.5},
		"soon,success=100": {Successes: 100},
	} {
		if h, err := parseHalt(s); h != want || err != nil {
			t.Errorf("parseHalt(%q) = %+v, %v; want %+v", s, h, err, want)
		}
	}
	for _, s := range []string{
		"", "soon", "soon,", "soon,fail", "soon,fail=", "soon,fail=0", "soon,fail=-1", "soon,fail=x", "later,fail=1",
		"soon,fail=101%", "soon,fail=0%", "soon,fail=-1%", "soon,fail=NaN%", "soon,success=5%", "soon,done=3",
		"fail=3", "soon,fail=9223372036854775808", "never,fail=1", "SOON,fail=1", "soon, fail=1", "soon,success=-1",
	} {
		if h, err := parseHalt(s); err == nil || h != (batch.Halt{}) || !strings.Contains(err.Error(), "want never, or soon or now") {
			t.Errorf("parseHalt(%q) = %+v, %v; want an error that says what is wanted", s, h, err)
		}
	}
}
