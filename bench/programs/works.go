package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A work is something that is done with each program.
type work struct {
	name, title string
	args        map[string][]string // of each program that can do it; HOST stands for the server
	do          func(context.Context, program) (string, error)
}

var works = []work{
	{
		name: "start", title: "2,000 times `true`, 8 at once",
		args: map[string][]string{
			"sluice batch": {"batch", "-jobs", "8", "--", "true"},
			"parallel":     {"-j", "8", "true"},
			"xargs":        {"-P", "8", "-n", "1", "true"},
		},
		do: func(ctx context.Context, p program) (string, error) {
			took, err := p.run(ctx, numbers(2000))
			return seconds(took), err
		},
	}, {
		name: "rate", title: "100 commands at 20/s; 95 % of the gaps differ from 50 ms by less than",
		args: map[string][]string{
			"sluice batch": {"batch", "-rate", "20/s", "--", "sh", "-c", "date +%s%N"},
			"parallel":     {"-j", "8", "--delay", "0.05", "-N", "1", "date +%s%N; : {}"},
		},
		do: evenness,
	}, {
		name: "memory", title: "a command that prints 200 MB; memory of the program",
		args: map[string][]string{
			"sluice batch": {"batch", "--", "sh", "-c", "head -c 200000000 /dev/zero"},
			"parallel":     {"head -c 200000000 /dev/zero; : {}"},
			"xargs":        {"-n", "1", "sh", "-c", "head -c 200000000 /dev/zero"},
		},
		do: func(ctx context.Context, p program) (string, error) {
			_, err := p.run(ctx, "1\n")
			return fmt.Sprintf("%d MB", p.memory()>>20), err
		},
	}, {
		name: "child", title: "a command that leaves a child behind for 3 s",
		args: map[string][]string{
			"sluice batch": {"batch", "--", "sh", "-c", "sleep 3 & true", "sh"},
			"parallel":     {"sleep 3 & true {}"},
			"xargs":        {"-n", "1", "sh", "-c", "sleep 3 & true", "sh"},
		},
		do: func(ctx context.Context, p program) (string, error) {
			took, err := p.run(ctx, "1\n")
			return seconds(took), err
		},
	}, {
		name: "dead", title: "60 addresses, a third of a dead host, 4 at once, 3 retries",
		args: map[string][]string{
			"sluice batch": {"batch", "-jobs", "4", "-url", "{}"},
			"parallel":     {"-j", "4", "curl -fsS --retry 3 --retry-connrefused {}"},
			"xargs":        {"-P", "4", "-n", "1", "curl", "-fsS", "--retry", "3", "--retry-connrefused"},
		},
		do: deadHost,
	}, {
		name: "limit", title: "300 calls of a server that allows 50/s, burst 5, and answers the rest with 429 and `Retry-After: 1`; nobody is told",
		args: map[string][]string{
			"sluice batch": {"batch", "-jobs", "16", "-url", "http://HOST/{}"},
			"parallel":     {"-j", "16", "curl -fsS --retry 3 http://HOST/{}"},
			"xargs":        {"-P", "16", "-I", "{}", "curl", "-fsS", "--retry", "3", "http://HOST/{}"},
		},
		do: unknownLimit,
	}, {
		name: "killed", title: "200 commands, `kill -9` in the middle, then resumed",
		args: map[string][]string{
			"sluice batch": {"batch", "-jobs", "4", "-log", "log", "-resume", "--", "sh", "-c", `sleep 0.02; echo "$1" >>ran`, "sh"},
			"parallel":     {"-j", "4", "--joblog", "log", "--resume", "sleep 0.02; echo {} >>ran"},
		},
		do: killed,
	},
}

// numbers returns the lines 1 to n.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// evenness is the rate, and how far gaps are from even. Each command prints when it starts.
func evenness(ctx context.Context, p program) (string, error) {
	const n, interval = 100, 50.
	if _, err := p.run(ctx, numbers(n)); err != nil {
		return "", err
	}
	var at []float64 // ms
	for line := range strings.Lines(string(p.out)) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return "", err
		}
		at = append(at, float64(ns)/1e6)
	}
	if len(at) != n {
		return "", fmt.Errorf("%d of %d commands printed", len(at), n)
	}
	slices.Sort(at)
	var off []float64
	for i := range n - 1 {
		off = append(off, math.Abs(at[i+1]-at[i]-interval))
	}
	slices.Sort(off)
	rate := (n - 1) / (at[n-1] - at[0]) * 1000
	return fmt.Sprintf("%.1f ms, at %.2f/s", off[len(off)*95/100], rate), nil
}

// deadHost is how long it takes, and what became of the calls that can succeed.
func deadHost(ctx context.Context, p program) (string, error) {
	s := newServer(0)
	defer s.close()
	var urls strings.Builder
	for i := range 20 {
		fmt.Fprintf(&urls, "http://%s/%d\nhttp://%s/%d\nhttp://127.0.0.1:1/%d\n", s.host, 2*i, s.host, 2*i+1, i)
	}
	took, err := p.run(ctx, urls.String())
	return fmt.Sprintf("%s, %d of 40 ok", seconds(took), s.granted.Load()), unlessFailed(err)
}

// unknownLimit counts the calls that succeed and are rejected if the limit is not known.
func unknownLimit(ctx context.Context, p program) (string, error) {
	s := newServer(50)
	defer s.close()
	took, err := p.run(ctx, numbers(300), s.host)
	return fmt.Sprintf("%d of 300 ok, %d refused, %s", s.granted.Load(), s.refused.Load(), seconds(took)), unlessFailed(err)
}

// killed is what a program knows after kill -9.
func killed(ctx context.Context, p program) (string, error) {
	const n = 200
	lines := numbers(n)
	if err := p.kill(ctx, lines, 600*time.Millisecond); err != nil {
		return "", err
	}
	if _, err := p.run(ctx, lines); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "ran"))
	if err != nil {
		return "", err
	}
	times := make(map[string]int)
	for _, line := range strings.Fields(string(text)) {
		times[line]++
	}
	again := 0
	for _, k := range times {
		again += k - 1
	}
	return fmt.Sprintf("%d not run, %d run again", n-len(times), again), nil
}
