package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// figures is the result of a measurement.
type figures struct {
	kind       string
	burst      int64
	interval   int64
	granted    []int64 // by the clock of the Redis
	departures []int64 // by the clock of this machine
	arrivals   []int64 // by the clock of the called server, ns since it began
	scripts    int
	other      int
	explained  error
	trips      uint64
	decisions  uint64
	lost       uint64 // slots reserved and not used
	ambiguous  uint64
	failed     int
	errors     []string
	workers    time.Duration // processor time
	redis      time.Duration
	same       bool // the Redis has the clock of this machine
	stalls     []stall.Stall
}

// A called is the server that is called, which notes when.
type called struct {
	http  *http.Server
	url   string
	begun time.Time

	mu sync.Mutex
	at []int64
	on bool
}

func newCalled() (*called, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &called{url: "http://" + l.Addr().String(), begun: time.Now()}
	c.http = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.on {
			c.at = append(c.at, int64(time.Since(c.begun)))
		}
	})}
	go func() { _ = c.http.Serve(l) }() // until Close
	return c, nil
}

func (c *called) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = true
}

// measure measures one kind of limit.
func measure(ctx context.Context, kind string, o options) (f figures, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := newCalled()
	if err != nil {
		return f, err
	}
	defer server.http.Close()
	client := redis.NewClient(&redis.Options{Addr: o.Redis, DisableIdentity: true})
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return f, fmt.Errorf("no Redis at %s: %w", o.Redis, err)
	}
	f.kind, f.interval, f.burst = kind, (int64(time.Second)+o.Rate-1)/o.Rate, 1
	if kind == "leaky" {
		f.interval, f.burst = int64(time.Second)/o.Rate, burst(o.Rate)
	}
	host, _, _ := net.SplitHostPort(o.Redis)
	f.same = host == "localhost" || net.ParseIP(host).IsLoopback()

	todo := order{
		Redis: o.Redis, Prefix: "shared " + rand.Text()[:8], URL: server.url, Kind: kind,
		Goroutines: o.Goroutines, Rate: o.Rate, For: o.For, Late: o.Late,
	}
	var workers []*process
	defer func() { // who is left after an error
		cancel()
		for _, p := range workers {
			p.end()
		}
	}()
	for range o.Processes {
		p, err := start(ctx, todo)
		if err != nil {
			return f, err
		}
		workers = append(workers, p)
	}
	for _, p := range workers {
		if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
			return f, fmt.Errorf("a worker did not get ready: %w", errors.Join(err, p.end()))
		}
	}
	server.count()
	watch := stall.New()
	defer watch.End()
	before := processorTime(ctx, client)
	for _, p := range workers {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return f, err
		}
	}
	var scripts []script
	for _, p := range workers {
		var s seen
		if err := json.NewDecoder(p.out).Decode(&s); err != nil {
			return f, fmt.Errorf("a worker: %w", errors.Join(err, p.end(), ctx.Err()))
		}
		scripts = append(scripts, s.Scripts...)
		f.departures = append(f.departures, s.Departures...)
		f.other += s.Other
		f.trips += s.Stats.Scripts
		f.decisions += s.Stats.Decisions
		f.lost += s.Stats.LostSlots
		f.ambiguous += s.Stats.Ambiguous + s.Stats.Failed
		f.failed += s.Failed
		f.errors = append(f.errors, s.Errors...)
	}
	f.stalls = watch.Take()
	f.redis = processorTime(ctx, client) - before
	for _, p := range workers {
		if err := p.end(); err != nil {
			return f, fmt.Errorf("a worker: %w", err)
		}
		f.workers += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	}
	server.mu.Lock()
	f.arrivals = slices.Clone(server.at)
	server.mu.Unlock()
	slices.Sort(f.arrivals)
	slices.Sort(f.departures)
	f.scripts, f.granted, f.explained = len(scripts), grants(kind, scripts), explain(scripts)
	return f, nil
}

// processorTime returns the processor time that a Redis has used, 0 if it does not say.
func processorTime(ctx context.Context, c *redis.Client) time.Duration {
	var all float64
	for line := range strings.Lines(c.Info(ctx, "cpu").Val()) {
		for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if value, ok := strings.CutPrefix(line, field); ok {
				n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
				all += n
			}
		}
	}
	return time.Duration(all * float64(time.Second))
}

// A process is a worker.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end func() error // waits for it; more than once
}

func start(ctx context.Context, o order) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), workerEnv+"=1"), os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.end = sync.OnceValue(func() error {
		_ = p.in.Close()
		return p.cmd.Wait()
	})
	return p, json.NewEncoder(p.in).Encode(o)
}
