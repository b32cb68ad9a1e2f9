package docs_test

import (
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocSizes: the entry is short, and stays so.
func TestDocSizes(t *testing.T) {
	t.Chdir("..")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Skip("not a checkout")
	}
	fence := regexp.MustCompile("(?s)```.*?```")
	first, _, _ := strings.Cut(fence.ReplaceAllString(string(readme), ""), "\n## ")
	concepts, err := os.ReadFile("docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, _ := strings.Cut(string(concepts), "\n## Glossary\n")
	glossary, _, _ = strings.Cut(glossary, "\nThe verbs:")
	for what, n := range map[string][2]int{
		"words of README.md":                 {len(strings.Fields(string(readme))), 700},
		"words of its first screen":          {len(strings.Fields(first)), 150},
		"rows of the glossary, and a head":   {strings.Count(glossary, "\n| "), 2 + 35},
		"words of docs/adaptive.md":          {wordsOf(t, "docs/adaptive.md"), 1400},
		"words of the comment of sluice":     {commentOf(t, "doc.go"), 400},
		"words of the comment of http":       {commentOf(t, "sluicehttp/doc.go"), 400},
		"words of the comment of grpc":       {commentOf(t, "sluicegrpc/doc.go"), 405},
		"words of the comment of sluicetest": {commentOf(t, "sluicetest/doc.go"), 400},
		"words of the comment of redis":      {commentOf(t, "sluiceredis/doc.go"), 400},
		"words of the comment of ratelimit":  {commentOf(t, "sluicehttp/ratelimit/doc.go"), 400},
		"words of the comment of presets":    {commentOf(t, "sluicehttp/presets/doc.go"), 400},
		"words of the comment of batch":      {commentOf(t, "batch/doc.go"), 400},
		"words of the comment of otel":       {commentOf(t, "observe/otel/otel.go"), 400},
		"words of the comment of prometheus": {commentOf(t, "observe/prometheus/prometheus.go"), 400},
		"words of the comment of leaky":      {commentOf(t, "leaky/doc.go"), 400},
		"words of the comment of window":     {commentOf(t, "window/doc.go"), 400},
		"words of the comment of pacer":      {commentOf(t, "pacer/pacer.go"), 400},
		"words of the comment of semaphore":  {commentOf(t, "semaphore/semaphore.go"), 400},
	} {
		if n[0] > n[1] {
			t.Errorf("%s: %d, at most %d are allowed", what, n[0], n[1])
		}
	}
}

func wordsOf(t *testing.T, name string) int {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(text)))
}

// commentOf returns the number of words of the package comment in a file.
func commentOf(t *testing.T, name string) int {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(new(doc.Package).Text(file.Doc.Text()))))
}
