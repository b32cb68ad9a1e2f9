package batch

import (
	"bytes"
	"errors"
	"strings"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// With -shell, the words of the command, with spaces between them, are a line for a shell. Values
// are quoted as the place needs it where their placeholder stands, so that they never are more
// than a value:
//
//	cat {}         cat 'a b'
//	echo "in {}"   echo "in a b"
//	echo "$(wc -l {})"   echo "$(wc -l 'a b')"

// quoteInShell is an escape for expand.
func quoteInShell(before, value string) string {
	switch quotesAt(before) {
	case '\'':
		return strings.ReplaceAll(value, "'", `'\''`)
	case '"':
		return inDoubleQuotes.Replace(value)
	}
	return cli.Quote(value)
}

var inDoubleQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")

// checkShell refuses a line in which a value could become more than that: within backquotes a shell
// reads it twice.
func checkShell(line string, f shape) (err error) {
	expand(line, f.sample("item"), func(before, value string) string {
		if quotesAt(before) == '`' {
			err = errors.New("-shell: a placeholder stands within backquotes: write $(...) instead of them")
		}
		return value
	})
	return err
}

// quotesAt returns the quotes that are open at the end of a text for a shell, ' or " or `, or 0. It
// follows what POSIX says (Shell Command Language, 2.2 and 2.6.3), except that it does not know the
// parentheses of case.
func quotesAt(text string) byte {
	var open []byte // ' or ", or ( or ` of a command within them
	for i := 0; i < len(text); i++ {
		last := byte(0)
		if len(open) > 0 {
			last = open[len(open)-1]
		}
		c := text[i]
		switch {
		case last == '\'' && c != '\'':
		case c == '\\' && last != '\'':
			i++
		case c == last && c != '(' || c == ')' && last == '(':
			open = open[:len(open)-1]
		case c == '"', c == '`', c == '\'' && last != '"':
			open = append(open, c)
		case c == '(' && (last != '"' || strings.HasSuffix(text[:i], "$")):
			open = append(open, c)
		case c == '#' && last != '"' && (i == 0 || strings.IndexByte(" \t\n;&|(", text[i-1]) >= 0):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return 0
			}
			i += end
		}
	}
	if bytes.IndexByte(open, '`') >= 0 {
		return '`'
	}
	if len(open) > 0 && (open[len(open)-1] == '\'' || open[len(open)-1] == '"') {
		return open[len(open)-1]
	}
	return 0
}
