package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// The file of -config is a JSON object with the names of flags:
//
//	{
//		"listen": "localhost:7777",
//		"patience": "2m",
//		"route": ["/jira=https://example.atlassian.net", "/llm=http://10.0.0.7:8000 preset=openai"]
//	}
//
// A flag on the command line wins over the file.

// readConfig returns the flags of a file that were not given. Its error has all that is wrong.
func readConfig(name string, given map[string]bool) (args []string, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	from := json.NewDecoder(bytes.NewReader(text))
	if err := from.Decode(&content); err != nil {
		return nil, fmt.Errorf("%s: want a JSON object with the names of flags: %w", name, err)
	}
	if _, err := from.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: there is something behind the JSON object", name)
	}
	for _, key := range slices.Sorted(maps.Keys(content)) {
		more, bad := flagsOf(key, content[key])
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %q: %w", name, key, bad))
		}
		if !given[key] {
			args = append(args, more...)
		}
	}
	return args, err
}

// flagsOf returns the flags that a field of the file stands for.
func flagsOf(key string, value any) (args []string, err error) {
	if key == "config" || key == "" || strings.HasPrefix(key, "-") || strings.Contains(key, "=") {
		return nil, errors.New("a file cannot have this flag")
	}
	values, isList := value.([]any)
	switch {
	case !isList:
		values = []any{value}
	case key != "route" && key != "allow-host" && key != "class" && key != "tenant":
		return nil, errors.New("want one value")
	}
	for _, v := range values {
		text, isText := v.(string)
		if !isText {
			return nil, errors.New("want a string")
		}
		arg := "-" + key + "=" + text
		bad := newFlags(new(options)).Parse([]string{arg}, nil)
		if bad == nil && key == "route" { // the flag itself accepts any text
			_, bad = parseRoute(text)
		}
		if bad != nil {
			err = errors.Join(err, errors.New(strings.TrimPrefix(bad.Error(), cli.ErrUsage.Error()+": ")))
		}
		args = append(args, arg)
	}
	return args, err
}

// reload makes p as o says. Calls that are under way go on as they are, also those that wait. An
// error changes nothing.
func (p *proxy) reload(o *options) error {
	old := p.set.Load()
	if o.listen != old.o.listen || o.state != old.o.state || o.redis != old.o.redis || (o.token == "") != (old.o.token == "") {
		return errors.New("-listen, -state, -redis, and whether there is a token, change only by a restart")
	}
	o.log, o.base, o.shared = old.o.log, old.o.base, old.o.shared
	table, err := newTable(o.routes, o, p.memory, old.table)
	if err != nil {
		return err
	}
	p.set.Store(&setup{o: o, guard: newGuard(o.hosts, o.token), table: table})
	return nil
}
