package cli

import (
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/sluice-go/sluice/observe/live"
)

// LiveFlags adds the flags for ServeLive. The usage says that the page shows shows and
// that its reader can do changes.
func LiveFlags(f *Flags, address, tokenFile *string, shows, changes string) {
	f.Group("Page")
	f.String(address, "live", "", "serve a web page that shows "+shows+", at this `address`\nSuch as localhost:8080, or :0 for any free port of localhost.")
	f.String(tokenFile, "live-token", "", "a `file` with a token, for changes on that page\nIt has at least 16 bytes. Whoever enters it on the page of -live can "+changes+".")
}

// ServeLive serves the page of -live at an address, and writes to stderr where that is, until
// the function that it returns is called. It serves nothing if the address is empty. With a
// tokenFile, whoever enters the token in that file can change the gates.
func ServeLive(program, address, tokenFile string, stderr io.Writer, gates ...iter.Seq[live.Gate]) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	page := live.New(gates...)
	page.Title = program
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("-live-token: %w", err)
		}
		if page.Token = strings.TrimSpace(string(text)); page.Token == "" {
			return nil, fmt.Errorf("-live-token: %s is empty", tokenFile)
		}
	}
	url, stop, err := page.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("-live: %w", err)
	}
	fmt.Fprintf(stderr, "%s: -live: %s\n", program, url)
	return stop, nil
}
