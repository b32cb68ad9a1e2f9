// Package machine describes the machine for the measurements:
// what it is, how much processor time this process has used, and when the
// machine itself stood still.
package machine

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Describe returns the processor, the number of CPUs in use, the system and
// the version of Go, in one line.
func Describe() string {
	return fmt.Sprintf("%s, %d CPUs, %s/%s%s, %s",
		processor(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, kernel(), runtime.Version())
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return " " + version
}
