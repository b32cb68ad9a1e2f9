package batch

import "testing"

// Items behind ::: may have spaces and ends of lines. Stdin stays open and is not waited for.
func TestItems_OfTheCommandLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		out  string
	}{
		{[]string{"echo", "<{}>", ":::", "a", "b c", "d\ne"}, "<a>\n<b c>\n<d\ne>\n"},
		{[]string{"-n", "2", "echo", "{2}", "{1}", ":::", "a", "b c", "d"}, "b c a\n d\n"},
		{[]string{"-colsep", ",", "echo", "{2}", ":::", "a,1", "b,2"}, "1\n2\n"},
		{[]string{"-dry-run", "-url", "http://h/{}", ":::", "a b"}, "GET http://h/a%20b\n"},
	} {
		p := start(t, t.TempDir(), append([]string{"-ordered"}, test.args...)...)
		if status := p.wait(t); status != 0 || p.stdout.String() != test.out {
			t.Errorf("%q: %d, %q, %s", test.args, status, p.stdout.String(), p.stderr.String())
		}
		p.stdin.Close()
	}
}

// A job of such items is resumed by the line that it prints.
func TestItems_Resumed(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-ordered", "-log", "l", "-resume-failed", "-retries", "0", "sh", "-c", "[ $1 != b ] || [ -e now ] && echo $1", "sh", "{}", ":::", "a", "b", "c"}
	runIn(t, dir, "", args...).want(t, 1, "a\nc\n", "2 ok, 1 failed")
	runIn(t, dir, "", args...).want(t, 1, "", "2 skipped")
}
