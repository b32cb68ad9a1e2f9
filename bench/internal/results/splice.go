package results

import (
	"fmt"
	"os"
	"strings"
)

// Splice replaces what stands in the Markdown file between the lines
// "<!-- begin name -->" and "<!-- end name -->".
func Splice(file, name, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	head, rest, ok := strings.Cut(string(old), begin)
	if !ok {
		return fmt.Errorf("%s has no line %q", file, begin)
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("%s has no line %q", file, end)
	}
	return os.WriteFile(file, []byte(head+begin+"\n"+strings.TrimSpace(text)+"\n\n"+end+tail), 0o644)
}
