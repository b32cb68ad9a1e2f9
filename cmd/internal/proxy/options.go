package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/ext/peers"
)

// options is the command line, checked.
type options struct {
	listen     string
	routeTexts []string
	routes     []routeSpec // routeTexts, parsed
	hosts      []string
	tokenFile  string
	token      string // its content
	patience   time.Duration
	timeout    time.Duration
	drain      time.Duration
	shares     shares
	state      string
	redis      string
	config     string
	args       []string // from which the options can be parsed again

	log    *slog.Logger      // nil for none
	shared peers.Store       // of redis, nil for none
	base   http.RoundTripper // instead of connections, for tests
}

func newFlags(o *options) *cli.Flags {
	f := cli.NewFlags()
	o.patience, o.timeout, o.drain = 4*time.Minute, 10*time.Minute, 30*time.Second
	f.Group("Calls")
	f.Func("route", "serve the paths below /NAME by a URL: `/NAME=URL`\nIt may be repeated. After the URL there may be preset=NAME, class=NAME, rate=RATE and concurrency=N.", func(text string) error {
		o.routeTexts = append(o.routeTexts, text) // an error of the flag would show the URL
		return nil
	})
	f.Var(cli.Duration(&o.patience), "patience", "for how much `time` a call may wait\nOne that cannot be sent in time is answered with 429. The field "+headerPatience+" of a call overrides it.")
	f.Var(cli.Duration(&o.timeout), "timeout", "the longest `time` from sending a call to the header of the response")

	f.Group("Sharing")
	f.String(&o.shares.tenantHeader, "tenant-header", "", "a `field` that names the tenant of a call\nCallers who can write it can pretend to be several.")
	f.String(&o.shares.classHeader, "class-header", "", "a `field` that names the class of a call\nIt is ignored if the tenant or the route has a class.")
	f.Func("class", "a class of calls, with its share: `'NAME weight=N'`\nIt may be repeated. Classes share each limit by their weights, 1 by default.", o.shares.addClass)
	f.Func("tenant", "the share of a tenant: `'NAME weight=N'`\nIt may be repeated. With class=NAME it is one of what that class gets. The name is the one in -tenant-header, or the one that /live shows.", o.shares.addTenant)

	f.Group("Access")
	f.String(&o.listen, "listen", "localhost:7777", "the `address` to listen on\nOne beyond this machine needs -token-file.")
	f.String(&o.tokenFile, "token-file", "", "a `file` with a token of at least 16 bytes, which callers must send as "+headerToken)
	f.Func("allow-host", "accept requests to this `host`, too, such as the name of a container\nIt may be repeated.", func(text string) error {
		if text == "" || strings.ContainsAny(text, ":/*") {
			return errors.New("want a name without a port")
		}
		o.hosts = append(o.hosts, text)
		return nil
	})

	f.Group("Operation")
	f.String(&o.config, "config", "", "a `file` with flags, a JSON object\nSIGHUP reads it again.")
	f.String(&o.state, "state", "", "a `folder` for the state, which outlives a restart\nIt has the limits that were found, and the key for the names of tenants.")
	f.String(&o.redis, "redis", "", "share what is learned with other proxies, through the Redis at this `URL`\nThey must call with the same accounts. If it is away, each proxy learns alone.")
	f.Var(cli.Duration(&o.drain), "drain", "for how much `time` calls go on after SIGTERM")
	return f
}

// parseOptions returns the errors of [cli.Flags.Parse], and others that match cli.ErrUsage.
func parseOptions(args []string) (*options, error) {
	o := new(options)
	f := newFlags(o)
	if err := f.Parse(args, nil); err != nil {
		return nil, err
	}
	if o.config != "" {
		more, err := readConfig(o.config, f.Given())
		if err != nil {
			return nil, fmt.Errorf("%w: -config: %w", cli.ErrUsage, err)
		}
		o = new(options)
		f = newFlags(o)
		if err := f.Parse(append(more, args...), nil); err != nil {
			return nil, err
		}
	}
	o.args = args
	err := o.check()
	if all := f.Args(); len(all) > 0 {
		err = errors.Join(fmt.Errorf("unexpected %q; give routes by -route", all[0]), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return o, nil
}

// leastToken is the least length of a token in bytes.
const leastToken = 16

// check returns all that is wrong.
func (o *options) check() (err error) {
	wrong := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	for name, d := range map[string]time.Duration{"-patience": o.patience, "-timeout": o.timeout, "-drain": o.drain} {
		if d < 0 || d == 0 && name == "-timeout" {
			wrong("%s: want a time above 0", name)
		}
	}
	for name, field := range map[string]string{"-tenant-header": o.shares.tenantHeader, "-class-header": o.shares.classHeader} {
		if strings.ContainsAny(field, " :\r\n\t") || strings.HasPrefix(http.CanonicalHeaderKey(field), ours) {
			wrong("%s: want the name of a header field that is not one of the proxy", name)
		}
	}
	if bad := o.shares.checkTenants(); bad != nil {
		wrong("-tenant: %w", bad)
	}
	for _, text := range o.routeTexts {
		s, bad := parseRoute(text)
		if bad != nil {
			wrong("-route: %w", bad)
			continue
		}
		if bad := o.shares.check("/"+s.name, s.class); bad != nil {
			wrong("-route: %w", bad)
		}
		o.routes = append(o.routes, s)
	}
	if o.tokenFile == "" {
		return err
	}
	text, bad := os.ReadFile(o.tokenFile)
	if bad != nil {
		wrong("-token-file: %w", bad)
	} else if o.token = strings.TrimSpace(string(text)); len(o.token) < leastToken {
		wrong("-token-file: the token in %s has %d bytes, want at least %d", o.tokenFile, len(o.token), leastToken)
	}
	return err
}
