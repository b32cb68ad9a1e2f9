// Package crawl is the command sluice crawl: it fetches pages and the pages that they link to,
// politely.
//
//	sluice crawl                                  # a built-in site of ten hosts, on loopback
//	sluice crawl -pages 50 https://example.com/
//	sluice crawl -pages 50 -resume https://example.com/
//
// Each host has a gate, with the delay as its greatest rate; a host that refuses requests
// is called as often as it allows, which its gate finds out. All hosts share a parent gate.
// gates.go has all that uses Sluice.
//
// What is known and what is left is on disk (store.go), so that a crawl may be large, and
// killed at any time. A page is noted when its line is in pages.jsonl (output.go): the
// store is an index of that file, and is brought up to date from it (crawl.go, replay).
//
// It does not run scripts, keep cookies or submit forms.
package crawl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// setMemoryLimit keeps garbage from growing with the crawl. What the store has outside of
// Go's memory is not counted.
func setMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(192 << 20)
	}
}

// run crawls. An error is why it could not begin.
func run(args []string, _, stdout, stderr *os.File) (status int, err error) {
	o, err := parseOptions(args[2:])
	if err != nil {
		return 0, err
	}
	setMemoryLimit()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	var site *loopback
	if len(o.seeds) == 0 && !o.resume && !o.refresh {
		if site, err = serve(); err != nil {
			return 0, err
		}
		defer site.close()
		transport.Proxy = nil
		transport.DialContext = site.dial
		o.seeds = []*url.URL{start()}
		fmt.Fprintf(stderr, "%s: crawling the built-in site on %s; give addresses to crawl others\n", name, site.address())
	}
	kept := o.dir != ""
	if !kept {
		if o.dir, err = os.MkdirTemp("", "sluice-crawl-"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(o.dir)
	}
	fatal = func(why string) {
		fmt.Fprintf(stderr, "%s: %s\n", name, cli.Plain(why, cli.MostOfError))
		sayContinue(stderr, args, o)
		os.Exit(cli.ExitFailed)
	}
	var page livePage
	stopLive, err := cli.ServeLive(name, o.live, o.liveToken, stderr, page.gates) // before there is a directory
	if err != nil {
		return 0, err
	}
	defer stopLive()
	c, err := newCrawler(o, transport)
	if err != nil {
		return 0, err
	}
	if site == nil {
		c.lookup = lookupUnlessProxied(transport.Proxy)
	}
	began := time.Now()
	show := cli.NewDisplay(name, stdout, stderr, o.quiet, c.progress())
	page.shows(c, show)
	defer cli.CatchStops(show, func() {}, func() {})()
	interrupts := cli.CatchInterrupts(show.Log)
	log.SetFlags(0)
	log.SetOutput(show.PackageLog())
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // or the table, behind head, would end it before the store is closed
	defer interrupts.Close()
	begin, stop := untilClosed(interrupts.Stop)
	defer stop()
	err = c.run(begin, interrupts.Calls)
	show.Stop()

	s := c.summary(time.Since(began))
	if site != nil {
		s.server = site.server
	}
	s.interrupted = interrupts.Happened()
	err = errors.Join(err, s.write(stdout, cli.Width(stdout)), c.writeSummary(s, err), c.close())
	status = s.status(err)
	for _, line := range s.hints(err, status) {
		fmt.Fprintf(stderr, "%s: %s\n", name, line)
	}
	if kept {
		fmt.Fprintf(stderr, "%s: the pages are in %s\n", name, cli.Plain(filepath.Join(o.dir, pagesFile), cli.MostOfItem))
		if status == cli.ExitInterrupted || status == cli.ExitStopped || err != nil {
			sayContinue(stderr, args, o)
		}
	}
	return status, nil
}

// lookupUnlessProxied looks up the addresses of hosts that requests go to, but not of those
// that they reach through a proxy.
func lookupUnlessProxied(proxy func(*http.Request) (*url.URL, error)) func(context.Context, string) ([]netip.Addr, error) {
	return func(ctx context.Context, name string) ([]netip.Addr, error) {
		for _, scheme := range []string{"http", "https"} {
			host := (&url.URL{Scheme: scheme, Host: name})
			if strings.Contains(name, ":") {
				host.Host = "[" + name + "]"
			}
			if via, err := proxy(&http.Request{URL: host}); via != nil || err != nil {
				return nil, err
			}
		}
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}
}

// sayContinue says how to go on.
func sayContinue(stderr io.Writer, args []string, o options) {
	fmt.Fprintf(stderr, "%s: continue it by\n\t%s\n", name, cli.ResumeCommand(args, o.resume))
}
