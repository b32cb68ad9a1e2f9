// Download fetches URLs in parallel, paced and retried, and prints the size of each.
//
//	go run ./examples/download https://example.com/ https://example.org/
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: download URL...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := downloadAll(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "download: %v\n", err)
		os.Exit(1)
	}
}

func downloadAll(ctx context.Context, urls []string) error {
	transport, err := sluicehttp.New(nil, sluicehttp.Config{Gate: sluice.Config{
		Concurrency: 8,                                        // in flight, for each host
		Rate:        sluice.Rate{Count: 10, Per: time.Second}, // one every 100 ms
	}})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport} // share it, also with SDKs
	var group errgroup.Group
	for _, url := range urls {
		group.Go(func() error { return download(ctx, client, url) })
	}
	return group.Wait()
}

func download(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // or the request stays in flight
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	fmt.Printf("%10d bytes  %s\n", n, url)
	return err
}
