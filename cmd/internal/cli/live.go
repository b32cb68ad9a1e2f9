package cli

import (
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/sluice-go/sluice/observe/live"
)

// ServeLive serves the page of -live at an address, and writes to stderr where that is, until
// the function that it returns is called. It serves nothing if the address is empty. With a
// tokenFile, whoever enters the token in that file can change the gates.
func ServeLive(program, address, tokenFile string, stderr io.Writer, gates ...iter.Seq[live.Gate]) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	cfg := live.Config{Title: program}
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("-live-token: %w", err)
		}
		if cfg.Token = strings.TrimSpace(string(text)); cfg.Token == "" {
			return nil, fmt.Errorf("-live-token: %s is empty", tokenFile)
		}
	}
	page, err := live.NewWith(cfg, gates...)
	if err != nil {
		return nil, fmt.Errorf("-live-token: %w", err)
	}
	url, stop, err := page.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("-live: %w", err)
	}
	fmt.Fprintf(stderr, "%s: -live: %s\n", program, url)
	return stop, nil
}
