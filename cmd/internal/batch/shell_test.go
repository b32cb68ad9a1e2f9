//go:build unix

package batch

import (
	"os/exec"
	"strings"
	"testing"
)

// Wherever a placeholder stands, the shell reads the item as it is.
func TestQuoteInShell(t *testing.T) {
	for _, item := range []string{"plain", "two words", "it's", `"`, `\`, "$HOME $(echo x) `echo y`", "; echo no", "a\nb", "*", "#", "-n", ""} {
		for _, template := range []string{
			`printf %s {}`, `printf %s "{}"`, `printf %s '{}'`, `printf %s "$(printf %s {})"`, `printf %s "$(printf %s "{}")"`,
			`a={}; printf %s "$a"`, `(printf %s {})`, `# it's a comment "
			printf %s {}`, `echo $# >/dev/null; printf %s {}`, `echo \' \" >/dev/null; printf %s {}`, `printf %s 'it'"'"'s'{} | sed "1s/^it's//"`,
		} {
			line := expand(template, shape{}.subject(item, 1, 1), quoteInShell)
			out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
			if err != nil || strings.TrimSuffix(string(out), "\n") != item {
				t.Errorf("%q in %q is %q: %q, %v", item, template, line, out, err)
			}
		}
	}
}

// The words of the command are a line for the shell, and several items are several words.
func TestBinaryShell(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "a b\nc\n", "-ordered", "-shell", "sh", "printf", "'<%s>'", "{}", "x", "|", "tr a A").want(t, 0, "<A b><x><c><x>")
	runIn(t, dir, "a b\nc\n", "-n", "2", "-shell", "sh", "printf '<%s>'").want(t, 0, "<a b><c>")
	runIn(t, dir, "a b\n", "-dry-run", "-shell", "sh", "echo {} >{}.x").want(t, 0, "sh -c 'echo '\\''a b'\\'' >'\\''a b'\\''.x'\n")
	runIn(t, dir, "a\n", "-shell", "no-such-shell", "true").want(t, 2, "", "-shell: ")
	runIn(t, dir, "a\n", "-shell", "sh", "-url", "http://h/{}").want(t, 2, "", "-shell is for commands")
	runIn(t, dir, "a\n", "-shell", "sh", "echo `cat {}`").want(t, 2, "", "within backquotes")
	runIn(t, dir, "a\n", "-log", "log", "-shell", "sh", "echo").want(t, 0, "a\n")
	runIn(t, dir, "a\n", "-log", "log", "-resume", "echo").want(t, 2, "", "another command")
}

// -n max gives a command as many items as fit.
func TestBinaryMax(t *testing.T) {
	dir := t.TempDir()
	lines := strings.Repeat(strings.Repeat("x", 99)+"\n", 3000) // of 108 bytes with the pointer
	runIn(t, dir, lines, "-ordered", "-n", "max", "sh", "-c", "echo $#", "sh").want(t, 0, "1137\n1137\n726\n")
	runIn(t, dir, "a\nb\n", "-n", "max", "echo", "{2}", "{}").want(t, 0, "b a b\n")
	runIn(t, dir, "a\n", "-n", "0", "echo").want(t, 2, "", "want a number above 0, or max")
	runIn(t, dir, "a\n", "-n", "max", "-url", "http://h/{}").want(t, 2, "", "-n max is for commands")
}

// With placeholders, -results is the name of a file. There is one of errors if there are any.
func TestBinaryResultNames(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, "x/a.c\ny/b.c\n", "-results", "out/{//}/{/.}.txt", "sh", "-c", `echo "is $1"; case $1 in y*) echo oh >&2; esac`, "sh").want(t, 0, "")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+dir+" && find out -type f | sort && cat out/x/a.txt out/y/b.txt.err").Output()
	if want := "out/x/a.txt\nout/y/b.txt\nout/y/b.txt.err\nis x/a.c\noh\n"; err != nil || string(out) != want {
		t.Errorf("%q, want %q: %v", out, want, err)
	}
	runIn(t, dir, "a\n", "-results", "out/{%}", "echo").want(t, 2, "", "-results: the number of a job")
	runIn(t, dir, "a\n", "-results", "out/{}/", "echo").want(t, 2, "", "must not end with /")
}
