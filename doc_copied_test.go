package sluice_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// copied are numbers that documents have from the results: a pattern of the document and one of
// the results, with the same numbers in parentheses.
var copied = []struct{ document, has, results, say string }{
	{"README.md", rowOf("a gate with `Adaptive.Search`"), goodputResults, strategyOf("sluice-adaptive")},
	{"README.md", rowOf("a gate, no configuration"), goodputResults, strategyOf("sluice-zero")},
	{"README.md", rowOf("`sluicehttp`, no configuration"), goodputResults, strategyOf("sluicehttp")},
	{"README.md", rowOf("a gate with the rate"), goodputResults, strategyOf("sluice-told")},
	{"README.md", rowOf("x/time/rate, with backoff"), goodputResults, strategyOf("xtime-told")},
	{"README.md", rowOf("aws-sdk-go-v2, adaptive retry mode"), goodputResults, strategyOf("aws-adaptive")},
	{"README.md", rowOf("concurrency-limits (Vegas), with backoff"), goodputResults, strategyOf("vegas")},
	{"README.md", rowOf("failsafe-go's adaptive limiter, with backoff"), goodputResults, strategyOf("failsafe-adaptive")},
	{"README.md", rowOf("exponential backoff with full jitter"), goodputResults, strategyOf("backoff")},
	{"README.md", rowOf("hashicorp/go-retryablehttp"), goodputResults, strategyOf("retryablehttp")},
	{"README.md", `the rule of such a gate scores ([\d.]+) and a pacer that is told the rate ([\d.]+)\.`,
		"bench/league/README.md", `\| mean score \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|`},
	{"README.md", `with x/time/rate \(burst 1\) it gets ([\d.]+) %`, goodputResults, `\| 1 \| 5000 \| xtime \| ([\d.]+) %`},
	{"README.md", `one caller at 1,000 per second gets ([\d.]+) %`, goodputResults, `\| busy: 1 caller, 1,000/s \| sluice \| ([\d.]+) %`},
	{"README.md", `with x/time/rate ([\d.]+) %`, goodputResults, `\| busy: 1 caller, 1,000/s \| xtime \| ([\d.]+) %`},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `steps`", goodputResults, worldOf("steps")},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `overload`", goodputResults, worldOf("overload")},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `slow`", goodputResults, worldOf("slow")},
}

const goodputResults = "bench/results/README.md"

// rowOf returns the pattern of a row of the README: mean score, worst world.
func rowOf(client string) string {
	return `\| ` + regexp.QuoteMeta(client) + ` \| (?:yes|no) \| ([\d.]+) \| ([\d.]+) \|`
}

// strategyOf returns the pattern of the same numbers in the results.
func strategyOf(name string) string {
	return `\| ` + name + ` \|[ yes]*\| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|`
}

// worldOf returns the pattern of the scores of sluice-told and, after it, sluicehttp: the last
// columns but one are sluice-told and sluicehttp-told.
func worldOf(name string) string {
	return `(?s)### Score\n.*?\n\|` + name + `\|(?:[\d.]+\|){13}([\d.]+)\|[\d.]+\|([\d.]+)\|`
}

// TestCopied: such numbers are those of the results.
func TestCopied(t *testing.T) {
	if _, err := os.Stat("bench/go.mod"); err != nil {
		t.Skip("not a checkout: the module alone lacks the results")
	}
	for _, c := range copied {
		got, want := numbersOf(t, c.document, c.has), numbersOf(t, c.results, c.say)
		if got == nil || !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, and %s says %q", c.document, c.has, got, c.results, want)
		}
	}
}

// numbersOf returns what the parentheses of a pattern match in a file, nil if it is not there once.
func numbersOf(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Errorf("%s has %d times %s", file, len(found), pattern)
		return nil
	}
	return found[0][1:]
}
