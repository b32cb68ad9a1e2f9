package proxy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The files of docs/proxy, and the example of a configuration in docs/proxy.md, are accepted.
func TestService(t *testing.T) {
	page := read(t, "proxy.md")
	_, rest, _ := strings.Cut(page, "```json\n")
	config, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/proxy.md has no configuration")
	}
	file, token := filepath.Join(t.TempDir(), "config"), filepath.Join(t.TempDir(), "token")
	for name, text := range map[string]string{file: config, token: "0123456789abcdef"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unit := read(t, "proxy/sluice-proxy.service")
	line := valueOf(t, unit, "ExecStart=/usr/local/bin/sluice proxy ")
	o, err := parseOptions(strings.Fields(strings.ReplaceAll(line, "/etc/sluice.json", file)))
	if err != nil {
		t.Fatal(err)
	}
	if stop, err := time.ParseDuration(valueOf(t, unit, "TimeoutStopSec=") + "s"); err != nil || stop <= o.drain+refuseWithin {
		t.Errorf("the unit kills after %v, %v, and calls have %v", stop, err, o.drain)
	}
	if o.state != "/var/lib/"+valueOf(t, unit, "StateDirectory=") {
		t.Errorf("the state is in %s", o.state)
	}
	var command []string
	if err := json.Unmarshal([]byte(valueOf(t, read(t, "proxy/Containerfile"), "ENTRYPOINT ")), &command); err != nil || command[1] != "proxy" {
		t.Fatalf("%q, %v", command, err)
	}
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "/run/secrets/sluice", token)
	}
	if _, err := parseOptions(command[2:]); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// valueOf returns the rest of the line that begins so.
func valueOf(t *testing.T, text, begin string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+text, "\n"+begin)
	if !ok {
		t.Fatalf("there is no %s", begin)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
