// Package cli is shared by the commands of sluice: flags with their help, exit statuses, interrupts, the progress on a terminal, and how to run a command again.
package cli

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// ModuleVersion is the version of the program, such as v1.2.3.
func ModuleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}

// Build says how the program was built, a line for each thing that is known: its version, the
// commit and its time, the version of Go and the system.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Program + " (unknown)\n"
	}
	return describeBuild(info)
}

func describeBuild(info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	version := info.Main.Version
	if version == "" {
		version = "(unknown)"
	}
	text := Program + " " + version + "\n"
	if commit := settings["vcs.revision"]; commit != "" {
		text += "commit " + strings.TrimSpace(commit+" "+settings["vcs.time"])
		if settings["vcs.modified"] == "true" {
			text += ", with changes"
		}
		text += "\n"
	}
	return text + fmt.Sprintf("built by %s for %s/%s\n", info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
