package batch

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A command whose output does not fit on the disk of temporary files fails, also if it did not
// notice.
func TestBinaryFullTempDir(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", dir)
	for script, want := range map[string]string{
		"head -c 3000000 /dev/zero 2>/dev/null; true # {}": "a failed: its output: ",
		"head -c 3000000 /dev/zero; exit 3 # {}":           "a failed: exit status 3; its output: ",
	} {
		cmd := exec.CommandContext(t.Context(), binary, "-retries", "0", "--", "sh", "-c", script)
		var stderr strings.Builder
		cmd.Stdin, cmd.Stderr = strings.NewReader("a\n"), &stderr
		_ = cmd.Run() // prints what there is of the output
		if s := stderr.String(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(s, want) || !strings.Contains(s, "no space left on device") {
			t.Errorf("%s: status %d, stderr\n%s", script, cmd.ProcessState.ExitCode(), s)
		}
	}
	block := strings.Repeat("0", 512) // looks as if it might have been cut
	runIn(t, t.TempDir(), "a\n", "--", "sh", "-c", "printf %0512d 0 # {}").want(t, 0, block, "1 ok")
}
