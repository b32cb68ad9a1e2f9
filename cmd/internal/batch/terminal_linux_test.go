package batch

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// terminal makes a terminal of so many columns. What is written to tty is read
// from the other end.
func terminal(t *testing.T, columns int) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	return master, tty
}

// onTerminal runs the program with its outputs on a terminal, and returns what
// was written there.
func onTerminal(t *testing.T, columns int, input string, env []string, args ...string) string {
	t.Helper()
	master, tty := terminal(t, columns)
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TempDir(), strings.NewReader(input), tty, tty
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	read := newPrinted()
	over := make(chan struct{})
	go func() {
		defer close(over)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			read.Write(b[:n])
			if err != nil {
				return // EIO when the last of the other end is closed
			}
		}
	}()
	err := cmd.Run()
	tty.Close()
	<-over
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return read.String()
}

// shown is what a terminal shows at the end. It understands carriage returns, newlines, "up n
// lines", "erase what is behind and below", and colours.
func shown(t *testing.T, text string) string {
	t.Helper()
	lines := [][]string{nil} // of cells
	row, col := 0, 0
	escape := regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)
	color := ""
	for text != "" {
		if m := escape.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			n, _ := strconv.Atoi(m[1])
			switch {
			case m[2] == "A" && n > row:
				t.Fatalf("%d lines up of %d", n, row)
			case m[2] == "A":
				row -= n
			case m[2] == "J":
				lines = lines[:row+1]
				lines[row] = lines[row][:min(col, len(lines[row]))]
			case m[2] == "m" && n == 0 && col > 0:
				lines[row][col-1] += m[0]
			case m[2] == "m":
				color = m[0]
			default:
				t.Fatalf("unknown escape %q", m[0])
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch r {
		case '\r':
			col = 0
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, nil)
			}
		default:
			for len(lines[row]) <= col {
				lines[row] = append(lines[row], " ")
			}
			lines[row][col] = color + string(r)
			color = ""
			col++
		}
	}
	var all []string
	for _, cells := range lines {
		all = append(all, strings.Join(cells, ""))
	}
	return strings.Join(all, "\n")
}

// The lines of the job stay whole above the bar, which stays at the end, too.
func TestTerminal(t *testing.T) {
	text := onTerminal(t, 100, "a\nb\nf\n", nil, "-rate", "5/s", "-ordered", "-retries", "0", "--", "sh", "-c", "echo \"out $1\"\ntest $1 != f", "sh", "{}")
	got := shown(t, text)
	bar := regexp.MustCompile(`(?m)^3/3 done \[=+\]\s*$`)
	for _, part := range []string{"out a\n", "out b\n", "out f\n", "sluice batch: f failed: ", "2 ok, \x1b[31m1 failed\x1b[0m, ", "\nsluice batch: 2 ok, 1 failed; "} {
		if strings.Count(got, part) != 1 {
			t.Errorf("%q is there %d times", part, strings.Count(got, part))
		}
	}
	if !bar.MatchString(got) {
		t.Error("no full bar")
	}
	if strings.Count(text, " done [") < 2 {
		t.Error("the bar never moved")
	}
	if t.Failed() {
		t.Logf("shown\n%s\nof %q", got, text)
	}
}

// NO_COLOR takes the colours, and nothing else.
func TestTerminalNoColor(t *testing.T) {
	text := onTerminal(t, 100, "a\n", []string{"NO_COLOR=1"}, "-retries", "0", "--", "false")
	if !strings.Contains(shown(t, text), "0 ok, 1 failed, ") || strings.Contains(text, "\x1b[31m") {
		t.Errorf("written %q", text)
	}
}

// A dumb terminal, and -quiet, get no bar.
func TestTerminalWithoutBar(t *testing.T) {
	for _, tt := range []struct{ env, flag string }{{"TERM=dumb", "-ordered"}, {"TERM=xterm", "-quiet"}} {
		if text := onTerminal(t, 100, "a\n", []string{tt.env}, tt.flag, "--", "echo"); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "a\r\nsluice batch: 1 ok, ") {
			t.Errorf("%v: written %q", tt, text)
		}
	}
}

// A paused host has a line of its own while it is paused.
func TestTerminalPause(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		if times == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	text := onTerminal(t, 100, "a\n", nil, "-url", a.URL+"/{}")
	line := regexp.MustCompile(regexp.QuoteMeta(a.URL) + ` paused until \d\d:\d\d:\d\d \(.*429`)
	if !line.MatchString(text) || line.MatchString(shown(t, text)) {
		t.Errorf("written %q", text)
	}
}

// Where there is little room the lines of the progress are wrapped at their spaces: what the
// terminal itself wraps would not be taken back.
func TestTerminalNarrow(t *testing.T) {
	text := onTerminal(t, 30, "a\n", []string{"LC_ALL=C.UTF-8"}, "-rate", "1000/s", "-retries", "0", "--", "false")
	got := shown(t, text)
	for line := range strings.Lines(got) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "sluice batch: ") {
			continue // what stays may wrap
		}
		if n := cli.Columns(line); n > 30 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if !regexp.MustCompile(`\] ETA 0s, 0 ok, \S+1 failed\S+, \S+/s of 1000/s, late by `).MatchString(strings.ReplaceAll(got, "\n", " ")) {
		t.Errorf("shown\n%s", got)
	}
}

// A wide terminal that becomes narrower must not break the bar in pieces.
func TestTerminalWide(t *testing.T) {
	text := onTerminal(t, 200, "a\n", nil, "-rate", "1000/s", "--", "true")
	for line := range strings.Lines(shown(t, text)) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); strings.Contains(line, " done [") && n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// After a Ctrl-C, which the terminal itself writes, lines stay whole, and say what is waited for.
func TestTerminalInterrupted(t *testing.T) {
	master, tty := terminal(t, 100)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, "-jobs", "1", "--", "sh", "-c", waits, "sh", "{}")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader("a\nb\n"), tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	read := newPrinted()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(read, master) // until EIO
	}()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	untilExists(t, filepath.Join(dir, "began.a"))
	read.until(", 1 running")
	if _, err := master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	read.until("stopping, 1 running")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	tty.Close()
	<-over
	text := shown(t, read.String())
	for _, line := range []string{"sluice batch: interrupted: nothing more is begun; waiting for what is running (again to cancel it)\n", "done a\n", "sluice batch: 1 ok, 0 failed, 1 unfinished; "} {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("status %d", status)
	}
}
