package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A program is run in its own directory.
type program struct {
	path, dir string
	args      []string

	out   []byte // the first MiB of what it printed
	usage *syscall.Rusage
}

// run runs the program with the lines on its standard input, to its end.
func (p *program) run(ctx context.Context, lines string, host ...string) (time.Duration, error) {
	// A file, because children that are left behind would keep a pipe open.
	out, err := os.CreateTemp(p.dir, "out")
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd := p.command(ctx, lines, host)
	cmd.Stdout = out
	begin := time.Now()
	err = cmd.Run()
	took := time.Since(begin)
	p.out, _ = io.ReadAll(io.NewSectionReader(out, 0, 1<<20))
	if cmd.ProcessState != nil {
		p.usage, _ = cmd.ProcessState.SysUsage().(*syscall.Rusage)
	}
	return took, err
}

func (p *program) command(ctx context.Context, lines string, host []string) *exec.Cmd {
	args := make([]string, len(p.args))
	for i, arg := range p.args {
		args[i] = strings.ReplaceAll(arg, "HOST", strings.Join(host, ""))
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = p.dir
	cmd.Stdin = strings.NewReader(lines)
	cmd.WaitDelay = time.Second
	return cmd
}

// kill runs the program and kills it after a time.
func (p *program) kill(ctx context.Context, lines string, after time.Duration) error {
	cmd := p.command(ctx, lines, nil)
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // it was killed
	time.Sleep(200 * time.Millisecond)
	return nil
}

// memory is what the program itself held at most, in bytes.
func (p *program) memory() int64 {
	if p.usage == nil {
		return 0
	}
	return p.usage.Maxrss << 10
}

// unlessFailed hides that a program reports failed items by its exit status.
func unlessFailed(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return nil
	}
	return err
}

// A server admits calls at a rate, with a burst of 5, and rejects the others.
type server struct {
	host             string
	granted, refused atomic.Int64
	close            func()
}

// newServer returns a server with so many calls per second, 0 for no limit.
func newServer(perSecond int64) *server {
	s := new(server)
	var bucket *leaky.Bucket
	if perSecond > 0 {
		bucket = limits.Must(leaky.New(sluice.Rate{Count: perSecond, Per: time.Second, Burst: 5}))
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if bucket != nil && !bucket.Take(1).Allowed() {
			s.refused.Add(1)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		s.granted.Add(1)
	}))
	s.host, s.close = strings.TrimPrefix(h.URL, "http://"), h.Close
	return s
}
