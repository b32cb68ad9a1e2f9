// Redis measures the limits of sluiceredis next to other limiters on the same
// Redis, through the same clients, in one run. It starts a redis-server of its own.
//
//	go run ./bench/redis                      5 rounds, half a minute each; prints the table
//	go run ./bench/redis -o redis.json        … and keeps each round
//	go run ./bench/redis -read redis.json     only print the table
//	go run ./bench/redis -only /512 -rounds 1
//	go run ./bench/redis -far                 a server that is 1 and 5 ms away, through gates; see far.go
//
// In each round each library does each work once, in turn, because a machine is
// not the same from one minute to the next. A ratio is the median, over the
// rounds, of the ratio within one round.
//
// A work is a number of callers, each of which asks again when it has its answer: for one
// hot key, or for 10,000 keys in turn. All of them are allowed. Server and callers share
// the machine, so what a library leaves of it to the server counts as well. The libraries,
// by the client they ask through:
//
//	sluice        Store.Leaky
//	redis_rate    github.com/go-redis/redis_rate/v10
//	throttled     github.com/throttled/throttled/v2 with its goredisstore: reads,
//	              decides, and compares and swaps; what it gives up is counted as failed
//	script        a bare script that makes the calls which a decision needs, TIME, GET
//	              and SET, and decides nothing
//	decision      the script of sluice for one bucket, without sluice: what is left
//	              to script is what the server has to decide
//	empty         the emptiest script
//	ping          PING
//
// rueidis sends what comes together in pipelines, so that its ping is a pipelined
// one. rueidislimiter is missing: it could not be had where this was written, so
// nothing is known of how it would do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/bench/internal/results"
	"github.com/sluice-go/sluice/bench/internal/server"
)

// A run is everything that was measured.
type run struct {
	Machine  string `json:"machine"`
	Measured string `json:"measured"`
	Redis    string `json:"redis"`
	Cells    []cell `json:"cells"`  // one for each round
	Memory   []size `json:"memory"` // one for each library
}

type options struct {
	rounds          int
	far             bool
	each            time.Duration
	only            string
	out, read, into string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each library does each work")
	flag.DurationVar(&o.each, "each", 500*time.Millisecond, "how long it does it")
	flag.StringVar(&o.only, "only", "", "only what matches this, such as hot/64/sluice/rueidis")
	flag.StringVar(&o.out, "o", "", "write each round to this file, as JSON")
	flag.StringVar(&o.read, "read", "", "do not run, read this file")
	flag.StringVar(&o.into, "into", "", "put the tables into this Markdown file, between its marks for redis")
	flag.BoolVar(&o.far, "far", false, "only measure what gates lose because the server is far away")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := tell(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

func tell(ctx context.Context, o options, w io.Writer) error {
	if o.far {
		return far(ctx, w)
	}
	r, err := get(ctx, o)
	if err != nil {
		return err
	}
	if len(r.Cells) == 0 && len(r.Memory) == 0 {
		return errors.New("nothing was measured")
	}
	text := report(r)
	if _, err := io.WriteString(w, text); err != nil || o.into == "" {
		return err
	}
	return results.Splice(o.into, "redis", text)
}

// get measures, or reads what was.
func get(ctx context.Context, o options) (*run, error) {
	if o.read != "" {
		text, err := os.ReadFile(o.read)
		if err != nil {
			return nil, err
		}
		r := new(run)
		return r, json.Unmarshal(text, r)
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	s, err := server.Start()
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	r := &run{Machine: machine.Describe(), Measured: time.Now().UTC().Format("2006-01-02 15:04 MST"), Redis: s.Version(ctx)}
	for i := range o.rounds {
		began := time.Now()
		for _, w := range works {
			for _, l := range libraries {
				if !only.MatchString(w.name() + "/" + l.name) {
					continue
				}
				c, err := measure(ctx, s, l, w, o.each)
				if err != nil {
					return nil, fmt.Errorf("%s/%s: %w", w.name(), l.name, err)
				}
				c.Round = i
				r.Cells = append(r.Cells, c)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: %.0f s\n", i+1, o.rounds, time.Since(began).Seconds())
	}
	for _, l := range libraries {
		if l.keeps && only.MatchString("memory/"+l.name) {
			m, err := weigh(ctx, s, l)
			if err != nil {
				return nil, fmt.Errorf("memory/%s: %w", l.name, err)
			}
			r.Memory = append(r.Memory, m)
		}
	}
	if o.out == "" {
		return r, nil
	}
	return r, write(r, o.out)
}

// write writes r to a file, one cell a line.
func write(r *run, file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "},{", "},\n{")+"\n"), 0o644)
}
