// Crawlers runs sluice crawl, colly and wget over the same site on loopback: as fast as they
// go, and against a limit.
//
//	go build -o /tmp/sluice ./cmd/sluice
//	go run ./bench/crawlers -sluice /tmp/sluice
//	go run ./bench/crawlers -sluice /tmp/sluice -first -into bench/results/crawls.md
//
// With -first it runs the first commands of [firsts] instead, beside wget -r and Scrapy, and says
// how many of the allowed pages of small sites each of them got.
//
// The site has -pages pages, each with ten links. It runs in this process, and so does
// colly. Evenness is the coefficient of variation of the gaps between arrivals: 0 if all
// are the same.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/gocolly/colly/v2"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// A site is a tree of pages, perhaps with a limit: a bucket that answers 429.
type site struct {
	pages int
	every time.Duration // of the limit, 0 for none
	burst int

	mu      sync.Mutex
	next    time.Time // when the bucket is empty
	at      []time.Time
	refused int
	served  map[string]bool
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	now := time.Now()
	s.at = append(s.at, now)
	if s.every > 0 {
		if s.next.Sub(now) > time.Duration(s.burst-1)*s.every {
			s.refused++
			s.mu.Unlock()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(s.every)
	}
	s.served[r.URL.Path] = true
	s.mu.Unlock()
	var n int
	_, _ = fmt.Sscanf(r.URL.Path, "/p%d.html", &n)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, "<!doctype html><title>Page %d</title>%s\n", n, strings.Repeat("<p>Some words of a page.</p>\n", 50))
	for i := 10*n + 1; i <= 10*n+10 && i < s.pages; i++ {
		fmt.Fprintf(w, "<a href=\"/p%d.html\">%d</a>\n", i, i)
	}
}

// evenness is the coefficient of variation of the gaps.
func (s *site) evenness() float64 {
	var sum, squares float64
	for i := 1; i < len(s.at); i++ {
		gap := s.at[i].Sub(s.at[i-1]).Seconds()
		sum += gap
		squares += gap * gap
	}
	n := float64(len(s.at) - 1)
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)) / mean
}

// A rival crawls an address: without its own limit if delay is 0.
type rival struct {
	name string
	run  func(ctx context.Context, address string, delay time.Duration) error
}

func rivals(sluice string) []rival {
	return []rival{
		{"sluice crawl", func(ctx context.Context, address string, delay time.Duration) error {
			perHost := "16"
			if delay > 0 {
				perHost = "1"
			}
			dir, err := os.MkdirTemp("", "crawlers")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			return command(ctx, sluice, "crawl", "-dir", dir, "-delay", delay.String(), "-per-host", perHost, "-jobs", perHost,
				"-depth", "20", "-pages", "1000000", "-host-pages", "1000000", "-quiet", address)
		}},
		{"colly", collect},
		{"wget -r", func(ctx context.Context, address string, delay time.Duration) error {
			dir, err := os.MkdirTemp("", "crawlers")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			err = command(ctx, "wget", "-q", "-r", "-l", "20", "--tries=4", "--retry-on-http-error=429", "-w", fmt.Sprint(delay.Seconds()), "-P", dir, address)
			if status, ok := err.(*exec.ExitError); ok && status.ExitCode() == 8 {
				return nil // some page was not to be had
			}
			return err
		}},
	}
}

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// collect is colly with 16 in parallel, or one at a time and a delay.
func collect(_ context.Context, address string, delay time.Duration) error {
	c := colly.NewCollector(colly.Async(true), colly.MaxDepth(20))
	c.IgnoreRobotsTxt = false
	rule := &colly.LimitRule{DomainGlob: "*", Parallelism: 16}
	if delay > 0 {
		rule = &colly.LimitRule{DomainGlob: "*", Parallelism: 1, Delay: delay}
	}
	if err := c.Limit(rule); err != nil {
		return err
	}
	c.OnHTML("a[href]", func(e *colly.HTMLElement) { _ = e.Request.Visit(e.Attr("href")) }) // an error: visited before
	if err := c.Visit(address); err != nil {
		return err
	}
	c.Wait()
	return nil
}

func runFirst(ctx context.Context, sluice, into string) error {
	table, err := measureFirst(ctx, sluice)
	if err != nil {
		return err
	}
	fmt.Print(table)
	if into != "" {
		return results.Splice(into, "crawls", table)
	}
	return nil
}

func main() {
	sluice := flag.String("sluice", "sluice", "the `program`, built from cmd/sluice")
	pages := flag.Int("pages", 5000, "`pages` of the site without a limit")
	limited := flag.Int("limited", 300, "`pages` of the site with a limit")
	runs := flag.Int("runs", 3, "how often each crawls, by turns")
	commands := flag.Bool("first", false, "run typical first commands on small sites instead, beside wget -r and Scrapy")
	into := flag.String("into", "", "with -first, put the table into this Markdown `file`, between its marks")
	flag.Parse()
	ctx := context.Background()
	if *commands {
		if err := runFirst(ctx, *sluice, *into); err != nil {
			fmt.Fprintln(os.Stderr, "crawlers:", err)
			os.Exit(1)
		}
		return
	}
	fmt.Println("| site | program | pages | seconds | pages per second | refused | evenness |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, test := range []struct {
		name  string
		pages int
		every time.Duration
		delay time.Duration
	}{
		{"no limit", *pages, 0, 0},
		{"50/s, asked for 50/s", *limited, 20 * time.Millisecond, 20 * time.Millisecond},
		{"20/s, asked for 50/s", *limited, 50 * time.Millisecond, 20 * time.Millisecond},
	} {
		for range *runs {
			for _, r := range rivals(*sluice) {
				s := site{pages: test.pages, every: test.every, burst: 5, served: make(map[string]bool)}
				srv := httptest.NewServer(&s)
				began := time.Now()
				err := r.run(ctx, srv.URL+"/p0.html", test.delay)
				took := time.Since(began).Seconds()
				srv.Close()
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", r.name, err)
				}
				fmt.Printf("| %s | %s | %d of %d | %.1f | %.0f | %d | %.2f |\n", test.name, r.name, len(s.served), s.pages, took, float64(len(s.served))/took, s.refused, s.evenness())
			}
		}
	}
}
