// Crawler fetches pages and the pages that they link to, politely: each host has a
// gate, all hosts share a parent gate, robots.txt and its Crawl-delay are obeyed, and
// a host that answers 429 is called more slowly from then on.
//
//	go run ./examples/crawler                            # a built-in site of ten hosts, on loopback
//	go run ./examples/crawler -pages 50 https://example.com/
//
// Pages go to a file as JSON Lines, each with its links. A table shows what happened
// at each host. gates.go has the spacing, which is all that uses Sluice, and hosts.go
// has robots.txt. -h lists the flags.
//
// It does not run scripts, keep cookies, submit forms, or remember anything from one
// run to the next. It assumes that pages are UTF-8.
//
// If one request at a time is in flight at a host, requests leave no closer than the
// delay. The network may bring them closer: for the built-in site the table shows by
// how much.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The exit status, apart from 0.
const (
	exitFailed      = 1   // pages failed, there was none, or something could not be begun or written
	exitUsage       = 2   // the flags make no sense
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	status, err := program(ctx, args, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "crawler: %v\n", err)
	}
	if status == exitUsage {
		fmt.Fprintln(stderr, "Run with -h for the flags.")
	}
	return status
}

func program(ctx context.Context, args []string, stdout, stderr io.Writer) (status int, err error) {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout)
		return 0, nil
	}
	if err != nil {
		return exitUsage, err
	}
	out, closeOut, err := create(o.out, stdout)
	if err != nil {
		return exitFailed, err
	}
	defer func() {
		if closeErr := closeOut(); closeErr != nil && err == nil {
			status, err = exitFailed, fmt.Errorf("writing the pages: %w", closeErr)
		}
	}()
	table := stdout
	if o.out == "-" {
		table = stderr
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	var site *loopback
	if len(o.seeds) == 0 {
		if site, err = serve(); err != nil {
			return exitFailed, err
		}
		defer site.close()
		transport.Proxy = nil
		transport.DialContext = site.dial
		o.seeds = []*url.URL{start()}
		fmt.Fprintf(stderr, "crawling the built-in site on %s; give addresses to crawl others\n", site.address())
	}
	c, err := newCrawler(o, transport, out)
	if err != nil {
		return exitUsage, err
	}
	err = c.run(ctx)
	s := c.summary()
	if site != nil {
		s.server = site.server
	}
	var text strings.Builder
	s.write(&text)
	if err == nil && o.out != "" && o.out != "-" {
		fmt.Fprintf(&text, "The pages are in %s.\n", o.out)
	}
	if _, tableErr := io.WriteString(table, text.String()); tableErr != nil && err == nil {
		err = fmt.Errorf("writing the table: %w", tableErr)
	}
	return exitOf(ctx, s, err)
}

// exitOf returns the exit status of a crawl that ended with err.
func exitOf(ctx context.Context, s summary, err error) (int, error) {
	switch {
	case err != nil:
		return exitFailed, err
	case ctx.Err() != nil:
		return exitInterrupted, errors.New("interrupted")
	case s.failed() > 0:
		return exitFailed, nil
	case s.pages() == 0: // each host was away, forbade it or had none
		return exitFailed, errors.New("no page could be fetched")
	}
	return 0, nil
}

// create opens the file that the pages go to.
func create(name string, stdout io.Writer) (out io.Writer, closeOut func() error, err error) {
	switch name {
	case "":
		return io.Discard, func() error { return nil }, nil
	case "-":
		return stdout, func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}
