package bench

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// copied are numbers that documents have from the results: a pattern of the document and one of
// the results, with the same numbers in parentheses.
var copied = []struct{ document, has, results, say string }{
	{"README.md", row("a gate with `Adaptive.Search`"), goodput, strategy("sluice-adaptive")},
	{"README.md", row("a gate, no configuration"), goodput, strategy("sluice-zero")},
	{"README.md", row("`sluicehttp`, no configuration"), goodput, strategy("sluicehttp")},
	{"README.md", row("a gate with the rate"), goodput, strategy("sluice-told")},
	{"README.md", row("x/time/rate, with backoff"), goodput, strategy("xtime-told")},
	{"README.md", row("aws-sdk-go-v2, adaptive retry mode"), goodput, strategy("aws-adaptive")},
	{"README.md", row("concurrency-limits (Vegas), with backoff"), goodput, strategy("vegas")},
	{"README.md", row("failsafe-go's adaptive limiter, with backoff"), goodput, strategy("failsafe-adaptive")},
	{"README.md", row("exponential backoff with full jitter"), goodput, strategy("backoff")},
	{"README.md", row("hashicorp/go-retryablehttp"), goodput, strategy("retryablehttp")},
	{"README.md", `the rule of such a gate scores ([\d.]+) and a pacer that is told the rate ([\d.]+)\.`,
		"bench/league/README.md", `\| mean score \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|`},
	{"README.md", `with x/time/rate \(burst 1\) it gets ([\d.]+) %`, goodput, `\| 1 \| 5000 \| xtime \| ([\d.]+) %`},
	{"README.md", `one caller at 1,000 per second gets ([\d.]+) %`, goodput, `\| busy: 1 caller, 1,000/s \| sluice \| ([\d.]+) %`},
	{"README.md", `with x/time/rate ([\d.]+) %`, goodput, `\| busy: 1 caller, 1,000/s \| xtime \| ([\d.]+) %`},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `steps`", goodput, world("steps")},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `overload`", goodput, world("overload")},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `slow`", goodput, world("slow")},
}

const goodput = "bench/results/README.md"

// row returns the pattern of a row of the README: mean score, worst world.
func row(client string) string {
	return `\| ` + regexp.QuoteMeta(client) + ` \| (?:yes|no) \| ([\d.]+) \| ([\d.]+) \|`
}

// strategy returns the pattern of the same numbers in the results.
func strategy(name string) string {
	return `\| ` + name + ` \|[ yes]*\| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|`
}

// world returns the pattern of the scores of sluice-told and, after it, sluicehttp: the last
// columns but one are sluice-told and sluicehttp-told.
func world(name string) string {
	return `(?s)### Score\n.*?\n\|` + name + `\|(?:[\d.]+\|){13}([\d.]+)\|[\d.]+\|([\d.]+)\|`
}

// TestCopied: such numbers are those of the results.
func TestCopied(t *testing.T) {
	for _, c := range copied {
		got, want := numbers(t, c.document, c.has), numbers(t, c.results, c.say)
		if got == nil || !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, and %s says %q", c.document, c.has, got, c.results, want)
		}
	}
}

// numbers returns what the parentheses of a pattern match in a file, nil if it is not there once.
func numbers(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile("../" + file)
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
