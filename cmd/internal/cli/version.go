// Package cli is what the commands of sluice have in common: flags for times and
// rates, interrupts, text of others on a terminal, and how to run a program again.
package cli

import "runtime/debug"

// Version is that of the module, or of the commit in a clone.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text + " " + info.GoVersion
}
