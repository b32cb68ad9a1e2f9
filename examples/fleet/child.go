package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tied is set for children: they end when their stdin does, because then the process
// that started them is gone.
const tied = "FLEET_TIED"

// untilSignal returns a context that ends at a Ctrl-C or SIGTERM.
func untilSignal() (stop context.Context, release func()) {
	stop, release = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if os.Getenv(tied) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			release()
		}()
	}
	return stop, release
}

// child is a process that this one started.
type child struct {
	*exec.Cmd
	stdin io.Closer
}

// start starts a program. log gets its stdout, and said its stderr; nil discards them.
func start(log, said io.Writer, program string, args ...string) (*child, error) {
	c := &child{Cmd: exec.Command(program, args...)}
	c.Env = append(os.Environ(), tied+"=1")
	c.Stdout, c.Stderr = log, said
	apart(c.Cmd)
	stdin, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	return c, c.Start()
}

// kill is kill -9. When it returns the process is gone, and log has all that it wrote.
func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// end asks the process to end, and kills it if it does not.
func (c *child) end() {
	if c.Process.Signal(os.Interrupt) != nil { // not on Windows
		_ = c.Process.Kill()
	}
	defer time.AfterFunc(patience, func() { _ = c.Process.Kill() }).Stop()
	_ = c.Wait()
	_ = c.stdin.Close()
}

// ownServer is a queue or our own Redis. Its data is in a directory, so it can be killed
// and started again.
type ownServer struct {
	name    string
	addr    string // host:port
	program string
	args    []string
	*child
}

// start starts the server, and returns when it accepts connections.
func (s *ownServer) start() (err error) {
	if s.child, err = start(nil, os.Stderr, s.program, s.args...); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			return conn.Close()
		}
	}
	s.kill()
	return fmt.Errorf("%s does not listen on %s", s.name, s.addr)
}

// freePort returns a port of loopback that is free now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// newQueueServer returns a NATS server that keeps its items in dir.
func newQueueServer(self, dir string) (*ownServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "queue")
	return &ownServer{name: "queue", addr: "127.0.0.1:" + port, program: self, args: []string{"queue", "-dir", dir, "-port", port}}, nil
}

// newRedisServer returns a redis-server that keeps its data in dir, or nil if there is
// none on this machine.
func newRedisServer(dir string) (*ownServer, error) {
	program, err := exec.LookPath("redis-server")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &ownServer{name: "redis-server", program: program, addr: "127.0.0.1:" + port, args: []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--loglevel", "warning"}}, nil
}

// newMiniredis returns a Redis in this process, with nothing on disk.
func newMiniredis() (addr string, end func(), err error) {
	m, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	return m.Addr(), m.Close, nil
}
