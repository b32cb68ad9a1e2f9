// Sluice runs batch jobs and crawls web sites, as fast as the services that it calls allow, and says
// when a job will end.
//
//	go run ./cmd/sluice batch -in ids.txt -url 'https://api.example.com/{}'
//	go run ./cmd/sluice crawl -pages 50 https://example.com/
//	go run ./cmd/sluice proxy
//	go run ./cmd/sluice plan -items 50000 -rate 5/s
//	go run ./cmd/sluice help
//
// Each command is a package of its own, below cmd/internal; they share cmd/internal/cli.
package main

import (
	"os"

	"github.com/sluice-go/sluice/cmd/internal/batch"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/cmd/internal/crawl"
	"github.com/sluice-go/sluice/cmd/internal/plan"
	"github.com/sluice-go/sluice/cmd/internal/proxy"
)

func main() { os.Exit(app().Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// app is the program: to add a command, add it here.
func app() *cli.App {
	a := &cli.App{
		Short:    "runs jobs that call rate-limited services, as fast as those allow and no faster",
		Commands: []*cli.Command{batch.Command, crawl.Command, proxy.Command, plan.Command},
		Others: map[string]string{
			"batchjob": "batch", "parallel": "batch", "xargs": "batch", "curl": "batch", "map": "batch", "run": "batch",
			"crawler": "crawl", "spider": "crawl", "wget": "crawl", "get": "crawl",
			"estimate": "plan", "forecast": "plan", "eta": "plan",
			"completions": "completion", "manual": "man",
		},
	}
	a.AddCommon()
	return a
}
