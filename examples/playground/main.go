// Playground is a page on which limits can be played with:
//
//	go run ./examples/playground                # at http://127.0.0.1:8077
//	go run ./examples/playground -static DIR    # writes the files, for any web server
//
// It compiles the package wasm, which has the real limiters in virtual time, for the
// browser. So it needs the go command and a clone of Sluice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main, with an exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("playground", flag.ContinueOnError)
	flags.SetOutput(stderr)
	address := flags.String("addr", "127.0.0.1:8077", "the `address` to serve at")
	dir := flags.String("static", "", "write the files to this `folder` and end")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "playground: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	err := func() error {
		fmt.Fprintln(stderr, "compiling the engine for the browser, which takes a while the first time")
		engine, err := compile(ctx)
		if err != nil {
			return err
		}
		files, err := pages(engine)
		if err != nil {
			return err
		}
		if *dir != "" {
			return write(files, *dir, stdout)
		}
		return serve(ctx, files, *address, stdout)
	}()
	if err != nil {
		fmt.Fprintf(stderr, "playground: %v\n", err)
		return 1
	}
	return 0
}

// write writes the files into a directory, and their names and sizes to stdout.
func write(files []file, dir string, stdout io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sum := 0
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.content, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%9d %s\n", len(f.content), f.name)
		sum += len(f.content)
	}
	_, err := fmt.Fprintf(stdout, "%9d bytes in all\n", sum)
	return err
}

// serve serves the files until ctx is done.
func serve(ctx context.Context, files []file, address string, stdout io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "http://%s/\n", listener.Addr())
	server := &http.Server{Handler: handler(files), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
