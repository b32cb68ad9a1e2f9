// Package proxy is the command sluice proxy: a reverse proxy that lets calls wait until the
// servers that they are for allow them.
//
//	sluice proxy
//	curl http://localhost:7777/api.github.com/zen
//
// A call passes the guard (guard.go), finds its route (route.go), hands over its body (body.go),
// waits for the turn of its tenant (turn.go, tenant.go) and for the gate of its upstream
// (upstream.go), and is sent. call.go bounds its waits, and problem.go has the answers of the proxy
// itself. share.go has weights and classes. The threat model is in docs/proxy.md; it names a test for
// each of its lines.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// start is the Run of the command.
func start(args []string, _, _, stderr *os.File) (status int, err error) {
	o, err := parseOptions(args[2:])
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if o.config != "" {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	screen := &statusLine{to: stderr}
	o.log = newLog(screen)
	var closeShared func() error
	if o.shared, closeShared, err = newShared(o.redis, o.log); err != nil {
		return 0, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	defer closeShared()
	err = run(o, signals, screen, stderr)
	if errors.Is(err, errCut) {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return cli.ExitFailed, nil
	}
	return cli.ExitOK, err
}

// errCut is matched by an error at the end.
var errCut = errors.New("it did not end well")

// newLog returns a log of lines without a time zone, as journals and containers add the time.
func newLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// run serves until a signal, and then drains; a second signal ends it immediately.
func run(o *options, signals <-chan os.Signal, screen *statusLine, terminal *os.File) error {
	p, err := newProxy(o)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	listeners, err := listen(o.listen, o.token != "")
	if err != nil {
		return err
	}
	calls, cut := context.WithCancel(context.Background())
	defer cut()
	server := newServer(p, calls)
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(l) }()
	}
	fmt.Fprintf(screen, name+": http://%s/ serves %s\n", shown(o.listen, listeners[0]), strings.Join(p.set.Load().table.names(), ", "))
	stop := screen.follow(p, terminal)
	defer stop()
	if err := p.remember(o, signals, ended, screen); err != nil {
		_ = server.Close()
		return fmt.Errorf("%w: %w", errCut, err)
	}
	drain := p.set.Load().o.drain
	fmt.Fprintf(screen, name+": %d calls are under way; ending when they are done, in %v at most (again to end now)\n", p.calls.Load(), drain)
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	go func() {
		for {
			select {
			case got := <-signals:
				if got != syscall.SIGHUP {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	if p.drain(ctx, server, cut) != nil {
		err = fmt.Errorf("%w: calls were cut", errCut)
	}
	if bad := p.memory.save(); bad != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errCut, bad))
	}
	return err
}

// saveEvery is the time between two writes of the state; kill -9 loses as much.
const saveEvery = 10 * time.Second

// remember saves the state now and then, and reloads after SIGHUP, until there is another
// signal. An error is from a listener.
func (p *proxy) remember(o *options, signals <-chan os.Signal, ended <-chan error, screen io.Writer) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := p.memory.save(); err != nil && o.log != nil {
				o.log.Error("the state is not saved", "err", err)
			}
		case err := <-ended:
			return err
		case got := <-signals:
			if got != syscall.SIGHUP {
				return nil
			}
			text := "reloaded"
			again, err := parseOptions(o.args)
			if err == nil {
				err = p.reload(again)
			}
			if err != nil {
				text = "not reloaded, nothing has changed: " + err.Error()
			}
			fmt.Fprintf(screen, name+": %s\n", text)
		}
	}
}

// newServer makes the server of p, whose requests end when calls is done.
func newServer(p *proxy, calls context.Context) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           p,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return calls },
	}
	if p != nil {
		server.RegisterOnShutdown(p.page.Close)
	}
	return server
}

// listen opens the listeners, two for localhost: IPv4 and IPv6. Beyond loopback it
// does so only if callers need a token.
func listen(address string, token bool) (all []net.Listener, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: -listen: want a host and a port, such as localhost:7777", cli.ErrUsage)
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	for _, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		switch {
		case err != nil && len(all) > 0:
			return all, nil // a machine without IPv6
		case err != nil:
			return nil, fmt.Errorf("-listen: %w", err)
		}
		at, _ := netip.ParseAddrPort(l.Addr().String())
		if !at.Addr().Unmap().IsLoopback() && !token {
			_ = l.Close()
			return nil, fmt.Errorf("%w: -listen %s: others than this machine could use the proxy; want -token-file", cli.ErrUsage, address)
		}
		all = append(all, l)
		_, port, _ = net.SplitHostPort(l.Addr().String()) // of 0, the same for both
	}
	return all, nil
}

// shown is the host and port of a URL.
func shown(asked string, l net.Listener) string {
	host, _, _ := net.SplitHostPort(asked)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// names returns the first segments of paths that are served.
func (t *table) names() []string {
	var names []string
	for name := range t.routes {
		names = append(names, "/"+name)
	}
	slices.Sort(names)
	return names
}
