package crawl

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ownHeaders are fields that the crawler, or net/http, sets.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Host", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent"}

// addHeader reads a field of -header, or @ and a file that has one on each line. Files keep
// passwords and cookies away from the list of processes.
func (o *options) addHeader(text string) error {
	lines := []string{text}
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lines = strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n")
	}
	for i, line := range lines {
		if strings.TrimSpace(line) == "" && len(lines) > 1 {
			continue
		}
		if err := o.addField(line); err != nil {
			if len(lines) > 1 {
				return fmt.Errorf("line %d: %w", i+1, err)
			}
			return err
		}
	}
	return nil
}

func (o *options) addField(line string) error {
	name, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("want a field such as 'Accept-Language: de'")
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case name == "User-Agent":
		return errors.New("User-Agent is set by -agent")
	case slices.Contains(ownHeaders, name):
		return fmt.Errorf("%s is set by the crawler", name)
	}
	if o.header == nil {
		o.header = make(http.Header)
	}
	o.header.Add(name, value)
	return nil
}

// headerFor returns the fields of -header for a request, or nil. As they may be secret, only the
// sites of the addresses that were given get them, and not where those redirect or link to; and
// over plain http only if an address of that site was given so.
func (o options) headerFor(to *url.URL) http.Header {
	site := siteOf(to.Scheme + "://" + to.Host)
	for _, seed := range o.seeds {
		if siteOf(seed.Scheme+"://"+seed.Host) == site && (to.Scheme == "https" || seed.Scheme == "http") {
			return o.header
		}
	}
	return nil
}
